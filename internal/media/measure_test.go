package media_test

import (
	"testing"
	"time"

	"cutroom/internal/media"
	"cutroom/internal/media/container"
	"cutroom/internal/mediatest"
)

func probe(t *testing.T, path string) media.Probe {
	t.Helper()
	p, err := newRunner(t).Probe(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func measure(t *testing.T, path string) []media.Measured {
	t.Helper()
	class, err := container.SniffFile(path)
	if err != nil {
		t.Fatal(err)
	}
	all, err := newRunner(t).Measure(t.Context(), path, class.Kind, media.MeasureOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestMeasureCountsPackets(t *testing.T) {
	t.Parallel()
	path := mediatest.Clip(t, mediatest.Spec{Width: 64, Height: 64, FPS: "30000/1001", Duration: 2 * time.Second, Tone: 440, GOP: 20, Output: []string{"-bf", "3"}})
	all := measure(t, path)
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
		s, m := specs[i], measure(t, path)[0]
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
