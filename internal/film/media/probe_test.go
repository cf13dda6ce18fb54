// Probes of files: what is opened, streams that are chosen, joined sound that loses frames.

package media_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"cutroom/internal/film/media"
	"cutroom/internal/film/media/container"
	"cutroom/internal/testkit/mediatest"
)

func probe(t *testing.T, path string) media.Probe {
	t.Helper()
	p, err := newRunner(t).Probe(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestForcedInputOpensNoPlaylist skips the check of the magic bytes. Even then a playlist cannot read the film beside
// it, although the pass may.
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

// The film is neither a larger track that never gets a packet, which fragmented files may declare, nor a few larger
// pictures beside it, as in a motion photo.
func TestProbeTakesTheRealVideo(t *testing.T) {
	t.Parallel()
	clips := mediatest.Clips(t, mediatest.Spec{Width: 64, Height: 64},
		mediatest.Spec{Width: 128, Height: 96, Duration: 100 * time.Millisecond})
	dir := t.TempDir()
	empty, photo := filepath.Join(dir, "empty.mp4"), filepath.Join(dir, "photo.mp4")
	mediatest.FFmpeg(t, "-i", clips[0], "-i", clips[1],
		"-map", "0", "-map", "1", "-c", "copy", "-bsf:v:1", "noise=drop=1", "-movflags", "frag_keyframe+empty_moov", empty,
		"-map", "0", "-map", "1", "-c", "copy", photo)
	for _, path := range []string{empty, photo} {
		if p := probe(t, path); p.Video.Index != 0 || p.Video.Width != 64 {
			t.Errorf("%s: %+v", filepath.Base(path), p.Video)
		}
	}
}

// TestProbeSurvivesDamage cuts and flips a film. The result comes soon and is a Probe or ErrNotMedia.
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

// Delay and padding are not sound: only the encoded samples remain.
func TestProbeFindsTheSoundOfCompressedFiles(t *testing.T) {
	t.Parallel()
	specs := []mediatest.Spec{{Container: "mp3"}, {Container: "m4a"}, {Container: "ogg", AudioCodec: "libopus"},
		{Container: "ogg", AudioCodec: "libvorbis"}, {Container: "webm", AudioCodec: "libopus"}}
	for i := range specs {
		specs[i].Tone, specs[i].Duration = 440, 3*time.Second
	}
	for i, path := range mediatest.Clips(t, specs...) {
		s, tolerance := specs[i], time.Microsecond
		if s.Container == "webm" || s.AudioCodec == "libvorbis" {
			// Packets of webm are timed in milliseconds and hide its delay. The first packet of Vorbis decodes to
			// nothing.
			tolerance = 8 * time.Millisecond
		}
		if m := probe(t, path).AudioPackets; (m.Duration() - 3*time.Second).Abs() > tolerance {
			t.Errorf("%s %s: %v, want 3 s: %+v", s.Container, s.AudioCodec, m.Duration(), m)
		}
	}
}

// Joined sound may lose a few frames at its ends, but not a fifth of a second anywhere.
func TestJoinedSoundThatLosesFrames(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	encoded := func(name, rate, channels string) []byte {
		path := filepath.Join(dir, name)
		mediatest.FFmpeg(t, "-f", "lavfi", "-i", "anoisesrc=a=0.2:d=2", "-ar", rate, "-ac", channels, path)
		file, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return file
	}
	first, second := encoded("first.aac", "44100", "1"), encoded("second.aac", "48000", "2")
	for _, c := range []struct {
		lost  int // frames of 21 ms
		fails bool
	}{{0, false}, {3, false}, {9, true}} {
		damaged := slices.Clone(second)
		const header = 7 // bytes of an ADTS header without a checksum
		for rest, i := damaged, 0; i < 20+c.lost; i++ {
			length := int(rest[3]&3)<<11 | int(rest[4])<<3 | int(rest[5])>>5
			for at := header; at < length && i >= 20; at++ {
				rest[at] = 0xff
			}
			rest = rest[length:]
		}
		path := filepath.Join(dir, "joined.aac")
		if err := os.WriteFile(path, slices.Concat(first, damaged), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := newRunner(t).Probe(t.Context(), path)
		if errors.Is(err, media.ErrNotMedia) != c.fails {
			t.Errorf("%d frames lost: %v", c.lost, err)
		}
	}
}
