package media

import (
	"time"

	"cutroom/internal/film/media/container"
)

// ClaimedEnd returns where a stream that ends at end would end if its file were whole. Headers often state wrong
// durations (a fragmented mp4 of one second may claim 40 hours), so a claim counts only with evidence that data is
// missing: the container was cut off (share < 1, see container.PresentShare) and, in an mp4, packets that its index
// lists are missing. In a whole mp4 an edit list hides such packets.
func (p Probe) ClaimedEnd(end, claim time.Duration, missingPackets int64, share float64) time.Duration {
	switch p.Kind {
	case container.MP4:
		if missingPackets > 0 && share < 1 {
			return max(end, claim)
		}
	case container.Matroska:
		if share < 1 {
			return max(end, claim, p.Duration-p.Start)
		}
	case container.WAV:
		return time.Duration(float64(end) / share)
	case container.FLAC:
		return max(end, p.Duration) // its header counts the samples, or states that it does not know
	}
	return end
}

// ClaimedSound is ClaimedEnd for the sound, counted from Zero.
func (p Probe) ClaimedSound(share float64) time.Duration {
	a, m, zero := p.Audio, p.AudioPackets, p.Zero()
	return p.ClaimedEnd(max(0, m.End-zero), a.Start+a.Duration-zero, a.Frames-m.Packets-m.Discarded, share)
}

// CutOff reports whether a file lost its end: its stream should last for wanted, but lasts only for got.
func CutOff(got, wanted time.Duration) bool {
	missing := wanted - got
	return missing > 250*time.Millisecond && missing > wanted/40
}
