package container_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"cutroom/internal/film/media/container"
)

func TestShareOfWhatIsThere(t *testing.T) {
	wav := append([]byte("RIFF\x00\x00\x00\x00WAVEfmt \x10\x00\x00\x00"), make([]byte, 16)...)
	wav = append(wav, "data\xe8\x03\x00\x00"...)
	whole := append(bytes.Clone(wav), make([]byte, 1000)...)
	streamed := append(bytes.Clone(wav[:len(wav)-4]), 0xff, 0xff, 0xff, 0xff)
	mkv := []byte{0x1A, 0x45, 0xDF, 0xA3, 0x81, 0x00, 0x18, 0x53, 0x80, 0x67, 0x41, 0x00} // 256 bytes of Segment
	live := []byte{0x1A, 0x45, 0xDF, 0xA3, 0x81, 0x00, 0x18, 0x53, 0x80, 0x67, 0xFF}
	mp4 := []byte("\x00\x00\x00\x08free\x00\x00\x00\x38mdat")
	endless := []byte("\x00\x00\x00\x00mdat")
	for name, tt := range map[string]struct {
		kind container.Kind
		data []byte
		want float64
	}{
		"whole wav":    {container.WAV, whole, 1},
		"half wav":     {container.WAV, whole[:len(whole)-500], 0.5},
		"streamed wav": {container.WAV, append(streamed, make([]byte, 100)...), 1},
		"headless wav": {container.WAV, wav[:10], 1},
		"whole mkv":    {container.Matroska, append(bytes.Clone(mkv), make([]byte, 256)...), 1},
		"quarter mkv":  {container.Matroska, append(bytes.Clone(mkv), make([]byte, 64)...), 0.25},
		"live mkv":     {container.Matroska, append(bytes.Clone(live), make([]byte, 64)...), 1},
		"whole mp4":    {container.MP4, append(bytes.Clone(mp4), make([]byte, 48)...), 1},
		"half mp4":     {container.MP4, append(bytes.Clone(mp4), make([]byte, 16)...), 0.5},
		"endless mp4":  {container.MP4, append(bytes.Clone(endless), make([]byte, 16)...), 24.0 / (1 << 62)},
		"no mkv":       {container.Matroska, []byte{0}, 1},
		"mp3":          {container.MP3, mkv, 1},
	} {
		if got, err := container.PresentShare(write(t, tt.data), tt.kind); got != tt.want || err != nil {
			t.Errorf("%s: %v (%v), want %v", name, got, err, tt.want)
		}
	}
}

// write creates a test file.
func write(t *testing.T, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
