package container_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cutroom/internal/film/media/container"
	"cutroom/internal/testkit/mediatest"
)

// TestReadTables compares what the index of ten seconds of sound declares.
func TestReadTables(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args    []string
		codec   string
		packets int64 // at least; an encoder adds a few
	}{
		"m4a":            {[]string{"-c:a", "aac"}, "mp4a", 469},
		"fragmented m4a": {[]string{"-c:a", "aac", "-movflags", "empty_moov+frag_keyframe", "-frag_duration", "1000000"}, "mp4a", 469},
		"alac":           {[]string{"-c:a", "alac"}, "alac", 118},
		"PCM":            {[]string{"-c:a", "pcm_s16le", "-f", "mov"}, "sowt", 468},
	} {
		path := filepath.Join(t.TempDir(), "a.m4a")
		mediatest.FFmpeg(t, append(append([]string{"-f", "lavfi", "-i", "anullsrc=r=48000:cl=mono", "-t", "10"}, c.args...), path)...)
		got, err := container.ReadTables(path)
		if err != nil || len(got.Tracks) != 1 || got.Compressed {
			t.Fatalf("%s: %+v, %v", name, got, err)
		}
		track := got.Tracks[0]
		seconds, counted := track.Seconds()
		if !track.Sound || track.Codec != c.codec || track.Rate != 48000 || !counted || seconds != 10 ||
			track.Packets() < c.packets || track.Packets() > c.packets+3 {
			t.Errorf("%s: %+v, %d packets of %d s (%v)", name, track, track.Packets(), seconds, counted)
		}
	}
}

func TestReadTablesIsBounded(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.m4a")
	for name, c := range map[string]struct {
		content string
		want    error
	}{
		"a million boxes": {strings.Repeat(box(8, "free", ""), 1<<20+1), container.ErrTooManyBoxes},
		"many tracks":     {nest(strings.Repeat(box(8, "trak", ""), 300), "moov"), container.ErrTooManyBoxes},
		"deep nesting":    {nest("", strings.Split(strings.Repeat("moov ", 1000)+"moov", " ")...), nil},
		"cut off":         {box(1000, "moov", box(1000, "trak", box(1000, "stsz", ""))), nil},
	} {
		if err := os.WriteFile(path, []byte(c.content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := container.ReadTables(path); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	if err := os.WriteFile(path, []byte(nest(box(16, "cmov", "12345678"), "moov")), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := container.ReadTables(path); err != nil || !got.Compressed {
		t.Errorf("a compressed index: %+v, %v", got, err)
	}
}
