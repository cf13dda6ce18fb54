package timeline

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"cutroom/internal/fault"
)

// Names are the wire names that differ between the two render paths, so that one set of rules can name the
// field that the client really sent.
type Names struct {
	SegmentSource string // the segment's source field
	ClipSource    string // the clip's source field
	// Legacy marks the single-video form, whose only length field is videoDurationMs. [Legacy] made its one
	// segment; the client did not send it.
	Legacy bool
}

// The names of the two render paths and of the single-video form.
var (
	MultipartNames = Names{SegmentSource: "sourceFileKey", ClipSource: "audioFileKey"}
	AssetNames     = Names{SegmentSource: "sourceAssetKey", ClipSource: "audioAssetKey"}
	LegacyNames    = Names{SegmentSource: "video", ClipSource: "audioFileKey", Legacy: true}
)

// Validate checks every rule that needs no file. The error is nil or a *fault.Error of kind Invalid whose
// sentence names the first invalid wire field, such as "segments[1].speedScale must be > 0".
func (t Timeline) Validate(names Names) error {
	if err := t.validateConfig(); err != nil {
		return err
	}
	for i := range t.Segments {
		if err := t.Segments[i].validate(names, i); err != nil {
			return err
		}
	}
	for i := range t.Clips {
		if err := t.Clips[i].validate(names, i); err != nil {
			return err
		}
	}
	for i := range t.Directives {
		if err := t.Directives[i].validate(i); err != nil {
			return err
		}
	}
	if t.Loudness != nil {
		return t.Loudness.validate()
	}
	return nil
}

func (t Timeline) validateConfig() error {
	switch {
	case len(t.Segments) == 0:
		return fault.Invalidf("segments must not be empty")
	case len(t.Segments) > MaxSegments:
		return fault.Invalidf("segments must have at most %d entries", MaxSegments)
	case len(t.Clips) > MaxClips:
		return fault.Invalidf("bgmClips must have at most %d entries", MaxClips)
	case len(t.Directives) > MaxDirectives:
		return fault.Invalidf("separationDirectives must have at most %d entries", MaxDirectives)
	case t.OutputKind != Video && t.OutputKind != Audio:
		return fault.Invalidf("outputKind must be %s or %s", Video, Audio)
	case t.Quality != Low && t.Quality != Medium && t.Quality != High:
		return fault.Invalidf("quality must be %s, %s or %s", Low, Medium, High)
	}
	if err := t.Canvas.validate(); err != nil {
		return err
	}
	return cmp.Or(t.FadeIn.validate("fadeIn"), t.FadeOut.validate("fadeOut"))
}

func (c *Canvas) validate() error {
	if c == nil {
		return nil
	}
	if _, known := aspects[c.Aspect]; !known && c.Aspect != SourceAspect {
		return fault.Invalidf("canvas.aspect must be source, 16:9, 9:16, 1:1, 4:5, 4:3 or 3:4")
	}
	if c.MaxSide != nil && (*c.MaxSide < minSide || *c.MaxSide > maxSide) {
		return fault.Invalidf("canvas.maxSide must be %d..%d", minSide, maxSide)
	}
	if s := c.ShortSide; s != nil && (*s < minSide || *s > maxShortSide || *s%2 != 0) {
		return fault.Invalidf("canvas.shortSide must be even and %d..%d", minSide, maxShortSide)
	}
	if c.ShortSide != nil && c.MaxSide != nil {
		return fault.Invalidf("canvas.shortSide must not be set together with canvas.maxSide")
	}
	if c.FrameRate != nil && !slices.Contains(frameRates, *c.FrameRate) {
		return fault.Invalidf("canvas.frameRate must be 24, 25, 30, 50 or 60")
	}
	return c.Fit.validate("canvas.fit")
}

func (f Fit) validate(field string) error {
	switch f {
	case Contain, Cover, Blur:
		return nil
	}
	return fault.Invalidf("%s must be %s, %s or %s", field, Contain, Cover, Blur)
}

func (t *Transition) validate(field string) error {
	if t == nil {
		return nil
	}
	if t.Kind != Dissolve && !t.Kind.fades() && !t.Kind.Moves() {
		return fault.Invalidf("%s.type must be %s, %s, %s, %s, %s or %s", field, Dissolve, FadeBlack, FadeWhite, Wipe, Slide, Push)
	}
	if err := validateFade(field, t.Duration); err != nil {
		return err
	}
	switch t.Direction {
	case Left, Right, Up, Down:
		if !t.Kind.Moves() {
			return fault.Invalidf("%s.direction must be absent unless type is %s, %s or %s", field, Wipe, Slide, Push)
		}
	case "":
	default:
		return fault.Invalidf("%s.direction must be %s, %s, %s or %s", field, Left, Right, Up, Down)
	}
	return nil
}

func (f *FilmFade) validate(field string) error {
	switch {
	case f == nil:
		return nil
	case f.Colour != Black && f.Colour != White:
		return fault.Invalidf("%s.color must be %s or %s", field, Black, White)
	}
	return validateFade(field, f.Duration)
}

// validateFade checks the duration of a transition or of a fade at an end of the film.
func validateFade(field string, d time.Duration) error {
	if d < minTransition || d > MaxTransition {
		return fault.Invalidf("%s.durationMs must be %d..%d", field, minTransition.Milliseconds(), MaxTransition.Milliseconds())
	}
	return nil
}

// validatePicture checks how the segment joins the previous one and fits the canvas.
func (s *Segment) validatePicture(at func(field string) string) error {
	if err := s.Transition.validate(at("transition")); err != nil {
		return err
	}
	if s.Fit != "" {
		if err := s.Fit.validate(at("fit")); err != nil {
			return err
		}
	}
	focus := s.FocusOf()
	return cmp.Or(outside(at("focusX"), focus.X, 0, 1), outside(at("focusY"), focus.Y, 0, 1))
}

