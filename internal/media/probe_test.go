package media_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cutroom/internal/media"
	"cutroom/internal/media/container"
	"cutroom/internal/mediatest"
)

// TestForcedInputOpensNoPlaylist skips the check of the magic bytes. Even then a playlist
// cannot read the film beside it, although the pass may.
func TestForcedInputOpensNoPlaylist(t *testing.T) {
	t.Parallel()
	r, dir := newRunner(t), t.TempDir()
	sibling := filepath.Join(dir, "sibling.mp4")
	if err := os.Rename(mediatest.Clip(t, mediatest.Spec{Width: 64, Height: 64}), sibling); err != nil {
		t.Fatal(err)
	}
	encode := func(input ...string) error {
		_, err := r.Encode(t.Context(), media.Pass{
			Name: "open", Dir: dir, Timeout: time.Minute, Args: append(input, "-f", "null", "-"),
		})
		return err
	}
	for _, name := range []string{"ffconcat", "hls"} {
		path := filepath.Join(dir, name+".mp4")
		if err := os.WriteFile(path, []byte(mediatest.NotMedia[name]), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := encode("-i", "file:"+path); err != nil && name == "ffconcat" {
			t.Errorf("%s does no harm even unforced, so this test shows nothing: %v", name, err)
		}
		for _, kind := range []container.Kind{container.MP4, container.Unknown} {
			if err := encode(media.InputArgs(kind, path)...); err == nil {
				t.Errorf("%s was opened as %v", name, kind)
			}
		}
	}
	if err := encode(media.InputArgs(container.MP4, sibling)...); err != nil {
		t.Errorf("a film was refused: %v", err)
	}
}

func TestInputArgsForceTheDemuxer(t *testing.T) {
	got := strings.Join(media.InputArgs(container.MP4, "/job/-in put.mp4"), " ")
	if want := "-protocol_whitelist file -format_whitelist mov -f mov -i file:/job/-in put.mp4"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	for kind, demuxer := range map[container.Kind]string{container.WAV: "wav", container.Matroska: "matroska", container.MP3: "mp3", container.AAC: "aac", container.FLAC: "flac", container.Ogg: "ogg"} {
		want := fmt.Sprintf("-protocol_whitelist file -format_whitelist %s -f %[1]s -i file:/x", demuxer)
		if got := strings.Join(media.InputArgs(kind, "/x"), " "); got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
}

func TestProbeDescribesAFilm(t *testing.T) {
	t.Parallel()
	path := mediatest.Clip(t, mediatest.Spec{
		Width: 320, Height: 240, FPS: "30000/1001", Duration: 2 * time.Second, Tone: 440, Channels: 1, SampleRate: 44100,
		PixelFormat: "yuv420p10le", Container: "mov",
		Output: []string{"-vf", "setsar=4/3,setparams=range=tv:colorspace=bt2020nc:color_trc=arib-std-b67:color_primaries=bt2020"},
	})
	p := probe(t, path)
	v := *p.Video
	if v.Codec != "h264" || v.Width != 320 || v.Height != 240 || v.SAR != (media.Rational{Num: 4, Den: 3}) || v.DisplayWidth != 427 || v.DisplayHeight != 240 {
		t.Errorf("picture %+v", v)
	}
	if v.AvgFrameRate != (media.Rational{Num: 30000, Den: 1001}) || v.FrameRate != v.AvgFrameRate || v.Frames != 60 {
		t.Errorf("rate %+v", v)
	}
	if v.PixelFormat != "yuv420p10le" || v.BitDepth != 10 || v.ColorRange != "tv" || v.ColorSpace != "bt2020nc" || v.ColorPrimaries != "bt2020" || !v.HDR() || v.Interlaced() {
		t.Errorf("colour %+v", v)
	}
	if v.Start != 0 || (v.Duration-2002*time.Millisecond).Abs() > time.Millisecond {
		t.Errorf("video %v + %v", v.Start, v.Duration)
	}
	a := *p.Audio
	if a.Codec != "aac" || a.Index != 1 || a.SampleRate != 44100 || a.Channels != 1 || (a.Duration-2*time.Second).Abs() > time.Millisecond {
		t.Errorf("audio %+v", a)
	}
	if p.Kind != container.MP4 || p.Streams != 2 {
		t.Errorf("%+v", p)
	}
}

func TestProbeTakesTheLargestRealVideo(t *testing.T) {
	t.Parallel()
	clips := mediatest.Clips(t, mediatest.Spec{Width: 64, Height: 64, Tone: 440}, mediatest.Spec{Width: 128, Height: 96},
		mediatest.Spec{Width: 128, Height: 96, Duration: 100 * time.Millisecond})
	dir := t.TempDir()
	both, empty, photo := filepath.Join(dir, "both.mp4"), filepath.Join(dir, "empty.mp4"), filepath.Join(dir, "photo.mp4")
	// A fragmented file declares its tracks before any of them has a packet. The large
	// one of empty never gets any. A motion photo contains a few larger pictures beside
	// its film.
	mediatest.FFmpeg(t, "-i", clips[0], "-i", clips[1], "-i", clips[2],
		"-map", "0:v", "-map", "1:v", "-map", "0:a", "-c", "copy", both,
		"-map", "0:v", "-map", "1:v", "-map", "0:a", "-c", "copy", "-bsf:v:1", "noise=drop=1", "-movflags", "frag_keyframe+empty_moov", empty,
		"-map", "0:v", "-map", "2:v", "-map", "0:a", "-c", "copy", photo)
	if p := probe(t, both); p.Video.Index != 1 || p.Video.Width != 128 || p.Audio.Index != 2 {
		t.Errorf("video %+v of %+v", p.Video, p)
	}
	if p := probe(t, empty); p.Video.Index != 0 || p.Video.Width != 64 {
		t.Errorf("the empty track was chosen: %+v", p.Video)
	}
	if p := probe(t, photo); p.Video.Index != 0 || p.Video.Width != 64 {
		t.Errorf("the stills were chosen: %+v", p.Video)
	}
}

// TestProbeSurvivesDamage cuts and flips a film. The result comes soon and is a Probe or
// ErrNotMedia.
func TestProbeSurvivesDamage(t *testing.T) {
	t.Parallel()
	r := newRunner(t)
	whole, err := os.ReadFile(mediatest.Clip(t, mediatest.Spec{Width: 64, Height: 64, Tone: 440, Output: []string{"-movflags", "+faststart"}}))
	if err != nil {
		t.Fatal(err)
	}
	index := bytes.Index(whole, []byte("moov"))
	damaged := map[string][]byte{
		"cut in the index": whole[:index+100],
		"cut in the media": whole[:len(whole)*3/4],
		"only a brand":     whole[:32],
	}
	for i := range 3 {
		b := bytes.Clone(whole)
		for at := index + i; at < len(b); at += 97 + 31*i {
			b[at] ^= byte(1 << (at % 8))
		}
		damaged[fmt.Sprintf("flipped %d", i)] = b
	}
	for name, b := range damaged {
		path := filepath.Join(t.TempDir(), "x.mp4")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Probe(t.Context(), path); err != nil && !errors.Is(err, media.ErrNotMedia) {
			t.Errorf("probe, %s: %v", name, err)
		}
	}
}
