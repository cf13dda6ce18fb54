package engine_test

import (
	"bytes"
	"encoding/binary"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cutroom/internal/testkit/mediatest"
)

// Recorders stamp packets of sound when they arrive, sometimes several at once. The sound plays on, and a real pause
// stays.
func TestSoundWhoseClockJitters(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for name, args := range map[string][]string{
		"four.m4a":  {"-c:a", "aac", "-bsf:a", `setts=ts=4096*floor(N/4)+mod(N\,4)`},
		"pause.m4a": {"-c:a", "aac", "-bsf:a", `setts=ts=4096*floor(N/4)+mod(N\,4)+if(gte(N\,120)\,24000)`}, // half a second
	} {
		path := filepath.Join(t.TempDir(), name)
		mediatest.FFmpeg(t, append(append([]string{"-f", "lavfi", "-i", "sine=440:r=48000:d=5"}, args...), path)...)
		out := b.render(t, sound(cut(path, 0, 0)))
		if strings.HasPrefix(name, "pause") {
			if d := mediatest.Silent(t, out.Path, 0.003, mediatest.Between(2500, 3300)); d < 400*time.Millisecond {
				t.Errorf("%s: %v of silence in the pause", name, d)
			}
			continue
		}
		if residual, at := mediatest.Discontinuity(t, out.Path, 440, mediatest.Between(100, 4800)); residual > 0.01 {
			t.Errorf("%s: residual %.4f at %v", name, residual, at)
		}
		near(t, name+": length", out.Duration.Seconds(), 5, 0.1)
	}
}

// Two speakers are stereo and one is mono, whatever their names, and samples of 24 bits may lie in 32.
func TestSoundWithUnusualHeaders(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	made := func(graph string, args ...string) string {
		path := filepath.Join(t.TempDir(), "sound.wav")
		mediatest.FFmpeg(t, append(append([]string{"-f", "lavfi", "-i", "aevalsrc=0.25*sin(2*PI*440*t)|0.25*sin(2*PI*440*t):s=48000:d=1", "-af", graph}, args...), path)...)
		return path
	}
	for name, path := range map[string]string{
		"rear": made("channelmap=0-BL|1-BR:BL+BR"), "left": made("pan=mono|c0=c0,channelmap=0-FL:FL"),
		"24 of 32": altered(t, made("anull", "-c:a", "pcm_s32le"), func(file []byte) []byte {
			at := bytes.Index(file, []byte("fmt ")) + 8
			binary.LittleEndian.PutUint16(file[at+18:], 24) // valid bits
			return file
		}),
	} {
		out := b.render(t, sound(cut(path, 0, 0)))
		near(t, name, mediatest.ToneLevel(t, out.Path, 440, mediatest.Between(100, 900)), db(0.25), 0.2)
	}
}

// A file fails with a sentence if ffmpeg would silently drop or misplace part of it.
func TestFilesThatFfmpegReadsOtherwise(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	clip := mediatest.Clip(t, mediatest.Spec{Width: 160, Height: 120, Duration: time.Second, Tone: 440})
	fragmented := filepath.Join(t.TempDir(), "fragmented.mp4")
	mediatest.FFmpeg(t, "-i", clip, "-c", "copy", "-movflags", "frag_keyframe+empty_moov+default_base_moof", fragmented)
	edit := func(change func(entry []byte)) string {
		return altered(t, clip, func(file []byte) []byte {
			at := bytes.Index(file, []byte("elst"))
			if at < 0 {
				t.Fatal("no edit list")
			}
			change(file[at+12:])
			return file
		})
	}
	for name, c := range map[string]struct{ path, want string }{
		"two recordings": {altered(t, fragmented, func(file []byte) []byte { return append(file, file...) }), "several recordings"},
		"another speed":  {edit(func(entry []byte) { binary.BigEndian.PutUint32(entry[8:], 1<<15) }), "an edit list with a pause or with another speed"},
	} {
		if got := b.fails(t, film(cut(c.path, 0, 0))); !strings.HasPrefix(got, "source_unreadable: segments[0]: the file ") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
