// The wire form of an edit, RenderConfig and RenderConfigV3, and its conversion to a timeline. The rules are in package
// timeline; this file only says which fields must be present.

package httpapi

import (
	"cmp"
	"reflect"
	"strings"
	"time"

	"cutroom/internal/base/fault"
	"cutroom/internal/domain/asset"
	"cutroom/internal/domain/render"
	"cutroom/internal/film/timeline"
)

// configWire is the wire form of RenderConfig and RenderConfigV3. Pointers distinguish an absent field from a zero. A
// required field must have a value where its endpoint accepts it.
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
	SourceFileKey  *string  `json:"sourceFileKey" required:"true"`
	SourceAssetKey *string  `json:"sourceAssetKey" required:"true"`
	Order          *integer `json:"order" required:"true"`
	DurationMs     *integer `json:"durationMs" required:"true"`
	TrimStartMs    *integer `json:"trimStartMs"`
	TrimEndMs      *integer `json:"trimEndMs"`
	VolumeScale    *float64 `json:"volumeScale"`
	SpeedScale     *float64 `json:"speedScale"`

	VolumePoints []pointWire     `json:"volumePoints"`
	Transition   *transitionWire `json:"transition"`
	Fit          *string         `json:"fit"`
	FocusX       *float64        `json:"focusX"`
	FocusY       *float64        `json:"focusY"`

	Rotate *integer    `json:"rotate"`
	Mirror *bool       `json:"mirror"`
	Crop   *cropWire   `json:"crop"`
	Moves  []moveWire  `json:"moves"`
	Adjust *adjustWire `json:"adjust"`

	Reverse     *bool            `json:"reverse"`
	Smooth      *bool            `json:"smooth"`
	SpeedPoints []speedPointWire `json:"speedPoints"`
}

type clipWire struct {
	AudioFileKey      *string  `json:"audioFileKey" required:"true"`
	AudioAssetKey     *string  `json:"audioAssetKey" required:"true"`
	StartMs           *integer `json:"startMs" required:"true"`
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
	ID                       *string         `json:"id" required:"true"`
	RangeStartMs             *integer        `json:"rangeStartMs" required:"true"`
	RangeEndMs               *integer        `json:"rangeEndMs" required:"true"`
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
	AtMs   *integer `json:"atMs" required:"true"`
	Volume *float64 `json:"volume" required:"true"`
}

type cropWire struct {
	Left   *float64 `json:"left"`
	Top    *float64 `json:"top"`
	Right  *float64 `json:"right"`
	Bottom *float64 `json:"bottom"`
}

type moveWire struct {
	AtMs  *integer `json:"atMs" required:"true"`
	Scale *float64 `json:"scale"`
	X     *float64 `json:"x"`
	Y     *float64 `json:"y"`
}

type speedPointWire struct {
	AtMs  *integer `json:"atMs" required:"true"`
	Speed *float64 `json:"speed" required:"true"`
}

