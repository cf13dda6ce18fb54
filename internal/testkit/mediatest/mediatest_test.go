package mediatest_test

import (
	"image/color"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"cutroom/internal/testkit/mediatest"
)

// These tests measure clips whose values can be computed.

func TestLevels(t *testing.T) {
	path := mediatest.Tone(t, 1000, 3*time.Second)
	near := func(name string, got, want, tolerance float64) {
		t.Helper()
		if math.Abs(got-want) > tolerance {
			t.Errorf("%s = %.3f, want %.3f", name, got, want)
		}
	}
	near("RMS", mediatest.RMS(t, path, mediatest.Window{}), -15.05, 0.02)
	near("tone", mediatest.ToneLevel(t, path, 1000, mediatest.Between(500, 1500)), -12.04, 0.02)
	near("peak", mediatest.Peak(t, path, mediatest.Window{}), 0.25, 0.001)
	if other := mediatest.ToneLevel(t, path, 1300, mediatest.Between(500, 1500)); other > -70 {
		t.Errorf("a tone of 1300 Hz measures %.1f dB beside one of 1000", other)
	}
	silence := filepath.Join(t.TempDir(), "silence.wav")
	mediatest.FFmpeg(t, "-f", "lavfi", "-t", "1", "-i", "anullsrc=r=48000:cl=stereo", silence)
	if gap := mediatest.Silent(t, silence, 0.001, mediatest.Window{}); gap != time.Second {
		t.Errorf("a second of silence measures %v", gap)
	}
}

func TestTonesSeparate(t *testing.T) {
	path := mediatest.Tones(t, 440, 880)
	w := mediatest.Between(500, 2500)
	for _, hz := range []float64{440, 880} {
		if l := mediatest.ToneLevel(t, path, hz, w); math.Abs(l+13.98) > 0.05 {
			t.Errorf("%v Hz: %.2f dB, want -13.98", hz, l)
		}
	}
	if hz := mediatest.DominantTone(t, mediatest.Tone(t, 880, time.Second), mediatest.Window{}, 440, 660, 880); hz != 880 {
		t.Errorf("dominant tone %v, want 880", hz)
	}
}

func TestDiscontinuitySeesAJump(t *testing.T) {
	whole := mediatest.Clip(t, mediatest.Spec{Tone: 440, Duration: 2 * time.Second, Container: "m4a"})
	if r, at := mediatest.Discontinuity(t, whole, 440, mediatest.Between(100, 1900)); r > 0.002 {
		t.Errorf("an unbroken sine has a residual of %.4f at %v", r, at)
	}
	broken := filepath.Join(t.TempDir(), "broken.wav")
	// One sample left out in the middle.
	mediatest.FFmpeg(t, "-i", mediatest.Tone(t, 440, 2*time.Second), "-af", "aselect=1,asplit[a][b];[a]atrim=end_sample=48000[a];[b]atrim=start_sample=48001,asetpts=PTS-STARTPTS[b];[a][b]concat=v=0:a=1", broken)
	r, at := mediatest.Discontinuity(t, broken, 440, mediatest.Between(100, 1900))
	if r < 0.01 || (at-time.Second).Abs() > time.Millisecond {
		t.Errorf("a sample missing at 1 s: residual %.4f at %v", r, at)
	}
}

func TestSyncPoints(t *testing.T) {
	clip := mediatest.FlashBeep(t, 3*time.Second, "30")
	points := mediatest.SyncPoints(t, clip)
	if len(points) != 3 {
		t.Fatalf("%d flashes, want 3", len(points))
	}
	for i, p := range points {
		if p.Flash != time.Duration(i)*time.Second || p.Offset().Abs() > time.Millisecond {
			t.Errorf("flash %d at %v, beep %v later", i, p.Flash, p.Offset())
		}
	}
	late := filepath.Join(t.TempDir(), "late.mp4")
	mediatest.FFmpeg(t, "-i", clip, "-af", "adelay=40", "-c:v", "copy", "-c:a", "aac", late)
	for i, p := range mediatest.SyncPoints(t, late) {
		if (p.Offset() - 40*time.Millisecond).Abs() > time.Millisecond {
			t.Errorf("beep %d is %v late, want 40 ms", i, p.Offset())
		}
	}
}

func TestFrameShowsThePictureAtATime(t *testing.T) {
	red := mediatest.Clip(t, mediatest.Spec{Width: 64, Height: 64, Color: "red"})
	blue := mediatest.Clip(t, mediatest.Spec{Width: 64, Height: 64, Color: "blue"})
	both := filepath.Join(t.TempDir(), "both.mp4")
	mediatest.FFmpeg(t, "-i", red, "-i", blue, "-filter_complex", "[0:v][1:v]concat", both)
	for _, c := range []struct {
		at   time.Duration
		want color.RGBA
	}{{0, color.RGBA{255, 0, 0, 255}}, {999 * time.Millisecond, color.RGBA{255, 0, 0, 255}}, {time.Second, color.RGBA{0, 0, 255, 255}}, {5 * time.Second, color.RGBA{0, 0, 255, 255}}} {
		got := mediatest.ColorAt(mediatest.Frame(t, both, c.at), 0.5, 0.5)
		if mediatest.ColorDistance(got, c.want) > 8 {
			t.Errorf("at %v: %v, want %v", c.at, got, c.want)
		}
	}
}

func TestIndexFirst(t *testing.T) {
	plain := mediatest.Clip(t, mediatest.Spec{Width: 64, Height: 64})
	if mediatest.IndexFirst(t, plain) {
		t.Error("by default ffmpeg writes the index last")
	}
	if !mediatest.IndexFirst(t, mediatest.Remux(t, plain, "mp4", "-movflags", "+faststart")) {
		t.Error("with faststart ffmpeg writes the index first")
	}
}

func TestFixturesAreMadeOnce(t *testing.T) {
	folder := t.TempDir()
	t.Setenv("CUTROOM_TEST_FIXTURES", folder)
	content := func(path string) string {
		t.Helper()
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	tone := func(hz float64) string { return mediatest.Tone(t, hz, 100*time.Millisecond) }
	made := content(tone(440))
	kept, err := filepath.Glob(filepath.Join(folder, "*", "0"))
	if err != nil || len(kept) != 1 || content(kept[0]) != made {
		t.Fatalf("kept %v, %v", kept, err)
	}
	if err := os.WriteFile(kept[0], []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := content(tone(440)); got != "kept" {
		t.Error("the same clip was made again")
	}
	low, high := tone(441), tone(882)
	if content(low) == "kept" {
		t.Error("another tone is the same clip")
	}
	if content(mediatest.Remux(t, low, "mkv")) == content(mediatest.Remux(t, high, "mkv")) {
		t.Error("another input gives the same clip")
	}
}
