package engine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"cutroom/internal/base/fault"
	"cutroom/internal/film/timeline"
)

// Two renders of which only one fits do not both pass the check of the disk.
func TestScratchSpaceIsReserved(t *testing.T) {
	const leave, free = 100, 1000
	left := int64(free)
	s := newScratch(func(string) (int64, error) { return left, nil })
	a, b := t.TempDir(), t.TempDir()
	reserve := func(dir string, bytes int64, fits bool) {
		t.Helper()
		if err := s.reserve(dir, bytes, leave); (err == nil) != fits || err != nil && !errors.Is(err, ErrNoSpace) {
			t.Fatalf("reserve %d bytes: %v", bytes, err)
		}
	}
	reserve(a, 901, false)
	reserve(a, 600, true)
	reserve(b, 301, false)
	reserve(b, 300, true)
	reserve(a, 600, true) // again: no second reservation
	// Bytes already written no longer need to be free.
	if err := os.WriteFile(filepath.Join(a, "part"), make([]byte, 500), 0o600); err != nil {
		t.Fatal(err)
	}
	left -= 500
	reserve(b, 300, true)
	reserve(b, 301, false)
	s.release(a)
	reserve(b, 400, true)
}

// A render may exceed its reservation while the disk has room, but not the size of its raw pictures.
func TestWhatARenderWritesIsBounded(t *testing.T) {
	const leave = 1 << 20
	var free int64
	p := &Plan{Canvas: Canvas{Width: 1000, Height: 1000}, Frames: 1000}
	dir := t.TempDir()
	r := &run{Engine: &Engine{scratch: newScratch(func(string) (int64, error) { return free, nil })}, work: dir, plan: p}
	r.cfg.Limits.MinFreeBytes = leave
	expected := p.scratchBytes()
	if expected != 3*1000*1000*1000/64 {
		t.Fatalf("%d bytes are expected", expected)
	}
	if err := os.WriteFile(filepath.Join(dir, "part"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what  string
		bytes int64
		files int
		room  int64 // beside the reserve
		want  string
	}{
		{"as expected, on a full disk", expected, 100, 0, ""},
		{"more than expected, with room", 2 * expected, 100, 3 * expected, ""},
		{"more than expected, on a full disk", 2 * expected, 100, 0, "the server has no room for this render at the moment"},
		{"more than raw pictures", 97*expected + 64<<20, 1, 1 << 50, "the render takes more disk space than a film of its size may"},
		{"too many files", 1, 101, 1 << 50, "the render takes more disk space than a film of its size may"},
	} {
		free = leave + c.room
		got := ""
		if err := r.watch(c.bytes, c.files); err != nil {
			got = fault.As(err).Answer()
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
	}
}

// Stems that play at the same time cost little to decode, but the mix of each costs its length.
func TestTheWorkOfMixingIsBounded(t *testing.T) {
	infos := map[string]*Info{"s": fakeVideo(r(30, 1), 300, 0)}
	tl := filmOf(ms(0, 10_000))
	tl.OutputKind = timeline.Audio
	for n := range mixedSounds {
		if _, err := plan(tl, infos, Limits{MaxSound: 10 * time.Second}); err != nil {
			t.Fatalf("%d stems: %v", n, err)
		}
		tl.Directives = append(tl.Directives, timeline.Directive{ID: fmt.Sprint(n), AppliedSpeed: 1, Range: timeline.Range{End: time.Minute},
			Selections: []timeline.Selection{{StemID: "voice_all", SourceKey: "s", Volume: 1}}})
	}
	_, err := plan(tl, infos, Limits{MaxSound: 10 * time.Second})
	f := fault.As(err)
	if f == nil || f.Reason != fault.SourceTooLarge || f.Answer() != "the sound is too much work: 170.0 s to mix, at most 160.0 s are accepted" {
		t.Error(err)
	}
}
