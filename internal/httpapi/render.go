package httpapi

import (
	"context"
	"net/http"
	"strings"
	"time"

	"cutroom/internal/account"
	"cutroom/internal/asset"
	"cutroom/internal/fault"
	"cutroom/internal/job"
	"cutroom/internal/render"
	"cutroom/internal/timeline"
)

func (s *Server) renderForm(r *http.Request, isFile func(string) bool) (*form, error) {
	return s.readForm(r, formRules{
		text: []string{"config", "inputId"}, isFile: isFile, maxBody: s.o.MaxUploadBytes,
		tooBig:  fault.Sentencef(fault.TooLarge, "The upload is larger than the limit of %d MB", s.o.MaxUploadBytes>>20),
		tooLong: errTooLarge,
		tooMany: fault.Sentencef(fault.TooLarge, "The form has more than %d parts", maxParts),
	})
}

type inputBody struct {
	InputID        string `json:"inputId"`
	ExpiresAt      int64  `json:"expiresAt"` // epoch ms
	VideoSizeBytes int64  `json:"videoSizeBytes"`
}

func (s *Server) renderInput(w http.ResponseWriter, r *http.Request, user account.Principal) error {
	key, err := idempotencyKey(r, user)
	if err != nil {
		return err
	}
	f, err := s.renderForm(r, func(name string) bool { return name == "video" })
	if err != nil {
		return err
	}
	defer f.Close()
	video, given := f.files["video"]
	if !given {
		return fault.Invalidf("video is required")
	}
	key.Fingerprint = f.fingerprint("render/inputs")
	in, err := s.o.Renders.SaveInput(r.Context(), user.UserID, video, key)
	return answer(w, inputBody{InputID: in.ID, ExpiresAt: in.Expires.UnixMilli(), VideoSizeBytes: in.SizeBytes}, err)
}

func (s *Server) renderMultipart(w http.ResponseWriter, r *http.Request, user account.Principal) error {
	key, err := idempotencyKey(r, user)
	if err != nil {
		return err
	}
	f, err := s.renderForm(r, func(string) bool { return true })
	if err != nil {
		return err
	}
	defer f.Close()
	text, given := f.text["config"]
	if !given {
		return fault.Invalidf("config is required")
	}
	var cfg configWire
	if err := parseObject([]byte(text), &cfg); err != nil {
		return wrongShape("config", []byte(text), &cfg, err)
	}
	if err := knownFields(r, []byte(text), &cfg, ""); err != nil {
		return err
	}
	sub := render.Submission{Files: f.files, InputID: strings.TrimSpace(f.text["inputId"])}
	if !storable(sub.InputID) {
		sub.InputID = "-" // is as unknown
	}
	if sub.Timeline, err = cfg.timeline(sub); err != nil {
		return err
	}
	key.Fingerprint = f.fingerprint("render")
	id, err := s.o.Renders.Submit(r.Context(), user.UserID, sub, key)
	if err != nil {
		return err
	}
	return submitted(w, r, http.StatusOK, id)
}

func (s *Server) renderV3(w http.ResponseWriter, r *http.Request, user account.Principal) error {
	if !s.o.Assets.Enabled() {
		return asset.ErrDisabled
	}
	key, err := idempotencyKey(r, user)
	if err != nil {
		return err
	}
	body, err := readBody(w, r)
	if err != nil {
		return err
	}
	var cfg configWire
	if err := parseObject(body, &cfg); err != nil {
		return wrongShape("the body", body, &cfg, err)
	}
	if err := knownFields(r, body, &cfg, ""); err != nil {
		return err
	}
	t, err := cfg.referenced()
	if err != nil {
		return err
	}
	key.Fingerprint = digest("render/v3", string(body))
	id, err := s.o.Renders.Submit(r.Context(), user.UserID, render.Submission{Timeline: t, ByReference: true}, key)
	if err != nil {
		return err
	}
	return submitted(w, r, http.StatusOK, id)
}

// wrongShape answers a configuration that cannot be decoded: with a sentence that
// names the field whose type is wrong, or as no JSON object at all.
func wrongShape(what string, document []byte, dst any, err error) error {
	if fault.As(err) == errManyValues { // and nothing else that is a bad_request
		return err
	}
	if sentence := typeMismatch(document, dst); sentence != "" {
		return fault.Sentencef(fault.Invalid, "%s", sentence).WithCause(err)
	}
	return errBadRequest.WithDetail("%s is not a JSON object", what).WithCause(err)
}

