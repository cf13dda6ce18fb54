package separation

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"cutroom/internal/benchtest"
	"cutroom/internal/credit"
	"cutroom/internal/fault"
	"cutroom/internal/media"
	"cutroom/internal/mediatest"
	"cutroom/internal/staging"
)

// judging is a Service that can judge uploads and nothing else.
func judging(t *testing.T) *Service {
	t.Helper()
	runner, err := media.New(media.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return New(Options{Media: runner, Log: slog.New(slog.DiscardHandler)})
}

func upload(t *testing.T, path string) staging.File {
	t.Helper()
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return staging.File{Path: path, FileName: filepath.Base(path), SizeBytes: st.Size()}
}

// silence encodes so many seconds of silence.
func silence(t *testing.T, seconds float64, name string, args ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	mediatest.FFmpeg(t, append(append([]string{"-f", "lavfi", "-i", "anullsrc=r=8000:cl=mono", "-t", fmt.Sprint(seconds)}, args...), path)...)
	return path
}

// patched changes the content of each box of a name.
func patched(t *testing.T, path, box string, edit func(content []byte)) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for at := 0; ; n++ {
		i := bytes.Index(b[at:], []byte(box))
		if i < 0 {
			break
		}
		at += i + 4
		edit(b[at:])
	}
	if n == 0 {
		t.Fatalf("no box %s in %s", box, path)
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestPriceIsOfTheRealLength prices honest files by the table and dishonest ones
// by what they hold.
func TestPriceIsOfTheRealLength(t *testing.T) {
	s := judging(t)
	fast := func(b []byte) { binary.BigEndian.PutUint32(b[12:], 1000*binary.BigEndian.Uint32(b[12:])) }
	glimpse := func(b []byte) { binary.BigEndian.PutUint32(b[8:], 2000) } // shows two seconds
	aac, mp3 := []string{"-c:a", "aac", "-b:a", "16k"}, []string{"-ar", "44100", "-b:a", "32k"}
	for name, c := range map[string]struct {
		path  string
		price int64
	}{
		"wav at the boundary":      {silence(t, 301, "a.wav", "-c:a", "pcm_u8"), 1},
		"wav beyond it":            {silence(t, 301.1, "a.wav", "-c:a", "pcm_u8"), 2},
		"padded mp3":               {silence(t, 301, "a.mp3", mp3...), 1},
		"mp3 beyond it":            {silence(t, 301.1, "a.mp3", mp3...), 2},
		"primed m4a":               {silence(t, 301, "a.m4a", aac...), 1},
		"m4a beyond it":            {silence(t, 301.2, "a.m4a", aac...), 2},
		"m4a on a fast clock":      {patched(t, silence(t, 650, "a.m4a", aac...), "mdhd", fast), 3},
		"m4a behind an edit list":  {patched(t, silence(t, 650, "a.m4a", aac...), "elst", glimpse), 3},
		"m4a at the boundary, cut": {patched(t, silence(t, 301, "a.m4a", aac...), "elst", glimpse), 1},
		"mp3 behind a comment":     {silence(t, 650, "a.mp3", "-b:a", "8k", "-metadata", "comment="+strings.Repeat("x", 100_000)), 3},
	} {
		got, err := s.classify(t.Context(), upload(t, c.path))
		if err != nil || credit.Price(got.durationMs) != c.price {
			t.Errorf("%s: %d ms cost %d (%v), want %d", name, got.durationMs, credit.Price(got.durationMs), err, c.price)
		}
	}
}

// TestUnmeasuredIsPricedByItsFrames takes ffprobe away.
func TestUnmeasuredIsPricedByItsFrames(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "ffprobe")
	if err := os.WriteFile(broken, []byte("#!/bin/sh\nexit 1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	runner, err := media.New(media.Config{FFprobe: broken})
	if err != nil {
		t.Fatal(err)
	}
	s := judging(t)
	s.Media = runner
	for _, path := range []string{silence(t, 650, "a.mp3", "-b:a", "8k"), silence(t, 650, "a.m4a", "-c:a", "aac", "-ar", "48000", "-b:a", "6k")} {
		got, err := s.classify(t.Context(), upload(t, path))
		if err != nil || got.durationMs < 640_000 || got.durationMs > 700_000 {
			t.Errorf("%s: %+v, %v, want about 650 s", filepath.Base(path), got, err)
		}
	}
}

// TestAnalysisIsBounded sends in many files at once, some of them hostile.
func TestAnalysisIsBounded(t *testing.T) {
	s := judging(t)
	// Twenty million samples of one byte each.
	hostile := silence(t, 1, "hostile.m4a", "-c:a", "aac")
	patched(t, hostile, "stsz", func(b []byte) { binary.BigEndian.PutUint32(b[4:], 1); binary.BigEndian.PutUint32(b[8:], 20_000_000) })
	patched(t, hostile, "stts", func(b []byte) { binary.BigEndian.PutUint32(b[8:], 20_000_000); binary.BigEndian.PutUint32(b[12:], 2) })
	patched(t, hostile, "stsc", func(b []byte) { binary.BigEndian.PutUint32(b[12:], 20_000_000) })
	if err := os.Truncate(hostile, 20<<20); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if got, err := s.classify(t.Context(), upload(t, hostile)); err == nil && credit.Price(got.durationMs) < 8 {
		t.Errorf("the hostile file costs as much as %d ms", got.durationMs)
	}
	// On a slow machine it is the time-out that ends it, and the rest takes its time, too.
	if took := time.Since(began); took > analysisTimeout+30*time.Second {
		t.Errorf("the hostile file took %v", took)
	}

	small := upload(t, silence(t, 1, "small.mp3"))
	s.analysisWait = time.Minute
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			if _, err := s.classify(t.Context(), small); err != nil {
				t.Errorf("judge: %v", err)
			}
		})
	}
	done, most := make(chan struct{}), 0
	go func() { all.Wait(); close(done) }()
	for running := true; running; {
		select {
		case <-done:
			running = false
		case <-time.After(5 * time.Millisecond):
			most = max(most, probing())
		}
	}
	if most == 0 || most > runtime.GOMAXPROCS(0) {
		t.Errorf("%d ffprobe at once, want 1 to %d", most, runtime.GOMAXPROCS(0))
	}

	s.analysisWait = 20 * time.Millisecond
	for range runtime.GOMAXPROCS(0) {
		release, err := s.analyses.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer release()
	}
	_, err := s.classify(t.Context(), small)
	if f := fault.As(err); f == nil || f.Kind != fault.Unavailable || f.Code != "unavailable" || f.RetryAfter <= 0 {
		t.Errorf("without a place: %v, want 503 unavailable", err)
	}
	if _, err := s.classify(t.Context(), upload(t, silence(t, 1, "a.flac"))); !errors.Is(err, errUnsupported) {
		t.Errorf("what is refused by its content needs no place: %v", err)
	}
}

// probing counts the ffprobe that this process runs.
func probing() (n int) {
	for _, pid := range benchtest.Family(os.Getpid()) {
		if name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); string(name) == "ffprobe\n" { // none where it ended
			n++
		}
	}
	return n
}
