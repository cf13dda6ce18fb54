// The parsers of ffprobe's output, on text: whatever pieces it arrives in, of whichever version, and however large.

package media

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"cutroom/internal/film/media/container"
)

func TestTicksToDuration(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		ticks int64
		base  Rational
		want  time.Duration
	}{
		{0, Rational{1, 90000}, 0},
		{1, Rational{1, 3}, 333333333},
		{2, Rational{1, 3}, 666666667},
		{-1, Rational{1, 3}, -333333333},
		{30000, Rational{1001, 30000}, 1001 * time.Second},
		{14112000 * 3600, Rational{1, 14112000}, time.Hour},
		{math.MaxInt64, Rational{1, 1}, math.MaxInt64},
		{math.MaxInt64, Rational{1, 1e9}, math.MaxInt64},
		{math.MinInt64, Rational{1 << 30, 1}, -math.MaxInt64},
		{5, Rational{}, 0},
	} {
		if got := ticksToDuration(c.ticks, c.base); got != c.want {
			t.Errorf("%d x %v = %d, want %d", c.ticks, c.base, got, c.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		ticks := rapid.Int64().Draw(t, "ticks")
		base := Rational{rapid.Int64Range(1, math.MaxInt32).Draw(t, "num"), rapid.Int64Range(1, math.MaxInt32).Draw(t, "den")}
		got := float64(ticksToDuration(ticks, base))
		want := float64(ticks) * (float64(base.Num) / float64(base.Den)) * 1e9
		want = math.Min(math.Max(want, -math.MaxInt64), math.MaxInt64)
		if math.Abs(got-want) > math.Max(1, math.Abs(want)*1e-12) {
			t.Fatalf("%d x %v = %v, want %v", ticks, base, got, want)
		}
	})
}