// filmBody is what the status and the history of a render both tell.
type filmBody struct {
	JobID      string `json:"jobId"`
	Status     string `json:"status"`
	Progress   int    `json:"progress"`
	OutputKind string `json:"outputKind"`
	Quality    string `json:"quality"`
	DurationMs *int64 `json:"durationMs"`
	SizeBytes  *int64 `json:"sizeBytes"`
	CreatedAt  int64  `json:"createdAt"` // these three in epoch ms
	FinishedAt *int64 `json:"finishedAt"`
	ExpiresAt  *int64 `json:"expiresAt"`
}

type renderStatusBody struct {
	filmBody
	ProgressReason string  `json:"progressReason,omitempty"`
	Error          string  `json:"error,omitempty"`
	ErrorCode      *string `json:"errorCode"`
}

type renderHistoryBody struct {
	filmBody
	Error *string `json:"error"`
}

func bodyOfFilm(st render.Status) filmBody {
	return filmBody{JobID: st.JobID, Status: st.State, Progress: st.Progress, OutputKind: st.OutputKind, Quality: st.Quality,
		DurationMs: positive(st.DurationMs), SizeBytes: positive(st.SizeBytes),
		CreatedAt: st.Created.UnixMilli(), FinishedAt: epochMs(st.Finished), ExpiresAt: epochMs(st.Expires)}
}

func listedRender(st render.Status) renderHistoryBody {
	return renderHistoryBody{bodyOfFilm(st), orNull(st.Error)}
}

func (s *Server) renderStatus(w http.ResponseWriter, r *http.Request, user account.Principal) error {
	id := r.PathValue("jobId")
	return s.answerState(w, r, user.UserID, []string{job.Topic(id)}, func(ctx context.Context) (state, error) {
		st, err := s.o.Renders.Status(ctx, user.UserID, id)
		if err != nil {
			return state{}, err
		}
		body := renderStatusBody{filmBody: bodyOfFilm(st), Error: st.Error, ErrorCode: orNull(st.ErrorCode)}
		if st.State == render.StatePending {
			body.ProgressReason = "queued"
		}
		encoded := encode(body)
		return state{encoded, weakTag(encoded), st.State == render.StateCompleted || st.State == render.StateFailed}, nil
	})
}

func (s *Server) renderDownload(w http.ResponseWriter, r *http.Request, user account.Principal) error {
	d, err := s.o.Renders.Open(r.Context(), user.UserID, r.PathValue("jobId"), r.Method == http.MethodHead)
	if err != nil {
		return err
	}
	if d.RedirectURL != "" {
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("Location", d.RedirectURL)
		w.WriteHeader(http.StatusFound)
		return nil
	}
	w.Header().Set("ETag", `"`+d.ETag+`"`)
	return serveObject(w, r, d.Object, d.FileName)
}

func (s *Server) renderPoster(w http.ResponseWriter, r *http.Request, user account.Principal) error {
	obj, name, err := s.o.Renders.Poster(r.Context(), user.UserID, r.PathValue("jobId"))
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", revalidated)
	return serveObject(w, r, obj, name)
}

// The wire form of RenderConfig and RenderConfigV3. Pointers tell an absent
// field from a zero one.
type configWire struct {
	VideoDurationMs      *integer        `json:"videoDurationMs"`
	Segments             []segmentWire   `json:"segments"`
	BgmClips             []clipWire      `json:"bgmClips"`
	SeparationDirectives []directiveWire `json:"separationDirectives"`
	OutputKind           *string         `json:"outputKind"`
	Quality              *string         `json:"quality"`
	Loudness             *loudnessWire   `json:"loudness"`
	Canvas               *canvasWire     `json:"canvas"`
}

type segmentWire struct {
	SourceFileKey  *string  `json:"sourceFileKey"`
	SourceAssetKey *string  `json:"sourceAssetKey"`
	Order          *integer `json:"order"`
	DurationMs     *integer `json:"durationMs"`
	TrimStartMs    *integer `json:"trimStartMs"`
	TrimEndMs      *integer `json:"trimEndMs"`
	VolumeScale    *float64 `json:"volumeScale"`
	SpeedScale     *float64 `json:"speedScale"`

	VolumePoints []pointWire     `json:"volumePoints"`
	Transition   *transitionWire `json:"transition"`
	Fit          *string         `json:"fit"`
	FocusX       *float64        `json:"focusX"`
	FocusY       *float64        `json:"focusY"`
}

