package timeline

import (
	"math"
	"time"

	"cutroom/internal/fault"
)

// Limits of the sound's fields, part of the API's contract.
const (
	maxFade    = 30 * time.Second
	maxPoints  = 64 // of one envelope
	maxDuckDB  = 24.0
	maxAttack  = 2 * time.Second
	maxRelease = 5 * time.Second

	minTargetLUFS, maxTargetLUFS = -31.0, -9.0
	minTruePeakDB, maxTruePeakDB = -9.0, 0.0
)

// Point is a volume at an instant of the output, counted from the start of the segment, clip or range. Between
// two points the volume is linear in amplitude; before the first and after the last it is constant. It
// multiplies the volume of its segment, clip or selection.
type Point struct {
	At     time.Duration `json:"atNs"`   // >= 0, strictly ascending
	Volume float64       `json:"volume"` // 0..10
}

// Ducking lowers music while somebody speaks. The gain falls before the voice begins, linearly in dB, and rises
// after it ends.
type Ducking struct {
	AmountDB float64       `json:"amountDb"`  // 0..24
	Attack   time.Duration `json:"attackNs"`  // 0..2 s
	Release  time.Duration `json:"releaseNs"` // 0..5 s
}

// DefaultDucking is the meaning of a ducking without fields.
var DefaultDucking = Ducking{AmountDB: 9, Attack: 150 * time.Millisecond, Release: 600 * time.Millisecond}

// Loudness is the target for the whole mix, reached by one gain.
type Loudness struct {
	TargetLUFS    float64 `json:"targetLufs"`    // -31..-9, integrated, BS.1770-4
	MaxTruePeakDB float64 `json:"maxTruePeakDb"` // -9..0, takes precedence
}

// DefaultLoudness is the meaning of a loudness without fields.
var DefaultLoudness = Loudness{TargetLUFS: -14, MaxTruePeakDB: -1}

// fieldName returns the path of a field of the object being checked.
type fieldName func(field string) string

func (c *Clip) validateSound(at fieldName) error {
	switch {
	case c.FadeIn < 0 || c.FadeIn > maxFade:
		return fault.Invalidf("%s must be 0..%d", at("fadeInMs"), maxFade.Milliseconds())
	case c.FadeOut < 0 || c.FadeOut > maxFade:
		return fault.Invalidf("%s must be 0..%d", at("fadeOutMs"), maxFade.Milliseconds())
	case c.End < 0 || endsTooEarly(c.Start, c.End):
		return fault.Invalidf("%s must be 0 or > startMs", at("endMs"))
	}
	if c.Ducking != nil {
		if err := c.Ducking.validate(func(field string) string { return at("ducking." + field) }); err != nil {
			return err
		}
	}
	if c.Voice && c.Ducking != nil {
		return fault.Invalidf("%s must not be set together with ducking", at("voice"))
	}
	return validatePoints(at, c.Points)
}

func (d *Ducking) validate(at fieldName) error {
	switch {
	case !within(d.AmountDB, 0, maxDuckDB):
		return fault.Invalidf("%s must be 0..%g", at("amountDb"), maxDuckDB)
	case d.Attack < 0 || d.Attack > maxAttack:
		return fault.Invalidf("%s must be 0..%d", at("attackMs"), maxAttack.Milliseconds())
	case d.Release < 0 || d.Release > maxRelease:
		return fault.Invalidf("%s must be 0..%d", at("releaseMs"), maxRelease.Milliseconds())
	}
	return nil
}

func (l *Loudness) validate() error {
	switch {
	case !within(l.TargetLUFS, minTargetLUFS, maxTargetLUFS):
		return fault.Invalidf("loudness.targetLufs must be %g..%g", minTargetLUFS, maxTargetLUFS)
	case !within(l.MaxTruePeakDB, minTruePeakDB, maxTruePeakDB):
		return fault.Invalidf("loudness.maxTruePeakDb must be %g..%g", minTruePeakDB, maxTruePeakDB)
	}
	return nil
}

// validatePoints checks the volumePoints of a segment, clip or selection.
func validatePoints(at fieldName, points []Point) error {
	if len(points) > maxPoints {
		return fault.Invalidf("%s must have at most %d entries", at("volumePoints"), maxPoints)
	}
	for i, p := range points {
		in := func(field string) string { return at(indexed("volumePoints", i) + "." + field) }
		switch {
		case p.At < 0:
			return fault.Invalidf("%s must be >= 0", in("atMs"))
		case i > 0 && p.At <= points[i-1].At && p.At != math.MaxInt64:
			return fault.Invalidf("%s must be > that of the point before it", in("atMs"))
		case !within(p.Volume, 0, maxVolume):
			return fault.Invalidf("%s must be 0..%g", in("volume"), maxVolume)
		}
	}
	return nil
}

// within reports whether v is a number in lowest..highest; NaN is not.
func within(v, lowest, highest float64) bool { return v >= lowest && v <= highest }
