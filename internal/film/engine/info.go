// The analysis of a source: the times of its frames, its gaps, and where its streams end whatever the headers claim.

package engine

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sort"
	"time"

	"cutroom/internal/film/media"
	"cutroom/internal/film/media/container"
)

// Info contains everything that a render needs about a source. It depends only on the file's content, so each
// content is analysed once.
type Info struct {
	Kind    container.Kind
	Streams int
	Video   *videoInfo // nil without video
	Audio   *audioInfo // nil without sound
	Unshown string     // why the pictures cannot be shown, see media.Probe
	Unheard bool       // there is sound that cannot be decoded, and no other

	// Zero is the file's timestamp that counts as time 0 of the source: the start of its first stream. All other
	// times of Info are relative to it.
	Zero time.Duration
}

// videoInfo describes the video stream by its packets.
type videoInfo struct {
	media.VideoStream
	Packets int64
	// Starts are the starts of the frames in TimeBase, file time, ascending. A clip that was cut without re-encoding
	// may begin in the middle of a group of pictures; players show it from its first key frame.
	Starts []int64
	Keys   []time.Duration // starts of the keyframes, file time, ascending
	End    time.Duration   // real end
	// ClaimedEnd is where the undamaged file would end. It is greater than End only if part of the file is known to be
	// missing.
	ClaimedEnd time.Duration
	Untimed    int   // see media.Measured
	Step       int64 // between the untimed frames
}

// audioInfo describes the audio stream by its packets.
type audioInfo struct {
	media.AudioStream
	Packets    int64
	First, End time.Duration // real
	ClaimedEnd time.Duration // see videoInfo
	Holes      []media.Gap   // periods in which the recorder wrote nothing, see Info.holes
	Clockless  bool          // see media.Probe
}

// longestPacket returns the longest time that one packet covers. Packets further apart leave a gap.
func (a *audioInfo) longestPacket() time.Duration {
	return 2*(a.End-a.First)/time.Duration(max(1, a.Packets)) + 150*time.Millisecond
}

// holes returns the gaps in which the recorder wrote nothing because a call or another app used the microphone. Other
// gaps are losses: there the pictures are gone as well. An mp4's index lists every packet, so its gaps are never
// losses.
func (i *Info) holes(gaps []media.Gap) []media.Gap {
	var holes []media.Gap
	for _, g := range gaps {
		h := media.Gap{From: g.From - i.Zero + i.Audio.longestPacket(), To: g.To - i.Zero}
		filmed := i.Video != nil && i.Video.visibleAt(h.From.Seconds(), i.Zero) < i.Video.visibleAt(h.To.Seconds(), i.Zero)
		if h.From < h.To && (filmed || i.Kind == container.MP4) {
			holes = append(holes, h)
		}
	}
	return holes
}

// Duration returns the source's real length: the later end of its streams.
func (i *Info) Duration() time.Duration {
	end, _ := i.ends()
	return end
}

// ends returns the later real end and the later claimed end of the streams.
func (i *Info) ends() (end, claimed time.Duration) {
	if v := i.Video; v != nil {
		end, claimed = v.End, v.ClaimedEnd
	}
	if a := i.Audio; a != nil {
		end, claimed = max(end, a.End), max(claimed, a.ClaimedEnd)
	}
	return end, claimed
}

// pixels is the size of one coded picture.
func (v *videoInfo) pixels() int64 { return int64(v.Width) * int64(v.Height) }

// start is the time of the n-th frame relative to zero, in seconds.
func (v *videoInfo) start(n int, zero time.Duration) float64 {
	return float64(v.Starts[n])*v.TimeBase.Float() - zero.Seconds()
}

// microsAt returns the file time of the n-th frame in microseconds, rounded as ffmpeg rounds from one time base to
// another: to the nearest, halves away from zero.
func (v *videoInfo) microsAt(n int) int64 {
	return media.MulDiv(v.Starts[n], v.TimeBase.Num*1_000_000, v.TimeBase.Den)
}

