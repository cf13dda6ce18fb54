// Every rule about an edit that needs no file. Each error names the field as the client wrote it.

package timeline

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"cutroom/internal/base/fault"
)

// Names are the wire names that differ between the two render paths, so that one set of rules can name both fields.
type Names struct {
	SegmentSource string // the segment's source field
	ClipSource    string // the clip's source field
	// Legacy marks the single-video form, whose only length field is videoDurationMs. [Legacy] made its one segment.
	Legacy bool
}

// The names of the two render paths and of the single-video form.
var (
	MultipartNames = Names{SegmentSource: "sourceFileKey", ClipSource: "audioFileKey"}
	AssetNames     = Names{SegmentSource: "sourceAssetKey", ClipSource: "audioAssetKey"}
	LegacyNames    = Names{ClipSource: "audioFileKey", Legacy: true}
)

// Validate checks every rule that needs no file. The error is nil or a *fault.Error of kind Invalid whose sentence
// names the first invalid wire field, such as "segments[1].speedScale must be > 0".
func (t Timeline) Validate(names Names) error {
	if err := t.validateConfig(); err != nil {
		return err
	}
	for i, s := range t.Segments {
		if err := s.validate(names, i); err != nil {
			return err
		}
	}
	for i, c := range t.Clips {
		if err := c.validate(top.entry("bgmClips", i), names.ClipSource); err != nil {
			return err
		}
	}
	for i, d := range t.Directives {
		if err := d.validate(top.entry("separationDirectives", i)); err != nil {
			return err
		}
	}
	return t.Loudness.validate(top.in("loudness"))
}

func (t Timeline) validateConfig() error {
	return cmp.Or(
		top.check(len(t.Segments) > 0, "segments", "must not be empty"),
		atMost(top, "segments", len(t.Segments), MaxSegments),
		atMost(top, "bgmClips", len(t.Clips), MaxClips),
		atMost(top, "separationDirectives", len(t.Directives), MaxDirectives),
		top.check(t.OutputKind == Video || t.OutputKind == Audio, "outputKind", "must be %s or %s", Video, Audio),
		top.check(t.Quality == Low || t.Quality == Medium || t.Quality == High,
			"quality", "must be %s, %s or %s", Low, Medium, High),
		t.Canvas.validate(top.in("canvas")), t.FadeIn.validate(top.in("fadeIn")), t.FadeOut.validate(top.in("fadeOut")))
}

func (c *Canvas) validate(at fieldName) error {
	if c == nil {
		return nil
	}
	_, known := aspects[c.Aspect]
	long, short := c.MaxSide, c.ShortSide
	return cmp.Or(
		at.check(known || c.Aspect == SourceAspect, "aspect", "must be source, 16:9, 9:16, 1:1, 4:5, 4:3 or 3:4"),
		at.check(long == nil || minSide <= *long && *long <= maxSide, "maxSide", "must be %d..%d", minSide, maxSide),
		at.check(short == nil || minSide <= *short && *short <= maxShortSide && *short%2 == 0,
			"shortSide", "must be even and %d..%d", minSide, maxShortSide),
		at.check(short == nil || long == nil, "shortSide", "must not be set together with canvas.maxSide"),
		at.check(c.FrameRate == nil || slices.Contains(frameRates, *c.FrameRate),
			"frameRate", "must be 24, 25, 30, 50 or 60"),
		c.Fit.validate(at))
}

func (f Fit) validate(at fieldName) error {
	return at.check(f == Contain || f == Cover || f == Blur, "fit", "must be %s, %s or %s", Contain, Cover, Blur)
}

func (t *Transition) validate(at fieldName) error {
	if t == nil {
		return nil
	}
	moves := t.Kind.Moves()
	return cmp.Or(
		at.check(t.Kind == Dissolve || t.Kind.fades() || moves, "type", "must be %s, %s, %s, %s, %s or %s",
			Dissolve, FadeBlack, FadeWhite, Wipe, Slide, Push),
		withinMs(at, "durationMs", t.Duration, minTransition, MaxTransition),
		at.check(slices.Contains([]Direction{"", Left, Right, Up, Down}, t.Direction),
			"direction", "must be %s, %s, %s or %s", Left, Right, Up, Down),
		at.check(moves || t.Direction == "", "direction", "must be absent unless type is %s, %s or %s", Wipe, Slide, Push))
}

func (f *FilmFade) validate(at fieldName) error {
	if f == nil {
		return nil
	}
	return cmp.Or(at.check(f.Colour == Black || f.Colour == White, "color", "must be %s or %s", Black, White),
		withinMs(at, "durationMs", f.Duration, minTransition, MaxTransition))
}

