// Package mediatest makes small clips for tests and measures films: durations, frames, pixels, levels, tones and the
// sync of audio and video. It decodes the media to measure it.
//
// It runs ffmpeg and ffprobe from PATH directly, not through the service's code, so a mistake there cannot affect both
// sides of a comparison. All functions end the test if a tool fails.
package mediatest

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"cutroom/internal/sandbox/process"
)

// FFmpeg runs ffmpeg with args, after -nostdin -hide_banner -loglevel error -y, and returns what it wrote to stdout.
func FFmpeg(t testing.TB, args ...string) (out []byte) {
	t.Helper()
	recall(t, args, func() {
		t.Helper()
		args := append([]string{"-nostdin", "-hide_banner", "-loglevel", "error", "-y"}, args...)
		var err error
		if out, err = process.Output(t.Context(), "ffmpeg", args...); err != nil {
			t.Fatalf("%s: %v", strings.Join(args, " "), err)
		}
	})
	return out
}

// results caches measurements. Tests measure the same film many times, and starting ffmpeg costs as much as decoding a
// short film.
var results sync.Map

// resultKey identifies a measurement of one version of a file.
type resultKey struct {
	what, path     string
	size, modified int64
}

// once calls read unless its result for this version of the file is cached. The cache keeps the result until the test
// ends.
func once[T any](t testing.TB, what, path string, read func() T) T {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	key := resultKey{what, path, info.Size(), info.ModTime().UnixNano()}
	if known, ok := results.Load(key); ok {
		return known.(T)
	}
	result := read()
	results.Store(key, result)
	t.Cleanup(func() { results.Delete(key) })
	return result
}

// Media is ffprobe's description of a file.
type Media struct{ process.Media }

// Stream is one track.
type Stream = process.Stream

// Video returns the first video stream, and ends the test if there is none.
func (m Media) Video(t testing.TB) Stream { t.Helper(); return m.first(t, "video") }

// Audio returns the first audio stream, and ends the test if there is none.
func (m Media) Audio(t testing.TB) Stream { t.Helper(); return m.first(t, "audio") }

// Has reports whether there is a stream of the type ("video", "audio").
func (m Media) Has(kind string) bool { return m.First(kind).Codec != "" }

func (m Media) first(t testing.TB, kind string) Stream {
	t.Helper()
	if !m.Has(kind) {
		t.Fatalf("no %s stream in %+v", kind, m)
	}
	return m.First(kind)
}

// Inspect reads a file's headers.
func Inspect(t testing.TB, path string) Media {
	t.Helper()
	return once(t, "headers", path, func() Media {
		m, err := process.Probe(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		return Media{m}
	})
}

// IndexFirst reports whether the mp4's index (moov) precedes its media (mdat), which lets playback start during the
// download.
func IndexFirst(t testing.TB, path string) bool {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// The bytes before the first of the two boxes contain neither name.
	index, data := bytes.Index(b, []byte("moov")), bytes.Index(b, []byte("mdat"))
	if index < 0 || data < 0 {
		t.Fatalf("%s lacks moov (%d) or mdat (%d)", path, index, data)
	}
	return index < data
}

// Digest is the hash of all decoded frames and samples of a film.
func Digest(t testing.TB, path string) string {
	t.Helper()
	return string(FFmpeg(t, "-i", "file:"+path, "-map", "0", "-c:v", "rawvideo", "-c:a", "pcm_f32le", "-f", "streamhash", "-"))
}

// DurationWithin fails the test unless the length in the file's header is within tolerance of want.
func DurationWithin(t testing.TB, path string, want, tolerance time.Duration) {
	t.Helper()
	got := Inspect(t, path).Duration
	if (got - want).Abs() > tolerance {
		t.Errorf("%s lasts %v, want %v within %v", path, got, want, tolerance)
	}
}

func ffSeconds(d time.Duration) string { return fmt.Sprintf("%.6f", d.Seconds()) }
