package engine

import (
	"fmt"
	"iter"
	"os"
	"time"

	"cutroom/internal/film/media"
)

// ffmpeg reports success even if it decodes almost nothing of a broken file, and fills the gaps with repeated frames
// and silence. So every decoding pass also writes a log with the muxer mkvtimestamp_v2.

// readTimes reads such a log, see media.DecodedTimes.
func readTimes(path string) ([]int64, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read decoder log: %w", err)
	}
	return media.DecodedTimes(data), nil
}

// coverage is how much of the wanted range of a source was decoded.
type coverage struct {
	got, wanted time.Duration
	missing     int  // frames that were not decoded
	noise       bool // most frames were decoded with errors
}

// complete reports whether too little is missing to call the source damaged.
func (c coverage) complete() bool {
	return c.wanted == 0 || c.got > 0 && !c.noise && !media.ClearlyLess(c.got, c.wanted)
}

// decoded evaluates the log of the shot's pass.
func (s *shot) decoded(times []int64) coverage {
	info := s.source.info.Video
	ms := info.TimeBase.Float() * 1000
	// A frame may last as long as the longest one in this range.
	usual := info.usualStep().Milliseconds()
	longest := float64(usual)
	for i := s.first + 1; i <= s.last; i++ {
		longest = max(longest, float64(info.Starts[i]-info.Starts[i-1])*ms)
	}
	from := int64(float64(info.Starts[s.first]) * ms)
	wanted := int64(float64(info.Starts[s.last]-info.Starts[s.first])*ms) + usual
	var got int64
	if len(times) > 0 {
		// The muxer chooses the log's zero, so only distances count. A late first frame is a gap too, and the sum
		// includes it.
		got = media.Covered(times, min(times[0], from), times[len(times)-1]+info.usualStep().Milliseconds(), int64(longest*1.5)+2)
	}
	c := coverage{got: time.Duration(min(got, wanted)) * time.Millisecond, wanted: time.Duration(wanted) * time.Millisecond}
	if n := s.last - s.first + 1; len(times) < n && !(info.Interlaced() && len(times) >= n/2) { // a packet may hold one field
		c.missing = n - len(times)
	}
	return c
}

// decoded evaluates the log of the sound's pass for the range that the timeline plays.
func (s *decodedAudio) decoded(times []int64) coverage {
	a := s.source.info.Audio
	var c coverage
	for need := range s.needed() {
		c.wanted += need.To - need.From
		for _, h := range a.Holes {
			c.wanted -= max(0, min(need.To, h.To)-max(need.From, h.From))
		}
		got := media.Covered(times, need.From.Milliseconds(), need.To.Milliseconds(), a.longestPacket().Milliseconds())
		c.got += time.Duration(got) * time.Millisecond
	}
	return c
}

// counted does the same as decoded for sound whose samples were counted, up to end.
func (s *decodedAudio) counted(end time.Duration) coverage {
	var c coverage
	for need := range s.needed() {
		c.wanted += need.To - need.From
		c.got += max(0, min(need.To, end)-need.From)
	}
	return c
}

// needed returns the parts of the source's sound that the timeline plays.
func (s *decodedAudio) needed() iter.Seq[media.Gap] {
	a := s.source.info.Audio
	return func(yield func(media.Gap) bool) {
		for _, n := range s.need {
			part := media.Gap{From: max(a.First, samplesDuration(max(0, n.from))), To: min(a.End, samplesDuration(max(0, n.to)))}
			if part.From < part.To && !yield(part) {
				return
			}
		}
	}
}