func (s Segment) validate(names Names, i int) error {
	if names.Legacy {
		return top.check(s.Duration > 0, "videoDurationMs", "must be > 0")
	}
	at := top.entry("segments", i)
	focus := s.FocusOf()
	return cmp.Or(
		validateName(at, names.SegmentSource, s.SourceKey), at.check(s.Duration > 0, "durationMs", "must be > 0"),
		validateTrim(at, "trimStartMs", s.TrimStart, "trimEndMs", s.TrimEnd),
		validateScale(at, "volumeScale", s.Volume, 0, maxVolume),
		validateScale(at, "speedScale", s.Speed, minSpeed, maxSpeed),
		validatePoints(at, s.Points), s.Transition.validate(at.in("transition")), cmp.Or(s.Fit, Contain).validate(at),
		within(at, "focusX", focus.X, 0, 1), within(at, "focusY", focus.Y, 0, 1),
		at.check(slices.Contains([]int64{0, 90, 180, 270}, s.Rotate), "rotate", "must be 0, 90, 180 or 270"),
		s.Crop.validate(at.in("crop")), validateMoves(at, s.Moves), s.Adjust.validate(at.in("adjust")),
		s.validateSpeedPoints(at))
}

func (s Segment) validateSpeedPoints(at fieldName) error {
	points := s.SpeedPoints
	if len(points) == 0 {
		return nil
	}
	err := cmp.Or(at.check(len(points) >= minSpeedPoints, "speedPoints", "must have at least %d entries", minSpeedPoints),
		atMost(at, "speedPoints", len(points), maxSpeedPoints))
	before := time.Duration(-1)
	for i, p := range points {
		in := at.entry("speedPoints", i)
		err = cmp.Or(err, validateAt(in, p.At, before), in.check(i > 0 || p.At == 0, "atMs", "must be 0 in the first point"),
			within(in, "speed", p.Speed, minSpeed, maxSpeed))
		before = p.At
	}
	return cmp.Or(err, at.check(s.Speed == 1, "speedPoints", "must not be set together with speedScale"))
}

func (c Crop) validate(at fieldName) error {
	const slack = 1e-9 // of the sum of two decimal shares
	return cmp.Or(
		within(at, "left", c.Left, 0, maxCrop), within(at, "top", c.Top, 0, maxCrop),
		within(at, "right", c.Right, 0, maxCrop), within(at, "bottom", c.Bottom, 0, maxCrop),
		at.check(c.Left+c.Right <= maxCrop+slack, "right", "must be at most %g together with left", maxCrop),
		at.check(c.Top+c.Bottom <= maxCrop+slack, "bottom", "must be at most %g together with top", maxCrop))
}

func validateMoves(at fieldName, moves []Move) error {
	if err := atMost(at, "moves", len(moves), maxMoves); err != nil {
		return err
	}
	before := time.Duration(-1)
	for i, m := range moves {
		in := at.entry("moves", i)
		err := cmp.Or(validateAt(in, m.At, before),
			within(in, "scale", m.Scale, 1, maxScale), within(in, "x", m.X, 0, 1), within(in, "y", m.Y, 0, 1))
		if err != nil {
			return err
		}
		before = m.At
	}
	return nil
}

func (a Adjust) validate(at fieldName) error {
	return cmp.Or(
		within(at, "exposure", a.Exposure, -1, 1), within(at, "contrast", a.Contrast, -1, 1),
		within(at, "saturation", a.Saturation, -1, 1), within(at, "warmth", a.Warmth, -1, 1), within(at, "tint", a.Tint, -1, 1))
}

func (c Clip) validate(at fieldName, source string) error {
	return cmp.Or(
		validateName(at, source, c.SourceKey), notNegative(at, "startMs", c.Start),
		validateTrim(at, "sourceTrimStartMs", c.SourceTrimStart, "sourceTrimEndMs", c.SourceTrimEnd),
		validateScale(at, "volume", c.Volume, 0, maxVolume), validateScale(at, "speed", c.Speed, minSpeed, maxSpeed),
		withinMs(at, "fadeInMs", c.FadeIn, 0, maxFade), withinMs(at, "fadeOutMs", c.FadeOut, 0, maxFade),
		at.check(c.End >= 0 && !endsTooEarly(c.Start, c.End), "endMs", "must be 0 or > startMs"),
		c.Ducking.validate(at.in("ducking")),
		at.check(!c.Voice || c.Ducking == nil, "voice", "must not be set together with ducking"),
		validatePoints(at, c.Points))
}

func (d Directive) validate(at fieldName) error {
	err := cmp.Or(
		validateName(at, "id", d.ID), notNegative(at, "rangeStartMs", d.Start),
		at.check(d.End > d.Start, "rangeEndMs", "must be > rangeStartMs"), notNegative(at, "sourceOffsetMs", d.SourceOffset),
		atMost(at, "selections", len(d.Selections), maxSelections),
		validateScale(at, "appliedSpeedScale", d.AppliedSpeed, minSpeed, maxSpeed))
	if err != nil {
		return err
	}
	for j, s := range d.Selections {
		if err := s.validate(at.entry("selections", j)); err != nil {
			return err
		}
	}
	return nil
}

