package httpapi

import (
	"fmt"
	"strings"
	"time"

	"cutroom/internal/asset"
	"cutroom/internal/fault"
	"cutroom/internal/render"
	"cutroom/internal/timeline"
)

// configWire is the wire form of RenderConfig and RenderConfigV3. Pointers distinguish an absent
// field from a zero.
type configWire struct {
	VideoDurationMs      *integer        `json:"videoDurationMs"`
	Segments             []segmentWire   `json:"segments"`
	BgmClips             []clipWire      `json:"bgmClips"`
	SeparationDirectives []directiveWire `json:"separationDirectives"`
	OutputKind           *string         `json:"outputKind"`
	Quality              *string         `json:"quality"`
	Loudness             *loudnessWire   `json:"loudness"`
	Canvas               *canvasWire     `json:"canvas"`
	FadeIn               *filmFadeWire   `json:"fadeIn"`
	FadeOut              *filmFadeWire   `json:"fadeOut"`
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
	Voice        *bool        `json:"voice"`
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

type pointWire struct {
	AtMs   *integer `json:"atMs"`
	Volume *float64 `json:"volume"`
}

type duckingWire struct {
	AmountDb  *float64 `json:"amountDb"`
	AttackMs  *integer `json:"attackMs"`
	ReleaseMs *integer `json:"releaseMs"`
}

type loudnessWire struct {
	TargetLufs    *float64 `json:"targetLufs"`
	MaxTruePeakDb *float64 `json:"maxTruePeakDb"`
}

type canvasWire struct {
	Aspect    *string  `json:"aspect"`
	MaxSide   *integer `json:"maxSide"`
	ShortSide *integer `json:"shortSide"`
	FrameRate *integer `json:"frameRate"`
	Fit       *string  `json:"fit"`
}

type transitionWire struct {
	Type       *string  `json:"type"`
	DurationMs *integer `json:"durationMs"`
	Direction  *string  `json:"direction"`
}

type filmFadeWire struct {
	Color      *string  `json:"color"`
	DurationMs *integer `json:"durationMs"`
}

func ms(n integer) time.Duration { return timeline.Milliseconds(int64(n)) }

// msOr converts an optional time in milliseconds.
func msOr(n *integer, fallback time.Duration) time.Duration {
	if n == nil {
		return fallback
	}
	return ms(*n)
}

func or[T any](p *T, fallback T) T {
	if p == nil {
		return fallback
	}
	return *p
}

// timeline builds the timeline of a multipart submission.
func (c *configWire) timeline(sub render.Submission) (timeline.Timeline, error) {
	if len(c.Segments) > 0 || c.VideoDurationMs == nil {
		if c.Segments == nil {
			return timeline.Timeline{}, &fault.Error{Kind: fault.Invalid, Sentence: "segments or videoDurationMs is required", Field: "segments"}
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

// referenced builds a submission whose sources are assets.
func (c *configWire) referenced() (sub render.Submission, err error) {
	if c.Segments == nil {
		return sub, fault.Invalidf("segments is required")
	}
	if sub.Assets, err = c.assets(); err != nil {
		return sub, err
	}
	sub.Timeline, err = c.build(timeline.AssetNames)
	return sub, err
}

// assets parses the asset keys. build reports missing ones, by field name.
func (c *configWire) assets() (map[string]asset.Key, error) {
	keys := make([]*string, 0, len(c.Segments)+len(c.BgmClips))
	for _, s := range c.Segments {
		keys = append(keys, s.SourceAssetKey)
	}
	for _, k := range c.BgmClips {
		keys = append(keys, k.AudioAssetKey)
	}
	parsed := map[string]asset.Key{}
	for _, key := range keys {
		if key == nil {
			continue
		}
		var err error
		if parsed[*key], err = asset.ParseKey(*key); err != nil {
			return nil, err
		}
	}
	return parsed, nil
}

// keyOf selects the field that names a source in this form.
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
			TrimStart: msOr(w.TrimStartMs, 0), TrimEnd: msOr(w.TrimEndMs, 0),
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

// rest reads what both forms share: music, directives, kind and quality. Then it validates the timeline.
func (c *configWire) rest(t *timeline.Timeline, names timeline.Names) error {
	t.OutputKind = timeline.OutputKind(or(c.OutputKind, string(timeline.Video)))
	t.Quality = timeline.Quality(or(c.Quality, string(timeline.Medium)))
	t.Loudness = c.Loudness.loudness()
	t.Canvas = c.Canvas.canvas()
	t.FadeIn, t.FadeOut = c.FadeIn.fade(), c.FadeOut.fade()
	for i, w := range c.BgmClips {
		clip, err := w.clip(i, names)
		if err != nil {
			return err
		}
		t.Clips = append(t.Clips, clip)
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

func (w clipWire) clip(i int, names timeline.Names) (timeline.Clip, error) {
	audio := keyOf(names, w.AudioFileKey, w.AudioAssetKey)
	if err := required("bgmClips", i, field{names.ClipSource, audio != nil}, field{"startMs", w.StartMs != nil}); err != nil {
		return timeline.Clip{}, err
	}
	points, err := pointsOf(w.VolumePoints, "bgmClips[%d]", i)
	return timeline.Clip{
		SourceKey: *audio, Start: ms(*w.StartMs), End: msOr(w.EndMs, 0),
		SourceTrimStart: msOr(w.SourceTrimStartMs, 0), SourceTrimEnd: msOr(w.SourceTrimEndMs, 0),
		Volume: or(w.Volume, 1), Speed: or(w.Speed, 1), FadeIn: msOr(w.FadeInMs, 0), FadeOut: msOr(w.FadeOutMs, 0),
		Loop: or(w.Loop, false), Ducking: w.Ducking.ducking(), Voice: or(w.Voice, false), Points: points,
	}, err
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
		SourceOffset: msOr(w.SourceOffsetMs, 0), AppliedSpeed: or(w.AppliedSpeedScale, 1),
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

// selection returns the stem that w names, by URL or by the ids of separation and stem. If both are missing,
// resolving the stem refuses "-" as an invalid URL.
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
		s.SeparationID, s.StemID = "-", "-" // ids that no separation and no stem has
	}
	return s
}

func nonBlank(s string) string {
	if strings.TrimSpace(s) == "" {
		return "-"
	}
	return s
}

// field is a required field of an object.
type field struct {
	name  string
	given bool
}

// required returns an error that names the first missing field of the i-th item of a list.
func required(list string, i int, fields ...field) error {
	for _, f := range fields {
		if !f.given {
			return fault.Invalidf("%s[%d].%s is required", list, i, f.name)
		}
	}
	return nil
}

// pointsOf converts the volumePoints of an object. object is the format of the object's path, for the indexes.
func pointsOf(wire []pointWire, object string, indexes ...any) ([]timeline.Point, error) {
	var points []timeline.Point
	for i, w := range wire {
		list := fmt.Sprintf(object, indexes...) + ".volumePoints"
		if err := required(list, i, field{"atMs", w.AtMs != nil}, field{"volume", w.Volume != nil}); err != nil {
			return nil, err
		}
		points = append(points, timeline.Point{At: ms(*w.AtMs), Volume: *w.Volume})
	}
	return points, nil
}

// ducking returns nil for an absent field.
func (w *duckingWire) ducking() *timeline.Ducking {
	if w == nil {
		return nil
	}
	d := timeline.DefaultDucking
	d.AmountDB, d.Attack, d.Release = or(w.AmountDb, d.AmountDB), msOr(w.AttackMs, d.Attack), msOr(w.ReleaseMs, d.Release)
	return &d
}

// loudness returns nil for an absent field.
func (w *loudnessWire) loudness() *timeline.Loudness {
	if w == nil {
		return nil
	}
	l := timeline.DefaultLoudness
	l.TargetLUFS, l.MaxTruePeakDB = or(w.TargetLufs, l.TargetLUFS), or(w.MaxTruePeakDb, l.MaxTruePeakDB)
	return &l
}

// canvas returns nil, which means the first segment's picture, for an absent field.
func (w *canvasWire) canvas() *timeline.Canvas {
	if w == nil {
		return nil
	}
	return &timeline.Canvas{
		Aspect:    timeline.Aspect(or(w.Aspect, string(timeline.SourceAspect))),
		MaxSide:   (*int64)(w.MaxSide),
		ShortSide: (*int64)(w.ShortSide),
		FrameRate: (*int64)(w.FrameRate),
		Fit:       timeline.Fit(or(w.Fit, string(timeline.Contain))),
	}
}

// fade returns nil for an absent field.
func (w *filmFadeWire) fade() *timeline.FilmFade {
	if w == nil {
		return nil
	}
	f := timeline.DefaultFilmFade
	f.Colour, f.Duration = timeline.Colour(or(w.Color, string(f.Colour))), msOr(w.DurationMs, f.Duration)
	return &f
}

// picture sets how the i-th segment joins the previous one and fits the canvas.
func (w *segmentWire) picture(i int, s *timeline.Segment) error {
	if t := w.Transition; t != nil {
		if t.Type == nil {
			return fault.Invalidf("segments[%d].transition.type is required", i)
		}
		kind := timeline.TransitionKind(*t.Type)
		s.Transition = &timeline.Transition{Kind: kind, Duration: msOr(t.DurationMs, timeline.DefaultTransition)}
		switch {
		case t.Direction != nil:
			s.Transition.Direction = timeline.Direction(nonBlank(*t.Direction))
		case kind.Moves():
			s.Transition.Direction = timeline.Left
		}
	}
	if w.Fit != nil {
		s.Fit = timeline.Fit(nonBlank(*w.Fit))
	}
	if w.FocusX != nil || w.FocusY != nil {
		s.Focus = &timeline.Focus{X: or(w.FocusX, 0.5), Y: or(w.FocusY, 0.5)}
	}
	return nil
}
