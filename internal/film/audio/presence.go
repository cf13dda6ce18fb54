package audio

import "math"

// Span is a half-open range of samples.
type Span struct{ Start, End int64 }

// PresenceDetector is an io.Writer of stereo samples that finds where a voice is present: where the RMS of the louder
// channel over presenceWindow exceeds presenceLevel, including pauses shorter than presencePause. Its memory grows only
// with the number of spans, at most two a second.
//
// A window extends beyond the voice in it, so the ends of a span are refined by the RMS over presenceEdge: the
// voice begins with the first edge above the level, and ends with the last one.
type PresenceDetector struct {
	portions portions
	at       int64 // samples so far
	window   slidingPower
	edge     slidingPower
	loud     [presenceWindow]bool // ring by end sample: whether the edge that ends there is above the level
	lastLoud int64                // end of the last such edge
	above    bool                 // the window that ends here is above the level
	spans    []Span
}

const (
	presenceWindow = SampleRate / 20   // samples
	presenceEdge   = SampleRate / 1000 // samples
	presencePause  = SampleRate / 2    // samples
)

// presenceLevel is -45 dBFS as a power.
var presenceLevel = math.Pow(10, -4.5)

// NewPresenceDetector returns a detector without any samples.
func NewPresenceDetector() *PresenceDetector {
	return &PresenceDetector{portions: portions{size: FrameBytes},
		window: slidingPower{ring: make([]frame, presenceWindow)}, edge: slidingPower{ring: make([]frame, presenceEdge)}}
}

// Write accepts samples in portions of any length.
func (d *PresenceDetector) Write(p []byte) (int, error) {
	return d.portions.each(p, func(p []byte) {
		for ; len(p) > 0; p = p[FrameBytes:] {
			d.push(frame{float(p), float(p[4:])})
		}
	})
}

// Spans returns where a voice was present so far, in ascending order.
func (d *PresenceDetector) Spans() []Span { return d.spans }

func (d *PresenceDetector) push(f frame) {
	power := frame{f[0] * f[0], f[1] * f[1]}
	loud := d.edge.push(power) > presenceLevel
	d.loud[d.at%presenceWindow] = loud
	if loud {
		d.lastLoud = d.at
	}
	above := d.window.push(power) > presenceLevel
	if above {
		if !d.above {
			d.begin()
		}
		last := &d.spans[len(d.spans)-1]
		last.End = max(last.End, last.Start+1, d.lastLoud-presenceEdge+2)
	}
	d.above = above
	d.at++
}

// begin starts a span at the first loud edge within the window, or continues the last span if the pause was short. A
// window above the level always contains an edge above the level.
func (d *PresenceDetector) begin() {
	first := max(0, d.at-presenceWindow+1)
	for first < d.at && !d.loud[first%presenceWindow] {
		first++
	}
	if n := len(d.spans); n == 0 || first-d.spans[n-1].End >= presencePause {
		d.spans = append(d.spans, Span{first, first + 1})
	}
}

// slidingPower is the mean power of the most recent samples. It computes the sum afresh once per window: in a running
// sum, one absurd sample from a broken file would swamp all the samples that follow.
type slidingPower struct {
	ring []frame
	at   int
	sum  frame
}

// push adds the powers of both channels of a sample, and returns the mean of the louder channel.
func (s *slidingPower) push(power frame) float64 {
	old := s.ring[s.at]
	s.ring[s.at] = power
	s.sum[0] += power[0] - old[0]
	s.sum[1] += power[1] - old[1]
	if s.at++; s.at == len(s.ring) {
		s.at = 0
		s.sum = frame{}
		for _, p := range s.ring {
			s.sum[0] += p[0]
			s.sum[1] += p[1]
		}
	}
	return max(s.sum[0], s.sum[1]) / float64(len(s.ring))
}
