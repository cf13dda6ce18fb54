package mediatest

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
)

// WithMatrix copies an mp4 and gives its first track the display matrix a b c d (x' = ax + cy,
// y' = bx + dy). It patches the track header, because ffmpeg cannot write mirrored matrices, and its
// option for the others differs between versions.
func WithMatrix(t testing.TB, path string, m [4]int32) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(data, []byte("tkhd"))
	if at < 0 {
		t.Fatal("no track header")
	}
	at += 4 + 40 // in version 0, the matrix follows 40 bytes of header
	const one = 1 << 16
	for i, v := range []int32{m[0] * one, m[1] * one, 0, m[2] * one, m[3] * one, 0, 0, 0, 1 << 30} {
		binary.BigEndian.PutUint32(data[at+4*i:], uint32(v))
	}
	out := filepath.Join(t.TempDir(), "turned.mp4")
	if err := os.WriteFile(out, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return out
}
