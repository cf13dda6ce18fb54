package media

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// DecodedTimes parses what the muxer mkvtimestamp_v2 writes: the start of each decoded frame, one line of milliseconds
// each. It returns them ascending.
func DecodedTimes(log []byte) (times []int64) {
	for line := range strings.Lines(string(log)) {
		if n, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64); err == nil { // skips the first line, a comment
			times = append(times, n)
		}
	}
	slices.Sort(times)
	return times
}

// Covered returns how many milliseconds of [from, to) the frames starting at times fill. A frame lasts until the next
// one, but at most longest.
func Covered(times []int64, from, to, longest int64) int64 {
	var sum int64
	for i, t := range times {
		end := t + longest
		if i+1 < len(times) {
			end = min(end, times[i+1])
		}
		if a, b := max(t, from), min(end, to); b > a {
			sum += b - a
		}
	}
	return sum
}

// ClearlyLess reports damage: more than a quarter of a second and a tenth is missing, rather than a few frames that
// decoders drop.
func ClearlyLess(got, wanted time.Duration) bool {
	missing := wanted - got
	return missing > 250*time.Millisecond && missing > wanted/10
}

// MissesSound reports whether a pass with Sound.Log, which decoded frames at these times, missed part of the window
// although the file has packets for it.
func (p Probe) MissesSound(s Sound, times []int64) bool {
	m, zero := p.AudioPackets, p.Zero()
	part := func(from, to time.Duration) time.Duration { return max(0, min(to, s.To)-max(from, s.From)) }
	longest := 2*m.Duration()/time.Duration(max(1, m.Packets)) + 150*time.Millisecond
	wanted := part(s.First, s.End)
	for _, g := range m.Gaps { // the file itself has nothing there
		wanted -= part(g.From-zero+longest, g.To-zero)
	}
	got := Covered(times, max(s.First, s.From).Milliseconds(), min(s.End, s.To).Milliseconds(), longest.Milliseconds())
	return ClearlyLess(time.Duration(got)*time.Millisecond, wanted)
}
