package timeline

import "time"

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

// Point is a volume at an instant of the output, counted from the start of the segment, clip or range. Between two
// points the volume is linear in amplitude; outside it is constant. It multiplies the volume of its owner.
type Point struct {
	At     time.Duration `json:"atNs"`   // >= 0, strictly ascending
	Volume float64       `json:"volume"` // 0..10
}

// Ducking lowers music while a voice speaks. The gain falls before the voice begins, linearly in dB, and rises after
// it.
type Ducking struct {
	AmountDB float64       `json:"amountDb"`  // 0..24
	Attack   time.Duration `json:"attackNs"`  // 0..2 s
	Release  time.Duration `json:"releaseNs"` // 0..5 s
}

// DefaultDucking is what a ducking without fields means.
var DefaultDucking = Ducking{AmountDB: 9, Attack: 150 * time.Millisecond, Release: 600 * time.Millisecond}

// Loudness is the target for the whole mix, reached by one gain.
type Loudness struct {
	TargetLUFS    float64 `json:"targetLufs"`    // -31..-9, integrated, BS.1770-4
	MaxTruePeakDB float64 `json:"maxTruePeakDb"` // -9..0, takes precedence
}

// DefaultLoudness is what a loudness without fields means.
var DefaultLoudness = Loudness{TargetLUFS: -14, MaxTruePeakDB: -1}
