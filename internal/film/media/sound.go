package media

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"cutroom/internal/film/media/container"
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
		// A bare stream does not state its encoder delay. It is at least one frame, which holds what the transform
		// needs before the first sample.
		first := a.Duration() / time.Duration(a.Packets)
		if p.Clockless { // frames differ in length
			first = 1024 * time.Second / time.Duration(max(1, p.Audio.SampleRate))
		}
		zero += first
	}
	return zero
}

// End returns when the later of the used streams ends, counted from Zero.
func (p Probe) End() time.Duration {
	return max(0, max(p.VideoPackets.End, p.AudioPackets.End)-p.Zero())
}

// seekLead is how long before a window decoding starts: lossy audio decoders need the packets before it.
const seekLead = 2 * time.Second

// seeksExactly reports whether the demuxer of a container knows where a seek landed. Bare frames of MP3 and AAC
// have no timestamps, so they are decoded from the start, which is fast.
func seeksExactly(kind container.Kind) bool {
	switch kind {
	case container.MP4, container.Matroska, container.WAV, container.FLAC:
		return true
	}
	return false
}

// Sound is a window of the sound of a file, and how to decode it.
type Sound struct {
	Path   string
	Kind   container.Kind
	Stream *AudioStream
	Zero   time.Duration // see Probe.Zero

	From, To   time.Duration // counted from the file's zero; To 0 is the end
	SampleRate int           // of the output, Hz
	Layout     string        // ffmpeg's name for the output channels; "" keeps the file's

	First, End time.Duration // of the sound, counted from the file's zero
	Clockless  bool          // see Probe.Clockless

	// Log adds an output [log] with all decoded frames, whose times count from the file's zero.
	Log bool
}

// Sound returns the whole sound of the file.
func (p Probe) Sound(path string) Sound {
	zero := p.Zero()
	return Sound{Path: path, Kind: p.Kind, Stream: p.Audio, Zero: zero, SampleRate: p.Audio.SampleRate,
		First: p.AudioPackets.First - zero, End: p.AudioPackets.End - zero, Clockless: p.Clockless}
}

// Args returns the arguments that decode the window to [out], exact to the sample, with silence where the file has no
// sound. Encoder and output follow. If the sound changes its rate or its channels within the window, ffmpeg rebuilds
// the graph, and each graph fills its output from the start of the window. The output is then longer than the window:
// see Sound.Rebuilt.
func (s Sound) Args() []string {
	args := []string{"-copyts", "-noaccurate_seek"}
	if s.From > seekLead && seeksExactly(s.Kind) {
		args = append(args, "-seek_timestamp", "1", "-ss", seconds(s.From-seekLead+s.Zero))
	}
	// One thread: with several, ffmpeg 7.1 and later trim the wrong packets of FLAC and ALAC at an edit list, and lose
	// every second packet of the rest.
	args = append(append(append(args, "-vn", "-sn", "-dn", "-threads", "1"), s.Stream.decoder()...), InputArgs(s.Kind, s.Path)...)
	graph, before := fmt.Sprintf("[0:%d]", s.Stream.Index), s.Zero+s.From
	if s.Log {
		// The log's muxer shifts negative times, so they count from the file's zero before they are logged.
		graph += fmt.Sprintf("asetpts=PTS-(%s)/TB,asplit[sound][log];[sound]", seconds(s.Zero))
		before = s.From
	}
	// The window begins at 0 in the graph, because first_pts counts samples at the source's rate, which the header may
	// state wrongly. first_pts fills with silence up to that point, or cuts. async fills gaps of more than 20 ms, such
	// as a lost packet or the start of a fragmented file, and never stretches. min_comp makes the first sample exact
	// too.
	graph += fmt.Sprintf("asetpts=PTS-(%s)/TB%s,aresample=%d:async=1:min_comp=0.00001:min_hard_comp=0.02:first_pts=0",
		seconds(before), s.remix(), s.SampleRate)
	if s.To > 0 {
		graph += fmt.Sprintf(",atrim=end_pts=%d", MulDiv(int64(s.To-s.From), int64(s.SampleRate), int64(time.Second)))
	}
	return append(args, "-filter_complex", graph+"[out]", "-map", "[out]")
}

// remix returns the filters that convert the channels to the layout and keep the level: mono goes to both sides of
// stereo at full level, and surround is folded down as in ITU-R BS.775 (centre and surrounds 3 dB down, no LFE). ffmpeg
// scales the sum down for integer samples but not for float samples, which may exceed full scale. The filters do not
// depend on the header, because the sound may change its channels midway.
func (s Sound) remix() string {
	// One channel is mono and two are stereo, whatever speakers the header names: ffmpeg has no conversion from "rear
	// left and rear right" to stereo, and attenuates "left" on its own. It describes such layouts as "2 channels
	// (BL+BR)".
	named := ""
	if strings.HasPrefix(s.Stream.Layout, fmt.Sprintf("%d channels (", s.Stream.Channels)) {
		named = map[int]string{
			1: ",channelmap=map=0-0:channel_layout=mono",
			2: ",channelmap=map=0-0|1-1:channel_layout=stereo",
		}[s.Stream.Channels]
	}
	switch s.Layout {
	case "":
		return named
	case "stereo":
		return named + ",aformat=sample_fmts=fltp,aformat=channel_layouts=mono|stereo,pan=stereo|FL=FL+FC|FR=FR+FC"
	}
	return named + ",aformat=sample_fmts=fltp,aformat=channel_layouts=" + s.Layout
}

// seconds formats a time for ffmpeg.
func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', 9, 64) }
