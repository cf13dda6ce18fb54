package media

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"cutroom/internal/media/container"
)

// Zero returns the timestamp that counts as time 0 of the file: the start of the earlier of the used streams.
func (p Probe) Zero() time.Duration {
	zero := time.Duration(math.MaxInt64)
	for _, m := range []Measured{p.VideoPackets, p.AudioPackets} {
		if m.Packets > 0 {
			zero = min(zero, m.First)
		}
	}
	// Encoder delay may have negative times. The film, or the music, then begins at zero.
	if zero < 0 && zero > -200*time.Millisecond && (p.VideoPackets.Packets == 0 || p.VideoPackets.First >= 0) {
		zero = 0
	}
	if a := p.AudioPackets; a.Packets > 0 && p.Kind == container.AAC {
		// A bare stream does not state its encoder delay. It is at least one frame, which
		// holds what the transform needs before the first sample.
		zero += a.Duration() / time.Duration(a.Packets)
	}
	return zero
}

// End returns when the later of the used streams ends, counted from Zero.
func (p Probe) End() time.Duration {
	return max(0, max(p.VideoPackets.End, p.AudioPackets.End)-p.Zero())
}

// SeekLead is how long before a window decoding starts: lossy audio decoders need the packets before it.
const SeekLead = 2 * time.Second

// SeeksExactly reports whether the demuxer of a container knows where a seek landed. Bare frames of MP3 and AAC
// have no timestamps, so they are decoded from the start, which is fast.
func SeeksExactly(kind container.Kind) bool {
	switch kind {
	case container.MP4, container.Matroska, container.WAV, container.FLAC:
		return true
	}
	return false
}

// SoundWindow is a range of the sound of a probed file.
type SoundWindow struct {
	From, To   time.Duration // counted from Zero; To 0 is the end
	SampleRate int           // of the output, Hz
	Layout     string        // ffmpeg's name for the output channels; "" keeps the file's
}

// SoundArgs returns the arguments that decode a window of the file's sound, exact to the
// sample, with silence where the file has no sound. Encoder and output follow.
func (p Probe) SoundArgs(path string, w SoundWindow) []string {
	args := []string{"-copyts", "-noaccurate_seek"}
	if w.From > SeekLead && SeeksExactly(p.Kind) {
		args = append(args, "-seek_timestamp", "1", "-ss", seconds(w.From-SeekLead+p.Zero()))
	}
	// One thread: with several, ffmpeg 7.1 and later trim the wrong packets of FLAC and
	// ALAC at an edit list, and lose every second packet of the rest.
	args = append(append(args, "-vn", "-sn", "-dn", "-threads", "1"), InputArgs(p.Kind, path)...)
	graph := fmt.Sprintf("[0:%d]asetpts=PTS-(%s)/TB", p.Audio.Index, seconds(p.Zero()+w.From))
	if w.Layout != "" {
		graph += ",aformat=sample_fmts=fltp,aformat=channel_layouts=" + w.Layout
	}
	graph += fmt.Sprintf(",aresample=%d:async=1:min_comp=0.00001:min_hard_comp=0.02:first_pts=0", w.SampleRate)
	if w.To > 0 {
		graph += fmt.Sprintf(",atrim=end_pts=%d", MulDiv(int64(w.To-w.From), int64(w.SampleRate), int64(time.Second)))
	}
	return append(args, "-filter_complex", graph+"[out]", "-map", "[out]")
}

// seconds formats a time for ffmpeg.
func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', 9, 64) }
