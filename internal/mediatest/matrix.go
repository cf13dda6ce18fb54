package mediatest

import (
	"os"
	"path/filepath"
	"testing"
)

// WithMatrix copies an mp4 whose first track is shown by a display matrix a b c d
// (x' = ax + cy, y' = bx + dy). The track header is patched: ffmpeg's muxer cannot
// write mirrored ones, and how it is told of the others differs by its version.
func WithMatrix(t testing.TB, path string, m [4]int32) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	at := -1
	for i := 0; i+4 < len(data); i++ {
		if string(data[i:i+4]) == "tkhd" {
			at = i + 4 + 40 // version 0: the matrix follows 40 bytes of header
			break
		}
	}
	if at < 0 {
		t.Fatal("no track header")
	}
	put := func(off int, v int32) {
		for i := range 4 {
			data[at+off+i] = byte(uint32(v) >> (24 - 8*i))
		}
	}
	const one = 1 << 16
	for i, v := range []int32{m[0] * one, m[1] * one, 0, m[2] * one, m[3] * one, 0, 0, 0, 1 << 30} {
		put(4*i, v)
	}
	out := filepath.Join(t.TempDir(), "turned.mp4")
	if err := os.WriteFile(out, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return out
}