// visibleAt returns the index of the frame shown at t seconds, or of the first one if none has started by then.
func (v *videoInfo) visibleAt(t float64, zero time.Duration) int {
	tick := v.TimeBase.Float()
	n := sort.Search(len(v.Starts), func(i int) bool {
		return float64(v.Starts[i])*tick-zero.Seconds() > t
	})
	return max(0, n-1)
}

// steps returns the distances between neighbouring frames in ticks, ascending. A single frame has none.
func (v *videoInfo) steps() []int64 {
	steps := make([]int64, 0, len(v.Starts))
	for i := 1; i < len(v.Starts); i++ {
		if d := v.Starts[i] - v.Starts[i-1]; d > 0 {
			steps = append(steps, d)
		}
	}
	slices.Sort(steps)
	return steps
}

// singleStep is how long a single frame is shown.
const singleStep = time.Second / 30

// usualStep returns the usual distance between neighbouring frames: the mean of those within a quarter of the
// median. Neither pauses nor a coarse clock affect it.
func (v *videoInfo) usualStep() time.Duration {
	steps := v.steps()
	if len(steps) == 0 {
		return singleStep
	}
	median := float64(steps[len(steps)/2])
	var sum, n float64
	for _, d := range steps {
		if math.Abs(float64(d)-median) <= median/4 {
			sum += float64(d)
			n++
		}
	}
	return v.duration(sum / n)
}

// shortStep returns the first decile of the distances between neighbouring frames.
func (v *videoInfo) shortStep() time.Duration {
	steps := v.steps()
	if len(steps) == 0 {
		return singleStep
	}
	return v.duration(float64(steps[len(steps)/10]))
}

// duration returns how long ticks last.
func (v *videoInfo) duration(ticks float64) time.Duration {
	return time.Duration(ticks * v.TimeBase.Float() * float64(time.Second))
}

// analyse reads a file's headers and the times of all its packets. The error wraps media.ErrNotMedia if the file is to
// blame.
func analyse(ctx context.Context, runner *media.Runner, path string) (*Info, error) {
	probe, err := runner.Probe(ctx, path)
	if err != nil {
		return nil, err
	}
	share, err := container.PresentShare(path, probe.Kind)
	if err != nil {
		return nil, fmt.Errorf("analyse: %w", err)
	}
	return newInfo(probe, share), nil
}

// newInfo combines what the headers claim with what the packets show. share is the fraction of the file's data that is
// present: 1 unless data is known to be missing.
func newInfo(p media.Probe, share float64) *Info {
	zero := p.Zero()
	info := &Info{Kind: p.Kind, Streams: p.Streams, Zero: zero, Unshown: p.Unshown, Unheard: p.Unheard}
	if m := p.VideoPackets; m.Packets > 0 {
		v := &videoInfo{VideoStream: *p.Video, Packets: m.Packets, Starts: m.Starts[m.Lead:], Keys: m.Keyframes, End: m.End,
			Untimed: m.Untimed, Step: m.Step}
		// ffmpeg gives the last reordered frame a length of one tick, and keeps it when it copies frames. That is not
		// its real length.
		last := time.Duration(v.microsAt(len(v.Starts)-1)) * time.Microsecond
		if v.End <= last+v.duration(1)+time.Microsecond {
			v.End = max(v.End, last+v.usualStep())
		}
		v.End = max(0, v.End-zero)
		v.ClaimedEnd = p.ClaimedEnd(v.End, v.Start+v.Duration-zero, v.Frames-m.Packets-m.Discarded, share)
		info.Video = v
	}
	if m := p.AudioPackets; m.Packets > 0 {
		a := &audioInfo{AudioStream: *p.Audio, Packets: m.Packets, First: m.First - zero, End: max(0, m.End-zero),
			Clockless: p.Clockless}
		a.ClaimedEnd = p.ClaimedSound(share)
		info.Audio = a
		a.Holes = info.holes(m.Gaps)
	}
	return info
}