type adjustWire struct {
	Exposure   *float64 `json:"exposure"`
	Contrast   *float64 `json:"contrast"`
	Saturation *float64 `json:"saturation"`
	Warmth     *float64 `json:"warmth"`
	Tint       *float64 `json:"tint"`
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
	Type       *string  `json:"type" required:"true"`
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

// each converts the items of a list.
func each[W, T any](list []W, convert func(W) T) []T {
	var out []T
	for _, w := range list {
		out = append(out, convert(w))
	}
	return out
}

// optional converts an object, and returns nil for an absent one.
func optional[W, T any](w *W, convert func(W) T) *T {
	if w == nil {
		return nil
	}
	t := convert(*w)
	return &t
}

// multipartAbsent and referenceAbsent list the fields that a render does not accept if its sources are uploaded parts
// (multipartAbsent) or asset keys (referenceAbsent).
var (
	multipartAbsent = []string{"sourceAssetKey", "audioAssetKey"}
	referenceAbsent = []string{"sourceFileKey", "audioFileKey", "videoDurationMs"}
)

// multipart sets the timeline of a multipart submission.
func (c *configWire) multipart(sub *render.Submission) (err error) {
	if len(c.Segments) > 0 || c.VideoDurationMs == nil {
		if c.Segments == nil {
			return &fault.Error{Kind: fault.Invalid, Sentence: "segments or videoDurationMs is required", Field: "segments"}
		}
		sub.Timeline, err = c.complete(timeline.Timeline{}, timeline.MultipartNames, multipartAbsent)
		return err
	}
	const key = "video"
	sub.Legacy = true
	sub.Timeline, err = c.complete(timeline.Legacy(key, ms(*c.VideoDurationMs)), timeline.LegacyNames, multipartAbsent)
	if err == nil && !sub.Has(key) {
		err = fault.Invalidf("video is required")
	}
	return err
}

// referenced builds a submission whose sources are assets.
func (c *configWire) referenced() (sub render.Submission, err error) {
	if c.Segments == nil {
		return sub, fault.Invalidf("segments is required")
	}
	if sub.Assets, err = c.assets(); err != nil {
		return sub, err
	}
	sub.Timeline, err = c.complete(timeline.Timeline{}, timeline.AssetNames, referenceAbsent)
	return sub, err
}

// assets parses the asset keys. complete reports missing ones, by field name.
func (c *configWire) assets() (map[string]asset.Key, error) {
	keys := each(c.Segments, func(w segmentWire) *string { return w.SourceAssetKey })
	keys = append(keys, each(c.BgmClips, func(w clipWire) *string { return w.AudioAssetKey })...)
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

// complete adds what the config describes to the timeline t, and validates it. For a config without segments, t already
// has the film's only segment.
func (c *configWire) complete(t timeline.Timeline, names timeline.Names, absent []string) (timeline.Timeline, error) {
	if err := missing(reflect.ValueOf(c).Elem(), "", absent); err != nil {
		return t, err
	}
	t.Segments = append(t.Segments, each(c.Segments, segmentWire.segment)...)
	t.Clips = each(c.BgmClips, clipWire.clip)
	t.Directives = each(c.SeparationDirectives, directiveWire.directive)
	t.OutputKind = timeline.OutputKind(or(c.OutputKind, string(timeline.Video)))
	t.Quality = timeline.Quality(or(c.Quality, string(timeline.Medium)))
	t.Loudness, t.Canvas = optional(c.Loudness, loudnessWire.loudness), optional(c.Canvas, canvasWire.canvas)
	t.FadeIn, t.FadeOut = optional(c.FadeIn, filmFadeWire.fade), optional(c.FadeOut, filmFadeWire.fade)
	return t, t.Validate(names)
}

func (w segmentWire) segment() timeline.Segment {
	s := timeline.Segment{
		SourceKey: *cmp.Or(w.SourceFileKey, w.SourceAssetKey), Order: int64(*w.Order), Duration: ms(*w.DurationMs),
		TrimStart: msOr(w.TrimStartMs, 0), TrimEnd: msOr(w.TrimEndMs, 0),
		Volume: or(w.VolumeScale, 1), Speed: or(w.SpeedScale, 1), Points: each(w.VolumePoints, pointWire.point),
		Transition: optional(w.Transition, transitionWire.transition),
		Rotate:     int64(or(w.Rotate, 0)), Mirror: or(w.Mirror, false), Crop: or(w.Crop, cropWire{}).crop(),
		Moves: each(w.Moves, moveWire.move), Adjust: or(w.Adjust, adjustWire{}).adjust(),
		Reverse: or(w.Reverse, false), Smooth: or(w.Smooth, false), SpeedPoints: each(w.SpeedPoints, speedPointWire.point),
	}
	if w.Fit != nil {
		s.Fit = timeline.Fit(nonBlank(*w.Fit))
	}
	if w.FocusX != nil || w.FocusY != nil {
		s.Focus = &timeline.Focus{X: or(w.FocusX, 0.5), Y: or(w.FocusY, 0.5)}
	}
	return s
}

func (w clipWire) clip() timeline.Clip {
	return timeline.Clip{
		SourceKey: *cmp.Or(w.AudioFileKey, w.AudioAssetKey), Start: ms(*w.StartMs), End: msOr(w.EndMs, 0),
		SourceTrimStart: msOr(w.SourceTrimStartMs, 0), SourceTrimEnd: msOr(w.SourceTrimEndMs, 0),
		Volume: or(w.Volume, 1), Speed: or(w.Speed, 1), FadeIn: msOr(w.FadeInMs, 0), FadeOut: msOr(w.FadeOutMs, 0),
		Loop: or(w.Loop, false), Ducking: optional(w.Ducking, duckingWire.ducking), Voice: or(w.Voice, false),
		Points: each(w.VolumePoints, pointWire.point),
	}
}

func (w directiveWire) directive() timeline.Directive {
	return timeline.Directive{
		ID:           *w.ID,
		Range:        timeline.Range{Start: ms(*w.RangeStartMs), End: ms(*w.RangeEndMs)},
		MuteOriginal: or(w.MuteOriginalSegmentAudio, false),
		Selections:   each(w.Selections, selectionWire.selection),
		SourceOffset: msOr(w.SourceOffsetMs, 0), AppliedSpeed: or(w.AppliedSpeedScale, 1),
	}
}

// selection returns the stem that w names, by URL or by the ids of separation and stem. If both are missing,
// resolving the stem refuses "-" as an invalid URL.
func (w selectionWire) selection() timeline.Selection {
	s := timeline.Selection{StemID: nonBlank(or(w.StemID, "")), SeparationID: strings.TrimSpace(or(w.SeparationJobID, "")),
		SourceKey: or(w.AudioURL, ""), Volume: or(w.Volume, 1), Points: each(w.VolumePoints, pointWire.point)}
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

func (w pointWire) point() timeline.Point {
	return timeline.Point{At: ms(*w.AtMs), Volume: *w.Volume}
}

func (w cropWire) crop() timeline.Crop {
	return timeline.Crop{Left: or(w.Left, 0), Top: or(w.Top, 0), Right: or(w.Right, 0), Bottom: or(w.Bottom, 0)}
}

func (w moveWire) move() timeline.Move {
	m := timeline.DefaultMove
	m.At, m.Scale, m.X, m.Y = ms(*w.AtMs), or(w.Scale, m.Scale), or(w.X, m.X), or(w.Y, m.Y)
	return m
}

func (w speedPointWire) point() timeline.SpeedPoint {
	return timeline.SpeedPoint{At: ms(*w.AtMs), Speed: *w.Speed}
}

func (w adjustWire) adjust() timeline.Adjust {
	return timeline.Adjust{Exposure: or(w.Exposure, 0), Contrast: or(w.Contrast, 0), Saturation: or(w.Saturation, 0),
		Warmth: or(w.Warmth, 0), Tint: or(w.Tint, 0)}
}

func (w duckingWire) ducking() timeline.Ducking {
	d := timeline.DefaultDucking
	d.AmountDB, d.Attack, d.Release = or(w.AmountDb, d.AmountDB), msOr(w.AttackMs, d.Attack), msOr(w.ReleaseMs, d.Release)
	return d
}

func (w loudnessWire) loudness() timeline.Loudness {
	l := timeline.DefaultLoudness
	l.TargetLUFS, l.MaxTruePeakDB = or(w.TargetLufs, l.TargetLUFS), or(w.MaxTruePeakDb, l.MaxTruePeakDB)
	return l
}

func (w canvasWire) canvas() timeline.Canvas {
	return timeline.Canvas{
		Aspect:    timeline.Aspect(or(w.Aspect, string(timeline.SourceAspect))),
		MaxSide:   (*int64)(w.MaxSide),
		ShortSide: (*int64)(w.ShortSide),
		FrameRate: (*int64)(w.FrameRate),
		Fit:       timeline.Fit(or(w.Fit, string(timeline.Contain))),
	}
}

func (w filmFadeWire) fade() timeline.FilmFade {
	f := timeline.DefaultFilmFade
	f.Colour, f.Duration = timeline.Colour(or(w.Color, string(f.Colour))), msOr(w.DurationMs, f.Duration)
	return f
}

func (w transitionWire) transition() timeline.Transition {
	t := timeline.Transition{Kind: timeline.TransitionKind(*w.Type), Duration: msOr(w.DurationMs, timeline.DefaultTransition)}
	switch {
	case w.Direction != nil:
		t.Direction = timeline.Direction(nonBlank(*w.Direction))
	case t.Kind.Moves():
		t.Direction = timeline.Left
	}
	return t
}