type clipWire struct {
	AudioFileKey      *string  `json:"audioFileKey"`
	AudioAssetKey     *string  `json:"audioAssetKey"`
	StartMs           *integer `json:"startMs"`
	SourceTrimStartMs *integer `json:"sourceTrimStartMs"`
	SourceTrimEndMs   *integer `json:"sourceTrimEndMs"`
	Volume            *float64 `json:"volume"`
	Speed             *float64 `json:"speed"`

	FadeInMs     *integer     `json:"fadeInMs"`
	FadeOutMs    *integer     `json:"fadeOutMs"`
	Loop         *bool        `json:"loop"`
	EndMs        *integer     `json:"endMs"`
	Ducking      *duckingWire `json:"ducking"`
	VolumePoints []pointWire  `json:"volumePoints"`
}

type directiveWire struct {
	ID                       *string         `json:"id"`
	RangeStartMs             *integer        `json:"rangeStartMs"`
	RangeEndMs               *integer        `json:"rangeEndMs"`
	MuteOriginalSegmentAudio *bool           `json:"muteOriginalSegmentAudio"`
	Selections               []selectionWire `json:"selections"`
	SourceOffsetMs           *integer        `json:"sourceOffsetMs"`
	AppliedSpeedScale        *float64        `json:"appliedSpeedScale"`
}

type selectionWire struct {
	StemID          *string  `json:"stemId"`
	AudioURL        *string  `json:"audioUrl"`
	SeparationJobID *string  `json:"separationJobId"`
	Volume          *float64 `json:"volume"`

	VolumePoints []pointWire `json:"volumePoints"`
}

func ms(n integer) time.Duration { return timeline.Milliseconds(int64(n)) }

func or[T any](p *T, fallback T) T {
	if p == nil {
		return fallback
	}
	return *p
}

// timeline reads the multipart form of the configuration.
func (c *configWire) timeline(sub render.Submission) (timeline.Timeline, error) {
	if len(c.Segments) > 0 || c.VideoDurationMs == nil {
		if c.Segments == nil {
			return timeline.Timeline{}, fault.Invalidf("segments or videoDurationMs is required")
		}
		return c.build(timeline.MultipartNames)
	}
	const key = "video"
	t := timeline.Legacy(key, ms(*c.VideoDurationMs))
	if err := c.rest(&t, timeline.LegacyNames); err != nil {
		return t, err
	}
	if !sub.Has(key) {
		return t, fault.Invalidf("video is required")
	}
	return t, nil
}

// referenced reads the form whose sources are asset keys.
func (c *configWire) referenced() (timeline.Timeline, error) {
	if c.Segments == nil {
		return timeline.Timeline{}, fault.Invalidf("segments is required")
	}
	if err := c.checkAssetKeys(); err != nil {
		return timeline.Timeline{}, err
	}
	return c.build(timeline.AssetNames)
}

// checkAssetKeys judges the keys that are there; one that is absent is missed
// later, by name.
func (c *configWire) checkAssetKeys() error {
	keys := make([]*string, 0, len(c.Segments)+len(c.BgmClips))
	for _, s := range c.Segments {
		keys = append(keys, s.SourceAssetKey)
	}
	for _, k := range c.BgmClips {
		keys = append(keys, k.AudioAssetKey)
	}
	for _, key := range keys {
		if key == nil {
			continue
		}
		if _, err := asset.ParseKey(*key); err != nil {
			return fault.New(fault.Invalid, "invalid_asset_key")
		}
	}
	return nil
}

// keyOf picks the field of a source that the form has.
func keyOf(names timeline.Names, file, asset *string) *string {
	if names == timeline.AssetNames {
		return asset
	}
	return file
}

func (c *configWire) build(names timeline.Names) (timeline.Timeline, error) {
	var t timeline.Timeline
	for i, w := range c.Segments {
		source := keyOf(names, w.SourceFileKey, w.SourceAssetKey)
		if err := required("segments", i, field{names.SegmentSource, source != nil}, field{"order", w.Order != nil},
			field{"durationMs", w.DurationMs != nil}); err != nil {
			return t, err
		}
		points, err := pointsOf(w.VolumePoints, "segments[%d]", i)
		if err != nil {
			return t, err
		}
		s := timeline.Segment{
			SourceKey: *source, Order: int64(*w.Order), Duration: ms(*w.DurationMs),
			TrimStart: ms(or(w.TrimStartMs, 0)), TrimEnd: ms(or(w.TrimEndMs, 0)),
			Volume: or(w.VolumeScale, 1), Speed: or(w.SpeedScale, 1), Points: points,
		}
		if err := w.picture(i, &s); err != nil {
			return t, err
		}
		t.Segments = append(t.Segments, s)
	}
	err := c.rest(&t, names)
	return t, err
}