// outside returns nil for a number in lowest..highest.
func outside(field string, v, lowest, highest float64) error {
	if within(v, lowest, highest) {
		return nil
	}
	return fault.Invalidf("%s must be %g..%g", field, lowest, highest)
}

func (s *Segment) validate(names Names, i int) error {
	if names.Legacy {
		if s.Duration <= 0 {
			return fault.Invalidf("videoDurationMs must be > 0")
		}
		if s.SourceKey == "" {
			return fault.Invalidf("%s is required", names.SegmentSource)
		}
	}
	at := func(field string) string { return indexed("segments", i) + "." + field }
	switch {
	case s.SourceKey == "":
		return fault.Invalidf("%s is required", at(names.SegmentSource))
	case len(s.SourceKey) > maxName:
		return tooLong(at(names.SegmentSource))
	case s.Duration <= 0:
		return fault.Invalidf("%s must be > 0", at("durationMs"))
	case s.TrimStart < 0:
		return fault.Invalidf("%s must be >= 0", at("trimStartMs"))
	case s.TrimEnd < 0:
		return fault.Invalidf("%s must be >= 0", at("trimEndMs"))
	case endsTooEarly(s.TrimStart, s.TrimEnd):
		return fault.Invalidf("%s must be 0 or > trimStartMs", at("trimEndMs"))
	}
	return cmp.Or(outOfRange(at, "volumeScale", s.Volume, 0, maxVolume), outOfRange(at, "speedScale", s.Speed, minSpeed, maxSpeed),
		validatePoints(at, s.Points), s.validatePicture(at))
}

func (c *Clip) validate(names Names, i int) error {
	at := func(field string) string { return indexed("bgmClips", i) + "." + field }
	switch {
	case c.SourceKey == "":
		return fault.Invalidf("%s is required", at(names.ClipSource))
	case len(c.SourceKey) > maxName:
		return tooLong(at(names.ClipSource))
	case c.Start < 0:
		return fault.Invalidf("%s must be >= 0", at("startMs"))
	case c.SourceTrimStart < 0:
		return fault.Invalidf("%s must be >= 0", at("sourceTrimStartMs"))
	case c.SourceTrimEnd < 0:
		return fault.Invalidf("%s must be >= 0", at("sourceTrimEndMs"))
	case endsTooEarly(c.SourceTrimStart, c.SourceTrimEnd):
		return fault.Invalidf("%s must be 0 or > sourceTrimStartMs", at("sourceTrimEndMs"))
	}
	return cmp.Or(outOfRange(at, "volume", c.Volume, 0, maxVolume), outOfRange(at, "speed", c.Speed, minSpeed, maxSpeed),
		c.validateSound(at))
}

func (d *Directive) validate(i int) error {
	at := func(field string) string { return indexed("separationDirectives", i) + "." + field }
	switch {
	case d.ID == "":
		return fault.Invalidf("%s is required", at("id"))
	case len(d.ID) > maxName:
		return tooLong(at("id"))
	case d.Range.Start < 0:
		return fault.Invalidf("%s must be >= 0", at("rangeStartMs"))
	case d.Range.End <= d.Range.Start:
		return fault.Invalidf("%s must be > rangeStartMs", at("rangeEndMs"))
	case d.SourceOffset < 0:
		return fault.Invalidf("%s must be >= 0", at("sourceOffsetMs"))
	case len(d.Selections) > maxSelections:
		return fault.Invalidf("%s must have at most %d entries", at("selections"), maxSelections)
	}
	if err := outOfRange(at, "appliedSpeedScale", d.AppliedSpeed, minSpeed, maxSpeed); err != nil {
		return err
	}
	for j := range d.Selections {
		s := &d.Selections[j]
		in := func(field string) string { return at(indexed("selections", j) + "." + field) }
		switch {
		case s.StemID == "":
			return fault.Invalidf("%s is required", in("stemId"))
		case len(s.StemID) > maxName:
			return tooLong(in("stemId"))
		case s.SourceKey == "" && s.SeparationID == "":
			return fault.Invalidf("%s is required", in("audioUrl"))
		case s.SourceKey != "" && s.SeparationID != "":
			return fault.Invalidf("%s must be absent beside audioUrl", in("separationJobId"))
		}
		if err := cmp.Or(outOfRange(in, "volume", s.Volume, 0, maxVolume), validatePoints(in, s.Points)); err != nil {
			return err
		}
	}
	return nil
}

// indexed returns the path of an entry of a list.
func indexed(list string, i int) string { return fmt.Sprintf("%s[%d]", list, i) }

func tooLong(field string) error {
	return fault.Invalidf("%s must have at most %d bytes", field, maxName)
}

// endsTooEarly reports an end at or before its start. Two ends that both saturated (see Milliseconds) count as
// in order: their true distance is unknown and both lie beyond every source.
func endsTooEarly(start, end time.Duration) bool {
	return end != 0 && end != math.MaxInt64 && end <= start
}

// outOfRange returns nil for a finite number in lowest..highest, else an error with the broken limit. If lowest is
// positive and v is not, the error says "> 0".
func outOfRange(at fieldName, field string, v, lowest, highest float64) error {
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return fault.Invalidf("%s must be a finite number", at(field))
	case v <= 0 && lowest > 0:
		return fault.Invalidf("%s must be > 0", at(field))
	case v < lowest:
		return fault.Invalidf("%s must be >= %g", at(field), lowest)
	case v > highest:
		return fault.Invalidf("%s must be <= %g", at(field), highest)
	}
	return nil
}
