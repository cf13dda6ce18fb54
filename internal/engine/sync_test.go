package engine_test

import (
	"path/filepath"
	"testing"
	"time"

	"cutroom/internal/mediatest"
	"cutroom/internal/timeline"
)

// pieces cuts [0, total) of a file into n consecutive segments.
func pieces(path string, total int64, n int64) []timeline.Segment {
	var s []timeline.Segment
	for i := range n {
		s = append(s, cut(path, total*i/n, total*(i+1)/n))
	}
	return s
}

// Gaps in the sound's timestamps stay: after a lost packet, or the start of a fragmented
// file, the sound must not be early.
func TestSyncSurvivesHolesInTheSound(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	clip := filepath.Join(t.TempDir(), "aac.mp4")
	mediatest.FFmpeg(t, "-i", mediatest.FlashBeep(t, 4*time.Second, "30"), "-c:v", "libx264", "-preset", "ultrafast", "-bf", "2", "-g", "30", "-c:a", "aac", clip)
	names := []string{"fragmented", "no edit list", "two lost packets", "a call", "a call in mkv", "below zero"}
	var segments []timeline.Segment
	args := []string{"-i", clip}
	for _, output := range [][]string{
		{"mp4", "-movflags", "frag_keyframe+empty_moov+default_base_moof"},
		{"mp4", "-use_editlist", "0"},
		{"mkv", "-bsf:a", "noise=drop=between(n\\,70\\,71)"},
		{"mov", "-bsf:a", "noise=drop=between(n\\,52\\,90)"}, // 0.8 s missing is no damage
		{"mkv", "-bsf:a", "noise=drop=between(n\\,52\\,90)"},
		{"mkv", "-output_ts_offset", "-0.77", "-avoid_negative_ts", "disabled"},
	} {
		path := filepath.Join(t.TempDir(), "hole."+output[0])
		args = append(append(args, "-c", "copy"), append(output[1:], path)...)
		segments = append(segments, cut(path, 0, 4000))
	}
	mediatest.FFmpeg(t, args...)
	points := mediatest.SyncPoints(t, b.render(t, film(segments...)).Path)
	seen := map[string]int{}
	for _, p := range points {
		// The first flash of each begins with its segment.
		name, into := names[min(len(names)-1, int(p.Flash/(4*time.Second)))], p.Flash%(4*time.Second)
		if into < 500*time.Millisecond || into > 3500*time.Millisecond {
			continue
		}
		seen[name]++
		if p.Offset().Abs() > 20*time.Millisecond {
			t.Errorf("%s: beep %v after its flash at %v", name, p.Offset(), into)
		}
	}
	for _, name := range names {
		if seen[name] < 2 { // of four: anything below zero is lost
			t.Errorf("%s: only %d flashes left", name, seen[name])
		}
	}
}

// Segments from all over a clip, at awkward rates: sound and picture stay in sync within
// each, and the total has the requested length.
func TestSoundStaysInSyncInScatteredSegments(t *testing.T) {
	t.Parallel()
	clip := mediatest.FlashBeep(t, 8*time.Second, "30000/1001")
	var segments []timeline.Segment
	var total int64
	for i := range int64(7) {
		from := 1000*(1+(i*5)%6) - 217 - 13*i // each contains the flash of one whole second
		to := from + 431 + 37*i
		segments = append(segments, cut(clip, from, to))
		total += to - from
	}
	b := newBench(t)
	out := b.render(t, film(segments...))
	mediatest.DurationWithin(t, out.Path, time.Duration(total)*time.Millisecond, 34*time.Millisecond)
	before := map[int]time.Duration{}
	for i, p := range mediatest.SyncPoints(t, clip) {
		before[i] = p.Offset()
	}
	points := mediatest.SyncPoints(t, out.Path)
	if len(points) != len(segments) {
		t.Fatalf("%d flashes, want one in each segment", len(points))
	}
	for i, p := range points {
		if (p.Offset() - before[1]).Abs() > 5*time.Millisecond+time.Millisecond {
			t.Errorf("segment %d: beep %v after the flash; in the source %v", i, p.Offset(), before[1])
		}
	}
}

// A sine cut into pieces is still one sine, with pictures and without.
func TestCutSineHasNoSeam(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const total = 2999
	clip := mediatest.Clip(t, mediatest.Spec{Width: 160, Height: 120, FPS: "30000/1001", Duration: 3 * time.Second, Tone: 440, SampleRate: 44100, AudioCodec: "flac", Output: []string{"-strict", "-2"}})
	tl := film(pieces(clip, total, 6)...)
	unbroken := func(path string) {
		t.Helper()
		if residual, at := mediatest.Discontinuity(t, path, 440, mediatest.Between(50, total-50)); residual > 0.002 {
			t.Errorf("residual %.4f at %v", residual, at)
		}
	}
	unbroken(b.render(t, tl).Path)
	tl.OutputKind = timeline.Audio
	sound := b.render(t, tl)
	unbroken(sound.Path)
	// Without pictures, no segment must end on a frame.
	if sound.Stats.VideoParts != 0 || sound.Duration != total*time.Millisecond || sound.Samples != total*48 {
		t.Errorf("sound alone: %+v, want %d ms", sound, total)
	}
}

// Sound and picture end together, and the level is unchanged.
func TestLevelAndEndsAreKept(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	speech := shared(t, "clip_720p2997.mp4")
	out := b.render(t, sound(cut(speech, 0, 0)))
	near(t, "level of all of it", mediatest.RMS(t, out.Path, mediatest.Window{}), mediatest.RMS(t, speech, mediatest.Window{}), 0.1)
	m := mediatest.Inspect(t, b.render(t, film(cut(shared(t, "clip_480p30.mp4"), 4500, 0))).Path)
	if d := m.Video(t).Duration - m.Audio(t).Duration; d.Abs() > 22*time.Millisecond {
		t.Errorf("video lasts %v, sound %v", m.Video(t).Duration, m.Audio(t).Duration)
	}
}