// rest reads what both modes share, music, directives, kind and quality, and
// checks the whole.
func (c *configWire) rest(t *timeline.Timeline, names timeline.Names) error {
	t.OutputKind = timeline.OutputKind(or(c.OutputKind, string(timeline.Video)))
	t.Quality = timeline.Quality(or(c.Quality, string(timeline.Medium)))
	t.Loudness = c.Loudness.loudness()
	t.Canvas = c.Canvas.canvas()
	for i, w := range c.BgmClips {
		audio := keyOf(names, w.AudioFileKey, w.AudioAssetKey)
		if err := required("bgmClips", i, field{names.ClipSource, audio != nil}, field{"startMs", w.StartMs != nil}); err != nil {
			return err
		}
		points, err := pointsOf(w.VolumePoints, "bgmClips[%d]", i)
		if err != nil {
			return err
		}
		t.Clips = append(t.Clips, timeline.Clip{
			SourceKey: *audio, Start: ms(*w.StartMs),
			SourceTrimStart: ms(or(w.SourceTrimStartMs, 0)),
			SourceTrimEnd:   ms(or(w.SourceTrimEndMs, 0)),
			Volume:          or(w.Volume, 1), Speed: or(w.Speed, 1),
			FadeIn: ms(or(w.FadeInMs, 0)), FadeOut: ms(or(w.FadeOutMs, 0)), Loop: or(w.Loop, false), End: ms(or(w.EndMs, 0)),
			Ducking: w.Ducking.ducking(), Points: points,
		})
	}
	for i, w := range c.SeparationDirectives {
		d, err := w.directive(i)
		if err != nil {
			return err
		}
		t.Directives = append(t.Directives, d)
	}
	return t.Validate(names)
}

func (w directiveWire) directive(i int) (timeline.Directive, error) {
	if err := required("separationDirectives", i, field{"id", w.ID != nil}, field{"rangeStartMs", w.RangeStartMs != nil},
		field{"rangeEndMs", w.RangeEndMs != nil}); err != nil {
		return timeline.Directive{}, err
	}
	d := timeline.Directive{
		ID:           *w.ID,
		Range:        timeline.Range{Start: ms(*w.RangeStartMs), End: ms(*w.RangeEndMs)},
		MuteOriginal: or(w.MuteOriginalSegmentAudio, false),
		SourceOffset: ms(or(w.SourceOffsetMs, 0)), AppliedSpeed: or(w.AppliedSpeedScale, 1),
	}
	for j, sel := range w.Selections {
		points, err := pointsOf(sel.VolumePoints, "separationDirectives[%d].selections[%d]", i, j)
		if err != nil {
			return d, err
		}
		s := sel.selection()
		s.Points = points
		d.Selections = append(d.Selections, s)
	}
	return d, nil
}

// selection reads how a stem is named: by a URL, which says alone which it is, or
// by its separation and itself. Neither is no stem's URL, and is answered so.
func (w selectionWire) selection() timeline.Selection {
	s := timeline.Selection{StemID: nonBlank(or(w.StemID, "")), SeparationID: strings.TrimSpace(or(w.SeparationJobID, "")),
		SourceKey: or(w.AudioURL, ""), Volume: or(w.Volume, 1)}
	switch {
	case s.SeparationID == "":
		s.SourceKey = nonBlank(s.SourceKey)
	case strings.TrimSpace(s.SourceKey) == "":
		s.SourceKey = ""
	}
	if !storable(s.SeparationID) || !storable(s.StemID) {
		s.SeparationID, s.StemID = "-", "-" // are as unknown
	}
	return s
}

func nonBlank(s string) string {
	if strings.TrimSpace(s) == "" {
		return "-"
	}
	return s
}

// field is one that may be absent.
type field struct {
	name  string
	given bool
}

// required names the first field that an item of a list lacks.
func required(list string, i int, fields ...field) error {
	for _, f := range fields {
		if !f.given {
			return fault.Invalidf("%s[%d].%s is required", list, i, f.name)
		}
	}
	return nil
}
