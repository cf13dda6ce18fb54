package media_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"cutroom/internal/media"
	"cutroom/internal/media/container"
)

// TestRealClips probes every real file in the media folder.
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
		t.Run(filepath.Base(path), func(t *testing.T) { checkRealClip(t, probe(t, path)) })
	}
	if tested == 0 {
		t.Errorf("no media in %s", dir)
	}
}

// checkRealClip compares the header's claims with the packets. These files are honest, so
// both agree within a packet.
func checkRealClip(t *testing.T, p media.Probe) {
	t.Helper()
	for _, m := range []media.Measured{p.VideoPackets, p.AudioPackets} {
		if m.Type != "" && (m.Packets == 0 || m.Duration() <= 0) {
			t.Errorf("stream %d: %d packets, %v", m.Index, m.Packets, m.Duration())
		}
	}
	if v := p.Video; v != nil {
		m := p.VideoPackets
		if v.Frames > 0 && m.Packets+m.Discarded != v.Frames {
			t.Errorf("video: %d packets, the header says %d", m.Packets+m.Discarded, v.Frames)
		}
		if d := (m.Duration() - v.Duration).Abs(); v.Duration > 0 && d > 50*time.Millisecond {
			t.Errorf("video lasts %v, the header says %v", m.Duration(), v.Duration)
		}
		if len(m.Keyframes) == 0 || m.Keyframes[0] != m.First {
			t.Errorf("keyframes %v do not start at %v", m.Keyframes, m.First)
		}
		if v.DisplayWidth <= 0 || v.DisplayHeight <= 0 {
			t.Errorf("displayed as %dx%d", v.DisplayWidth, v.DisplayHeight)
		}
	}
	if a := p.Audio; a != nil {
		m := p.AudioPackets
		// An edit list may cut into the last packets, so a few of them may differ.
		if d := (m.Duration() - a.Duration).Abs(); a.Duration > 0 && d > 150*time.Millisecond {
			t.Errorf("audio lasts %v, the header says %v", m.Duration(), a.Duration)
		}
	}
}
