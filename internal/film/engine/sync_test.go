package engine_test

import (
	"path/filepath"
	"testing"
	"time"

	"cutroom/internal/film/timeline"
	"cutroom/internal/testkit/mediatest"
)

// pieces cuts [0, total) of a file into n consecutive segments.
func pieces(path string, total int64, n int64) []timeline.Segment {
	var s []timeline.Segment
	for i := range n {
		s = append(s, cut(path, total*i/n, total*(i+1)/n))
	}
	return s
}

// Gaps in the sound's timestamps stay: after a lost packet, or the start of a fragmented file, the sound must not be
// early. Edit lists are honoured.
func TestSyncSurvivesHolesInTheSound(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	clip := filepath.Join(t.TempDir(), "aac.mp4")
	mediatest.FFmpeg(t, "-i", mediatest.FlashBeep(t, 6*time.Second, "30"), "-c:v", "libx264", "-preset", "ultrafast", "-bf", "2", "-g", "30", "-c:a", "aac", clip)
	names := []string{"fragmented", "no edit list", "two lost packets", "a call", "a call in mkv", "below zero", "edit list"}
	var segments []timeline.Segment
	args := []string{"-i", clip, "-ss", "1.5", "-i", clip}
	for _, output := range [][]string{
		{"mp4", "-map", "0", "-movflags", "frag_keyframe+empty_moov+default_base_moof"},
		{"mp4", "-map", "0", "-use_editlist", "0"},
		{"mkv", "-map", "0", "-bsf:a", "noise=drop=between(n\\,70\\,71)"},
		{"mov", "-map", "0", "-bsf:a", "noise=drop=between(n\\,52\\,90)"}, // 0.8 s missing is no damage
		{"mkv", "-map", "0", "-bsf:a", "noise=drop=between(n\\,52\\,90)"},
		{"mkv", "-map", "0", "-output_ts_offset", "-0.77", "-avoid_negative_ts", "disabled"},
		{"mp4", "-map", "1"}, // it hides the frames between the key frame and the cut
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
		name, into := names[p.Flash/(4*time.Second)], p.Flash%(4*time.Second)
		if into < 500*time.Millisecond || into > 3500*time.Millisecond {
			continue
		}
		seen[name]++
		if p.Offset().Abs() > 20*time.Millisecond {
			t.Errorf("%s: beep %v after its flash at %v", name, p.Offset(), into)
		}
	}
	for _, name := range names {
		if seen[name] < 2 { // of four
			t.Errorf("%s: only %d flashes left", name, seen[name])
		}
	}
}

// Segments from all over a clip, at awkward rates: sound and picture stay in sync within each, and the total has the
// requested length.
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
	tl.Segments[0].Transition = &timeline.Transition{Kind: timeline.Dissolve, Duration: time.Second} // the first segment's counts for nothing
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
