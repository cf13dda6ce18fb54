// Package timeline represents the edit that a client requested: which ranges of which sources play after one
// another, which music plays under them, and which separated stems replace or join the original sound.
//
// The types are pure values. The package checks everything that can be checked without opening a file; the engine
// checks the media (how long a source really is, whether it decodes). It uses neither HTTP nor ffmpeg: the package that
// owns the two wire formats turns them into a Timeline.
package timeline

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"
)

// OutputKind is what a render produces.
type OutputKind string

// The output kinds, spelled as on the wire.
const (
	Video OutputKind = "video" // mp4: H.264 and AAC
	Audio OutputKind = "audio" // m4a: only AAC, with the sound that the video would have
)

// Quality names an encoding profile.
type Quality string

// The qualities, spelled as on the wire.
const (
	Low    Quality = "low"
	Medium Quality = "medium"
	High   Quality = "high"
)

// Limits of the fields, part of the API's contract.
const (
	MaxSegments   = 200
	MaxClips      = 64
	MaxDirectives = 64
	maxSelections = 16 // of one directive
	// maxName bounds the ids and names that a client chooses, in bytes, because the job's row stores them.
	maxName   = 128
	maxVolume = 10.0
	minSpeed  = 0.1
	maxSpeed  = 10.0
)

// Timeline is one edit. Segments play one after the other in ascending Order, ties in list order; Clips and
// Directives are placed on the output timeline, that is after trimming, speed and transitions (see [Arrange]).
//
// The tags of this and the types below are the stored form (see [Timeline.MarshalJSON]): jobs survive an upgrade of the
// program, so a tag never changes. Times are stored in nanoseconds.
type Timeline struct {
	OutputKind OutputKind  `json:"kind"`
	Quality    Quality     `json:"quality"`
	Segments   []Segment   `json:"segments"`
	Clips      []Clip      `json:"clips,omitempty"`
	Directives []Directive `json:"directives,omitempty"`
	Loudness   *Loudness   `json:"loudness,omitempty"` // nil leaves the loudness of the mix unchanged
	Canvas     *Canvas     `json:"canvas,omitempty"`   // nil = the first segment's picture
	FadeIn     *FilmFade   `json:"fadeIn,omitempty"`   // nil = the film begins with its first picture
	FadeOut    *FilmFade   `json:"fadeOut,omitempty"`  // nil = the film ends with its last picture
}

// Segment is one range of a source with its own sound.
type Segment struct {
	SourceKey string        `json:"source"`      // names the source; the job maps it to a file
	Order     int64         `json:"order"`       // position among the segments
	Duration  time.Duration `json:"durationNs"`  // the client's claim about the source's length, > 0; never trusted
	TrimStart time.Duration `json:"trimStartNs"` // >= 0, in source time
	TrimEnd   time.Duration `json:"trimEndNs"`   // in source time; 0 = to the source's end, else > TrimStart
	Volume    float64       `json:"volume"`      // 0..10
	Speed     float64       `json:"speed"`       // 0.1..10; pitch is kept
	Points    []Point       `json:"points,omitempty"`

	Transition *Transition `json:"transition,omitempty"` // from the previous segment; nil = a cut
	Fit        Fit         `json:"fit,omitempty"`        // "" = the canvas's, see FitOf
	Focus      *Focus      `json:"focus,omitempty"`      // nil = the middle, see FocusOf

	// The look, in the order in which it is applied. Fit and Focus see the cropped picture, moves the fitted one.
	Rotate int64  `json:"rotate,omitempty"` // 0, 90, 180 or 270 degrees clockwise, of the picture as displayed
	Mirror bool   `json:"mirror,omitempty"` // exchange left and right, after Rotate
	Crop   Crop   `json:"crop,omitzero"`    // after Mirror
	Moves  []Move `json:"moves,omitempty"`
	Adjust Adjust `json:"adjust,omitzero"`

	// The trimmed range is reversed first: every time and speed of the segment refers to the reversed range.
	Reverse     bool         `json:"reverse,omitempty"`
	Smooth      bool         `json:"smooth,omitempty"`      // blend where the film has more frames than the source
	SpeedPoints []SpeedPoint `json:"speedPoints,omitempty"` // in place of Speed, which is 1 then; see Pace
}

// Clip is background music: a range of a source, once or in a loop, until End or the end of the output.
type Clip struct {
	SourceKey       string        `json:"source"`
	Start           time.Duration `json:"startNs"`     // >= 0, on the output timeline
	SourceTrimStart time.Duration `json:"trimStartNs"` // >= 0, in source time
	SourceTrimEnd   time.Duration `json:"trimEndNs"`   // 0 = to the source's end, else > SourceTrimStart
	Volume          float64       `json:"volume"`      // 0..10
	Speed           float64       `json:"speed"`       // 0.1..10, tempo without pitch

	// FadeIn and FadeOut lie inside the audible range; if they do not fit, both shrink in proportion.
	FadeIn  time.Duration `json:"fadeInNs,omitempty"`  // 0..30 s
	FadeOut time.Duration `json:"fadeOutNs,omitempty"` // 0..30 s
	Loop    bool          `json:"loop,omitempty"`      // repeats the trimmed range
	End     time.Duration `json:"endNs,omitempty"`     // 0 = none, else > Start, on the output timeline
	Ducking *Ducking      `json:"ducking,omitempty"`
	Voice   bool          `json:"voice,omitempty"` // ducks the clips with Ducking; never together with it
	Points  []Point       `json:"points,omitempty"`
}

