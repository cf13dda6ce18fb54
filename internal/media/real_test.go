package media_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"cutroom/internal/media"
)

// TestRealClips probes and measures every real file in the media folder.
func TestRealClips(t *testing.T) {
	t.Parallel()
	dir := os.Getenv("CUTROOM_MEDIA_DIR")
	if dir == "" {
		t.Skip("CUTROOM_MEDIA_DIR is not set")
	}
	r := newRunner(t)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	tested := 0
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		switch filepath.Ext(e.Name()) {
		case ".mp4", ".m4a", ".mp3", ".wav", ".mov", ".webm", ".mkv", ".3gp", ".ogg", ".flac":
		default:
			continue
		}
		tested++
		t.Run(e.Name(), func(t *testing.T) {
			p, err := r.Probe(t.Context(), path)
			if e.Name() == "not_audio.m4a" {
				if !errors.Is(err, media.ErrNotMedia) {
					t.Fatalf("text named .m4a: %v, want ErrNotMedia", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			checkRealClip(t, path, p)
		})
	}
	if tested == 0 {
		t.Errorf("no media in %s", dir)
	}
}

// checkRealClip compares the header's claims with the packets. These files are honest, so
// both agree within a packet.
func checkRealClip(t *testing.T, path string, p media.Probe) {
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
	want := map[string][2]int{
		"clip_portrait_rot90.mp4": {480, 854}, "clip_720p2997.mp4": {1280, 720}, "clip_noaudio_360p25.mp4": {640, 360},
	}
	if size, ok := want[filepath.Base(path)]; ok && (p.Video == nil || [2]int{p.Video.DisplayWidth, p.Video.DisplayHeight} != size) {
		t.Errorf("displayed size %+v, want %v", p.Video, size)
	}
	p.VideoPackets.Keyframes, p.VideoPackets.Starts = nil, nil
	t.Logf("%+v %+v %+v", p, p.Video, p.Audio)
}