func (s Selection) validate(at fieldName) error {
	return cmp.Or(
		validateName(at, "stemId", s.StemID),
		at.check(s.SourceKey != "" || s.SeparationID != "", "audioUrl", "is required"),
		at.check(s.SourceKey == "" || s.SeparationID == "", "separationJobId", "must be absent beside audioUrl"),
		validateScale(at, "volume", s.Volume, 0, maxVolume), validatePoints(at, s.Points))
}

func (d *Ducking) validate(at fieldName) error {
	if d == nil {
		return nil
	}
	return cmp.Or(within(at, "amountDb", d.AmountDB, 0, maxDuckDB),
		withinMs(at, "attackMs", d.Attack, 0, maxAttack), withinMs(at, "releaseMs", d.Release, 0, maxRelease))
}

func (l *Loudness) validate(at fieldName) error {
	if l == nil {
		return nil
	}
	return cmp.Or(within(at, "targetLufs", l.TargetLUFS, minTargetLUFS, maxTargetLUFS),
		within(at, "maxTruePeakDb", l.MaxTruePeakDB, minTruePeakDB, maxTruePeakDB))
}

// validatePoints checks the volumePoints of a segment, clip or selection.
func validatePoints(at fieldName, points []Point) error {
	if err := atMost(at, "volumePoints", len(points), maxPoints); err != nil {
		return err
	}
	before := time.Duration(-1)
	for i, p := range points {
		in := at.entry("volumePoints", i)
		if err := cmp.Or(validateAt(in, p.At, before), within(in, "volume", p.Volume, 0, maxVolume)); err != nil {
			return err
		}
		before = p.At
	}
	return nil
}

// validateAt checks the time of a point and that it ascends from the point before. Two times that both saturated (see
// Milliseconds) count as in order: both lie beyond every segment.
func validateAt(at fieldName, t, before time.Duration) error {
	return cmp.Or(notNegative(at, "atMs", t), at.check(t > before || t == math.MaxInt64, "atMs", "must be > that of the point before it"))
}

// validateTrim checks a range of a source.
func validateTrim(at fieldName, startField string, start time.Duration, endField string, end time.Duration) error {
	return cmp.Or(notNegative(at, startField, start), notNegative(at, endField, end),
		at.check(!endsTooEarly(start, end), endField, "must be 0 or > %s", startField))
}

// endsTooEarly reports an end at or before its start. Two ends that both saturated (see Milliseconds) count as in
// order: both lie beyond every source.
func endsTooEarly(start, end time.Duration) bool {
	return end != 0 && end != math.MaxInt64 && end <= start
}

// validateName checks an id or a name that the client chose.
func validateName(at fieldName, field, name string) error {
	return cmp.Or(at.check(name != "", field, "is required"),
		at.check(len(name) <= maxName, field, "must have at most %d bytes", maxName))
}

// validateScale checks a volume or a speed. If lowest is positive and v is not, the error says "> 0".
func validateScale(at fieldName, field string, v, lowest, highest float64) error {
	return cmp.Or(
		at.check(!math.IsNaN(v) && !math.IsInf(v, 0), field, "must be a finite number"),
		at.check(v > 0 || lowest <= 0, field, "must be > 0"),
		at.check(v >= lowest, field, "must be >= %g", lowest),
		at.check(v <= highest, field, "must be <= %g", highest))
}

// fieldName returns the path of a field of the object being checked, as on the wire.
type fieldName func(field string) string

// top names the fields of the timeline itself.
var top fieldName = func(field string) string { return field }

// in names the fields of an object in an object.
func (at fieldName) in(object string) fieldName {
	return func(field string) string { return at(object + "." + field) }
}

// entry names the fields of an object in a list of an object.
func (at fieldName) entry(list string, i int) fieldName {
	return func(field string) string { return at(fmt.Sprintf("%s[%d].%s", list, i, field)) }
}

// check returns nil if a rule of a field is kept, and otherwise the fault that states the rule.
func (at fieldName) check(kept bool, field, rule string, args ...any) error {
	if kept {
		return nil
	}
	return fault.Invalidf("%s %s", at(field), fmt.Sprintf(rule, args...))
}

func atMost(at fieldName, list string, n, limit int) error {
	return at.check(n <= limit, list, "must have at most %d entries", limit)
}

func notNegative(at fieldName, field string, d time.Duration) error {
	return at.check(d >= 0, field, "must be >= 0")
}

// within checks that a number lies in lowest..highest; NaN does not.
func within(at fieldName, field string, v, lowest, highest float64) error {
	return at.check(v >= lowest && v <= highest, field, "must be %g..%g", lowest, highest)
}

func withinMs(at fieldName, field string, d, lowest, highest time.Duration) error {
	return at.check(d >= lowest && d <= highest, field, "must be %d..%d", lowest.Milliseconds(), highest.Milliseconds())
}