// Range is a half-open span [Start, End) on the output timeline.
type Range struct {
	Start time.Duration `json:"startNs"`
	End   time.Duration `json:"endNs"`
}

// Directive mixes separated stems into a range of the output.
type Directive struct {
	ID           string        `json:"id"`
	Range                      // embedded, because the stored form has its fields beside the others
	MuteOriginal bool          `json:"muteOriginal"`   // silence the segments' own sound in the range, not the music
	SourceOffset time.Duration `json:"sourceOffsetNs"` // >= 0: position in the stems at which the range begins
	AppliedSpeed float64       `json:"appliedSpeed"`   // 0.1..10: the range plays (range x speed) of the stem
	Selections   []Selection   `json:"selections,omitempty"`
}

// Selection is one stem of a directive.
type Selection struct {
	StemID string `json:"stemId"`
	// SeparationID names the separation that produced StemID, until SourceKey is known. It is not stored.
	SeparationID string  `json:"-"`
	SourceKey    string  `json:"source"` // names the stem's file, like a segment's SourceKey
	Volume       float64 `json:"volume"` // 0..10
	Points       []Point `json:"points,omitempty"`
}

// InOrder returns the segments in play order, with the index of each in t.Segments, for messages to the client.
func (t Timeline) InOrder() (segments []Segment, indexes []int) {
	indexes = make([]int, len(t.Segments))
	for i := range indexes {
		indexes[i] = i
	}
	slices.SortStableFunc(indexes, func(a, b int) int {
		return cmp.Compare(t.Segments[a].Order, t.Segments[b].Order)
	})
	segments = make([]Segment, len(indexes))
	for i, at := range indexes {
		segments[i] = t.Segments[at]
	}
	return segments, indexes
}

// SourceKeys returns every key for which the timeline needs a file, each once, in the order of first use.
func (t Timeline) SourceKeys() []string {
	var keys []string
	seen := map[string]bool{}
	add := func(key string) {
		if !seen[key] {
			seen[key] = true
			keys = append(keys, key)
		}
	}
	for _, s := range t.Segments {
		add(s.SourceKey)
	}
	for _, c := range t.Clips {
		add(c.SourceKey)
	}
	for _, d := range t.Directives {
		for _, s := range d.Selections {
			add(s.SourceKey)
		}
	}
	return keys
}

// SourceDuration adds up the lengths that the client claims for its segments' sources, for statistics. It saturates.
func (t Timeline) SourceDuration() time.Duration {
	var sum time.Duration
	for _, s := range t.Segments {
		if s.Duration > math.MaxInt64-sum {
			return math.MaxInt64
		}
		sum += s.Duration
	}
	return sum
}

// Legacy returns the timeline of the single-video form: the whole of one source, cut to duration if that is
// shorter.
func Legacy(sourceKey string, duration time.Duration) Timeline {
	return Timeline{
		Segments: []Segment{{
			SourceKey: sourceKey, Duration: duration, TrimEnd: duration, Volume: 1, Speed: 1,
		}},
		OutputKind: Video, Quality: Medium,
	}
}

// Milliseconds converts a wire field to a duration. Beyond the range of a Duration (292 years) it saturates, which
// for a position or an end correctly means "beyond every source".
func Milliseconds(ms int64) time.Duration {
	const limit = math.MaxInt64 / int64(time.Millisecond)
	switch {
	case ms > limit:
		return math.MaxInt64
	case ms < -limit:
		return math.MinInt64
	}
	return time.Duration(ms) * time.Millisecond
}

// storedVersion must be raised when an older reader would misread the stored form.
const storedVersion = 1

type fields Timeline // without its methods

type stored struct {
	Version int `json:"v"`
	fields
}

// MarshalJSON returns the stored form of t, which this and every later version can read. It fails only for numbers that
// are not finite, which Validate refuses.
func (t Timeline) MarshalJSON() ([]byte, error) {
	return json.Marshal(stored{storedVersion, fields(t)})
}

// UnmarshalJSON reads the stored form. It does not validate the result again.
func (t *Timeline) UnmarshalJSON(data []byte) error {
	var s stored
	if err := json.Unmarshal(data, &s); err != nil {
		return err
	}
	if s.Version != storedVersion {
		return fmt.Errorf("unknown version %d of a timeline", s.Version)
	}
	*t = Timeline(s.fields)
	return nil
}
