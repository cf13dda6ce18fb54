package media_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"cutroom/internal/film/media"
	"cutroom/internal/film/media/container"
)

// TestRealClips compares the headers of every real file in the media folder with its packets. These files are honest,
// so both agree within a packet.
func TestRealClips(t *testing.T) {
	t.Parallel()
	dir := os.Getenv("CUTROOM_MEDIA_DIR")
	if dir == "" {
		t.Skip("CUTROOM_MEDIA_DIR is not set")
	}
	paths, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	tested := 0
	for _, path := range paths {
		if class, err := container.SniffFile(path); err != nil || class.Kind == container.Unknown {
			continue
		}
		tested++
		p, name := probe(t, path), filepath.Base(path)
		for _, m := range []media.Measured{p.VideoPackets, p.AudioPackets} {
			if m.Type != "" && (m.Packets == 0 || m.Duration() <= 0) {
				t.Errorf("%s: stream %d has %d packets, %v", name, m.Index, m.Packets, m.Duration())
			}
		}
		if v, m := p.Video, p.VideoPackets; v != nil {
			if n := m.Packets + m.Discarded; v.Frames > 0 && n != v.Frames {
				t.Errorf("%s: %d pictures, the header says %d", name, n, v.Frames)
			}
			if d := (m.Duration() - v.Duration).Abs(); v.Duration > 0 && d > 50*time.Millisecond {
				t.Errorf("%s: %v of pictures, the header says %v", name, m.Duration(), v.Duration)
			}
			if len(m.Keyframes) == 0 || m.Keyframes[0] != m.First || v.DisplayWidth <= 0 || v.DisplayHeight <= 0 {
				t.Errorf("%s: %dx%d, keyframes %v from %v", name, v.DisplayWidth, v.DisplayHeight, m.Keyframes, m.First)
			}
		}
		// An edit list may cut into the last packets, so a few of them may differ.
		if a, m := p.Audio, p.AudioPackets; a != nil && a.Duration > 0 && (m.Duration()-a.Duration).Abs() > 150*time.Millisecond {
			t.Errorf("%s: %v of sound, the header says %v", name, m.Duration(), a.Duration)
		}
	}
	if tested == 0 {
		t.Errorf("no media in %s", dir)
	}
}
