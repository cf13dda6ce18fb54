package media_test

import (
	"encoding/binary"
	"path/filepath"
	"testing"
	"time"

	"cutroom/internal/media"
	"cutroom/internal/media/container"
	"cutroom/internal/mediatest"
)

func measureVideo(t *testing.T, path string, opts media.MeasureOptions) media.Measured {
	t.Helper()
	all := measure(t, path, opts)
	for _, m := range all {
		if m.Type == "video" {
			return m
		}
	}
	t.Fatalf("no video in %+v", all)
	return media.Measured{}
}

func probe(t *testing.T, path string) media.Probe {
	t.Helper()
	p, err := newRunner(t).Probe(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func measure(t *testing.T, path string, opts media.MeasureOptions) []media.Measured {
	t.Helper()
	class, err := container.SniffFile(path)
	if err != nil {
		t.Fatal(err)
	}
	all, err := newRunner(t).Measure(t.Context(), path, class.Kind, opts)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestMeasureCountsPackets(t *testing.T) {
	t.Parallel()
	path := mediatest.Clip(t, mediatest.Spec{Width: 64, Height: 64, FPS: "30000/1001", Duration: 2 * time.Second, Tone: 440, GOP: 20, Output: []string{"-bf", "3"}})
	all := measure(t, path, media.MeasureOptions{})
	if len(all) != 2 || all[0].Type != "video" || all[1].Type != "audio" {
		t.Fatalf("%+v", all)
	}
	v, a := probe(t, path).VideoPackets, all[1]
	if all[0].Packets != 60 || all[0].Starts != nil {
		t.Errorf("video %+v", all[0])
	}
	frame := time.Duration(1001 * int64(time.Second) / 30000)
	if v.Packets != 60 || v.First != 0 || (v.End-60*1001*time.Second/30000).Abs() > time.Microsecond {
		t.Errorf("video %+v", v)
	}
	if len(v.Keyframes) != 3 || v.Keyframes[0] != 0 || (v.Keyframes[1]-20*frame).Abs() > time.Microsecond {
		t.Errorf("keyframes %v, want 3, every 20 frames", v.Keyframes)
	}
	if len(v.Starts) != 60 {
		t.Fatalf("%d starts, want 60", len(v.Starts))
	}
	for i, ticks := range v.Starts { // in presentation order, despite B-frames
		if want := int64(i) * 1001 * v.TimeBase.Den / (30000 * v.TimeBase.Num); ticks != want {
			t.Errorf("frame %d starts at tick %d, want %d", i, ticks, want)
		}
	}
	// The encoder's priming is discarded, the rest begins at zero.
	if a.First != 0 || (a.End-2*time.Second).Abs() > time.Millisecond || a.Discarded != 1 {
		t.Errorf("audio %+v", a)
	}
	if a.Codec != "aac" || a.SampleRate != 48000 || a.Cover || (a.Extent-95*1024*time.Second/48000).Abs() > time.Microsecond {
		t.Errorf("audio %+v: its extent has the priming and the rest of the last frame, too", a)
	}
}

func TestMeasureFindsTheSoundOfCompressedFiles(t *testing.T) {
	t.Parallel()
	specs := []mediatest.Spec{
		{Container: "mp3"}, {Container: "m4a"}, {Container: "ogg", AudioCodec: "libvorbis"}, {Container: "ogg", AudioCodec: "libopus"}, {Container: "webm", AudioCodec: "libopus"},
	}
	for i := range specs {
		specs[i].Tone, specs[i].Duration = 440, 3*time.Second
	}
	for i, path := range mediatest.Clips(t, specs...) {
		s, m := specs[i], measure(t, path, media.MeasureOptions{})[0]
		// Delay and padding are not sound: only the encoded samples remain. Packets of
		// webm are timed in milliseconds and hide its delay. The first packet of Vorbis
		// decodes to nothing.
		tolerance := time.Microsecond
		if s.Container == "webm" || s.AudioCodec == "libvorbis" {
			tolerance = 8 * time.Millisecond
		}
		if (m.Duration() - 3*time.Second).Abs() > tolerance {
			t.Errorf("%s %s: %v, want 3 s: %+v", s.Container, s.AudioCodec, m.Duration(), m)
		}
	}
}

func TestMeasureWithoutDurations(t *testing.T) {
	t.Parallel()
	// A live webm has no duration in the header and none on its last packet.
	path := mediatest.Clip(t, mediatest.Spec{Width: 64, Height: 64, Duration: 2 * time.Second, VideoCodec: "libvpx-vp9", Tone: 440, Container: "webm", Output: []string{"-deadline", "realtime", "-live", "1"}})
	p := probe(t, path)
	if p.Duration != 0 || p.Video.Duration != 0 {
		t.Errorf("the header claims %v, %v: this file shows nothing", p.Duration, p.Video.Duration)
	}
	all := measure(t, path, media.MeasureOptions{})
	for _, m := range all {
		// The muxer shifts everything by Opus' delay of 6.5 ms, rounded to its 1 ms
		// ticks.
		if m.First.Abs() > 8*time.Millisecond || (m.End-2*time.Second).Abs() > 25*time.Millisecond {
			t.Errorf("%s: %v..%v, want 0..2 s", m.Type, m.First, m.End)
		}
	}
}

func TestMeasureIgnoresFalseLengths(t *testing.T) {
	t.Parallel()
	path := mediatest.Clip(t, mediatest.Spec{Width: 64, Height: 64, Tone: 440})
	const claim = 143165 // seconds
	patchBoxes(t, path, "mvhd", func(b []byte) {
		binary.BigEndian.PutUint32(b[16:], claim*binary.BigEndian.Uint32(b[12:]))
	})
	p := probe(t, path)
	m := p.VideoPackets
	if m.Packets != 30 || (m.Duration()-time.Second).Abs() > time.Millisecond {
		t.Errorf("%+v (header: %v)", m, p.Duration)
	}
}

func TestMeasureFindsGapsAndLateStarts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	gap, late := filepath.Join(dir, "gap.mp4"), filepath.Join(dir, "late.mkv")
	mediatest.FFmpeg(t, "-f", "lavfi", "-i", "testsrc2=s=64x64:r=30:d=3", "-itsoffset", "0.7", "-f", "lavfi", "-t", "1", "-i", "sine=440:r=48000",
		"-map", "0", "-vf", "select='not(between(n,10,39))'", "-fps_mode", "passthrough", gap, "-map", "0", "-map", "1", "-c:a", "flac", late)
	m := probe(t, gap).VideoPackets
	if len(m.Starts) != 60 || float64(m.Starts[10]-m.Starts[9])*m.TimeBase.Float() < 1.03 {
		t.Errorf("starts %v, want a gap of 1.033 s at 0.3 s: %+v", m.Starts, m)
	}

	all := measure(t, late, media.MeasureOptions{})
	if a := all[1]; (a.First-700*time.Millisecond).Abs() > time.Millisecond || (a.End-1700*time.Millisecond).Abs() > 2*time.Millisecond {
		t.Errorf("late sound is at %v..%v", a.First, a.End)
	}
}

func TestMeasureHonoursEditLists(t *testing.T) {
	t.Parallel()
	// A copy cut at 1.5 s keeps the packets since the keyframe at 1 s and says in
	// an edit list that they are not to be shown.
	clip := mediatest.Clip(t, mediatest.Spec{Width: 64, Height: 64, Duration: 3 * time.Second, GOP: 30})
	cut := filepath.Join(t.TempDir(), "cut.mp4")
	mediatest.FFmpeg(t, "-ss", "1.5", "-i", clip, "-c", "copy", cut)
	m := measureVideo(t, cut, media.MeasureOptions{})
	if m.Discarded != 15 || m.Packets != 45 || m.First.Abs() > 40*time.Millisecond || (m.Duration()-1500*time.Millisecond).Abs() > 40*time.Millisecond {
		t.Errorf("%+v", m)
	}
	if m = measureVideo(t, cut, media.MeasureOptions{IgnoreEdits: true}); m.Discarded != 0 || m.Packets != 60 {
		t.Errorf("without its edit list %+v", m)
	}
}

func TestMeasureOneFrame(t *testing.T) {
	t.Parallel()
	m := measureVideo(t, mediatest.Clip(t, mediatest.Spec{Width: 64, Height: 64, FPS: "25", Duration: 40 * time.Millisecond}), media.MeasureOptions{})
	if m.Packets != 1 || m.Duration() != 40*time.Millisecond {
		t.Errorf("%+v", m)
	}
}