func TestParseSeconds(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"1.023021": 1023021 * time.Microsecond, "0.000000": 0, "-0.007000": -7 * time.Millisecond,
		"143165.576533": 143165576533 * time.Microsecond, "1e300": math.MaxInt64, "-1e300": -math.MaxInt64,
		"N/A": 0, "": 0, "nan": 0,
	} {
		if got := parseSeconds(text); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

func TestParseRational(t *testing.T) {
	for text, want := range map[string]Rational{
		"30000/1001": {30000, 1001}, "4:3": {4, 3}, "0/0": {}, "0:1": {}, "30": {}, "": {}, "-1/2": {}, "x/y": {}, "1/2147483648": {},
	} {
		if got := parseRational(text); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

func TestAbsurdPixelShapesAreIgnored(t *testing.T) {
	for _, sar := range []Rational{{1000000, 1}, {1, 1000000}} {
		if w, h := displaySize(640, 360, sar); w != 640 || h != 360 {
			t.Errorf("pixels of %v: %dx%d", sar, w, h)
		}
	}
}

// measured returns what a scan makes of ffprobe's output, which arrives in parts.
func measured(t *testing.T, parts ...string) []Measured {
	t.Helper()
	s := newPacketScan(MeasureOptions{})
	for _, part := range parts {
		if _, err := s.Write([]byte(part)); err != nil {
			t.Fatal(err)
		}
	}
	return s.finish()
}

// TestPacketScanDoesNotCareHowOutputArrives splits the same output at every position.
func TestPacketScanDoesNotCareHowOutputArrives(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for i := range 40 {
		fmt.Fprintf(&b, "packet|stream_index=%d|pts=%d|dts=N/A|duration=512|size=10|flags=K_\n", i%2, i/2*512)
	}
	b.WriteString("\nstream|index=0|codec_type=video|time_base=1/15360\nstream|index=1|codec_type=audio|sample_rate=48000|time_base=1/15360\n")
	text := b.String()
	for cut := range len(text) {
		all := measured(t, text[:cut], text[cut:])
		if len(all) != 2 || all[0].Packets != 20 || all[1].Packets != 20 || all[0].End != ticksToDuration(20*512, Rational{1, 15360}) {
			t.Fatalf("cut at %d: %+v", cut, all)
		}
	}
}

// TestPacketScanRemembersSoManyFrames scans a file with many tracks, which may all refer to the same few bytes. The
// server's memory must not grow with them.
func TestPacketScanRemembersSoManyFrames(t *testing.T) {
	s := probing()
	s.frames = maxAllFrames - 9000
	for i := range 2000 {
		for stream := range 20 {
			fmt.Fprintf(s, "packet|codec_type=%s|stream_index=%d|pts=%d|dts=0|duration=1|size=1|flags=K_\n", []string{"video", "audio"}[stream%2], stream, i)
		}
	}
	remembered := 0
	for index, stream := range s.streams {
		if remembered += len(stream.starts); len(stream.order) > reorderDepth || len(stream.keyframes) != len(stream.starts) || index%2 == 1 && stream.starts != nil {
			t.Errorf("stream %d: %d starts, %d keyframes", index, len(stream.starts), len(stream.keyframes))
		}
	}
	if remembered != 9000 {
		t.Errorf("%d frames are remembered, want 9000", remembered)
	}
}

// probing is a scan that remembers frames.
func probing() *packetScan {
	s := newPacketScan(MeasureOptions{})
	s.wantFrames = true
	return s
}

// TestLengthCannotBeShortened checks that clocks and edit lists do not shorten Samples and Span.
func TestLengthCannotBeShortened(t *testing.T) {
	header := func(text string) string { return "stream|index=0|codec_type=audio|" + text + "\n" }
	packets := func(n, step int, flags string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "packet|stream_index=0|pts=%d|dts=%d|duration=%d|size=400|flags=%s\n", i*step, i*step, step, flags)
		}
		return b.String()
	}
	const second = time.Second
	for name, c := range map[string]struct {
		scan string
		want time.Duration
	}{
		"AAC":                  {packets(100, 1024, "K_") + header("codec_name=aac|profile=LC|sample_rate=48000|time_base=1/48000"), 102400 * second / 48000},
		"AAC on a fast clock":  {packets(100, 1024, "K_") + header("codec_name=aac|profile=LC|sample_rate=48000|time_base=1/48000000"), 102400 * second / 48000},
		"HE-AAC":               {packets(100, 1, "K_") + header("codec_name=aac|profile=HE-AACv2|sample_rate=48000|time_base=1/48000"), 204800 * second / 48000},
		"AAC-LD":               {packets(100, 0, "K_") + header("codec_name=aac|profile=LD|sample_rate=48000|time_base=1/48000"), 51200 * second / 48000},
		"MP3 of a low rate":    {packets(100, 0, "K_") + header("codec_name=mp3|profile=unknown|sample_rate=16000|time_base=1/1000"), 57600 * second / 16000},
		"PCM by its bytes":     {packets(100, 0, "K_") + header("codec_name=pcm_s16le|sample_rate=8000|channels=1|bits_per_sample=16|time_base=1/8000"), 20000 * second / 8000},
		"discarded":            {packets(100, 1000, "KD") + header("codec_name=flac|sample_rate=48000|time_base=1/1000"), 100 * second},
		"unknown codec, clock": {packets(100, 1000, "K_") + header("codec_name=wmav2|sample_rate=48000|time_base=1/1000"), 100 * second},
		"no end of time":       {"packet|stream_index=0|pts=-9223372036854775807|duration=1\npacket|stream_index=0|pts=9223372036854775800|duration=1\n" + header("sample_rate=1|time_base=1/1"), math.MaxInt64},
	} {
		m := measured(t, c.scan)[0]
		if got := max(m.Span, m.Samples); (got - c.want).Abs() > time.Microsecond {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestPacketScanEnds(t *testing.T) {
	s := newPacketScan(MeasureOptions{MaxPackets: 10})
	line := "packet|stream_index=0|pts=1|dts=1|duration=1|size=1|flags=K_\n"
	_, err := io.WriteString(s, strings.Repeat(line, 10))
	if _, tooMany := io.WriteString(s, line); err != nil || !errors.Is(tooMany, ErrTooManyPackets) {
		t.Errorf("ten packets: %v; eleven: %v, want the limit", err, tooMany)
	}
}

func FuzzPacketScan(f *testing.F) {
	f.Add([]byte("packet|stream_index=0|pts=1|dts=1|duration=9223372036854775807|size=1|flags=KD\nstream|index=0|codec_type=video|time_base=1/1\n"))
	f.Add([]byte("stream|index=0|codec_name=h264|codec_type=video|width=9223372036854775807|height=1|sample_aspect_ratio=1:2|displaymatrix=\\n0: 0 1 0\\n\nformat|duration=1e400\n"))
	f.Add([]byte("packet|stream_index=-1|pts=N/A\nstream|index=99999999999999999999|codec_type=audio\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		s := probing()
		if _, err := s.Write(b); err != nil {
			return
		}
		if len(s.streams) > maxScanStreams {
			t.Fatalf("%d streams remembered", len(s.streams))
		}
		for _, m := range s.finish() {
			if m.Span < 0 || m.Samples < 0 {
				t.Fatalf("%+v", m)
			}
		}
		if p := s.probe(container.MP4); p.Video != nil && p.Video.DisplayWidth <= 0 {
			t.Fatalf("%+v", p.Video)
		}
	})
}

func TestDisplayMatrixIsRounded(t *testing.T) {
	// 44 degrees clockwise is nearer to upright.
	if o := parseDisplayMatrix("0: 47143 45525 0\n1: -45525 47143 0\n2: 0 0 1073741824\n"); o != (Orientation{}) {
		t.Errorf("44 degrees: %+v", o)
	}
}

func TestTailKeepsTheEnd(t *testing.T) {
	var all strings.Builder
	k := &tail{limit: 100}
	for i := range 60 {
		fmt.Fprint(io.MultiWriter(&all, k), strings.Repeat(fmt.Sprint(i%10), i))
	}
	if want := all.String()[all.Len()-100:]; k.String() != want {
		t.Errorf("%q, want %q", k.String(), want)
	}
}

// TestScanReadsEveryFFprobe gives the scan one file's packets as ffprobe 5 and as ffprobe 7 and later print them.
func TestScanReadsEveryFFprobe(t *testing.T) {
	for version, section := range map[string][2]string{
		"5": {"side_data|", "\n"},
		"7": {"side_datum/skip_samples:", ""},
	} {
		field := strings.TrimSuffix(section[0], "side_data|") // a prefix of each field in 7
		out := "packet|stream_index=0|pts=0|dts=0|duration=1152|size=192|flags=K_|" + section[0] + "skip_samples=1105|" + field + "discard_padding=0\n" + section[1] +
			"packet|stream_index=0|pts=1152|dts=1152|duration=1152|size=192|flags=K_|" + section[0] + "skip_samples=0|" + field + "discard_padding=47\n" + section[1] +
			"stream|index=0|codec_type=audio|sample_rate=48000|time_base=1/48000\n"
		m := measured(t, out)[0]
		if m.First != 1105*time.Second/48000 || (m.Duration()-1152*time.Second/48000).Abs() > time.Microsecond {
			t.Errorf("ffprobe %s: %+v", version, m)
		}
	}
}

// TestCheckCoversEverythingThatPlansUse compares the list with the engine's golden plans.
func TestCheckCoversEverythingThatPlansUse(t *testing.T) {
	listed := map[string]bool{}
	for _, need := range needs {
		for _, name := range need.names {
			listed[need.kind+" "+name] = true
		}
	}
	goldens, err := filepath.Glob("../engine/testdata/*.golden")
	if err != nil || len(goldens) == 0 {
		t.Fatalf("no golden plans: %v", err)
	}
	label := regexp.MustCompile(`'[^']*'|\[[^]]*\]|@[a-z-]*`) // and quoted text and filter names
	used := map[string]bool{}
	for _, path := range goldens {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		option, kind := "", "demuxer"
		for line := range strings.Lines(string(text)) {
			arg := strings.TrimSpace(line)
			switch option {
			case "-filter_complex":
				for _, filter := range strings.FieldsFunc(label.ReplaceAllString(arg, ""), func(r rune) bool { return r == ',' || r == ';' }) {
					name, _, _ := strings.Cut(filter, "=")
					used["filter "+name] = true
				}
			case "-c:v", "-c:a":
				used["encoder "+arg] = true
			case "-f":
				used[kind+" "+arg] = true
			case "-map":
				kind = "muxer" // every input is named
			}
			if option = arg; arg == "" {
				kind = "demuxer"
			}
		}
	}
	delete(used, "encoder copy")
	for name := range used {
		if !listed[name] {
			t.Errorf("a plan uses the %s, which Check does not look for", name)
		}
	}
	if len(used) < 25 {
		t.Errorf("the plans use only %v", used)
	}
}
