package engine

import (
	"math"
	"slices"
	"testing"
	"time"

	"cutroom/internal/film/timeline"
)

// A reversed sound has the same samples backwards, at a trim, in an audio-only film and between other segments.
func TestReversedSoundHasTheSameSamples(t *testing.T) {
	t.Parallel()
	sweep := func(at float64) float64 { return math.Sin(2*math.Pi*(200+100*at)*at) / 2 }
	s := sounds{"s": {4, sweep, silence}}
	for _, trim := range []timeline.Segment{ms(0, 0), ms(777, 2222)} {
		turned := trim
		turned.Reverse = true
		forwards, backwards := s.mix(t, soundOf(trim)), s.mix(t, soundOf(turned))
		for side := range forwards {
			slices.Reverse(backwards[side])
			if !slices.Equal(forwards[side], backwards[side]) {
				t.Errorf("%v to %v: side %d differs", trim.TrimStart, trim.TrimEnd, side)
			}
		}
	}
}

// Parts of a reversed segment hold few pictures, whatever its length and transitions, and cover it exactly.
func TestReversedPartsAreShort(t *testing.T) {
	info := fakeVideo(r(30, 1), 1800, 0)
	info.Video.Width, info.Video.Height, info.Video.DisplayWidth, info.Video.DisplayHeight = 1920, 1080, 1920, 1080
	for n := 0; n < 1800; n += 60 {
		info.Video.Keys = append(info.Video.Keys, time.Duration(info.Video.Starts[n])*time.Second/90000)
	}
	a, b := ms(0, 20_000), ms(20_000, 40_000)
	a.Reverse, b.Reverse = true, true
	b.Transition = &timeline.Transition{Kind: timeline.Push, Direction: timeline.Up, Duration: timeline.MaxTransition}
	p := planOf(t, map[string]*Info{"s": info}, nil, a, b)
	var frames, decoded int64
	for _, v := range p.Sequence {
		frames += v.Frames
		var held int64
		for _, s := range v.shots {
			held += s.frames * p.Canvas.pixels() * 3 / 2
			decoded += s.decodes()
		}
		if held > maxReversed {
			t.Errorf("%s holds %d MB", v.Name, held>>20)
		}
	}
	if frames != p.Frames || frames != 1050 {
		t.Errorf("%d frames, want %d", frames, p.Frames)
	}
	four := Machine{Cores: 4, MemoryBytes: 4 * memoryPerCore}
	if together, _ := four.encoders(largestMemory(p.Parts, 2)); together != 2 {
		t.Errorf("four cores run %d encoders at once, want 2", together)
	}
	if decoded > 2400 { // twice 600 once, and what two pieces of a group of pictures share
		t.Errorf("%d pictures are decoded", decoded)
	}
}

// Parts of a reversed segment are cut where they decode little twice, even if key frames are rarer than cuts.
func TestReversedPartsDecodeLittleTwice(t *testing.T) {
	for _, tt := range []struct {
		every int // pictures from one key frame to the next
		most  int64
	}{{30, 610}, {100, 610}, {150, 730}, {240, 835}} {
		info := fakeVideo(r(30, 1), 900, 0)
		info.Video.Width, info.Video.Height, info.Video.DisplayWidth, info.Video.DisplayHeight = 1920, 1080, 1920, 1080
		for n := 0; n < 900; n += tt.every {
			info.Video.Keys = append(info.Video.Keys, time.Duration(info.Video.Starts[n])*time.Second/90000)
		}
		s := ms(300, 20_300)
		s.Reverse = true
		p := planOf(t, map[string]*Info{"s": info}, nil, s)
		var decoded int64
		for _, v := range p.Sequence {
			decoded += v.shots[0].decodes()
		}
		if decoded > tt.most {
			t.Errorf("a key frame in %d pictures: %d pictures of 600 are decoded in %d parts, want at most %d", tt.every, decoded, len(p.Sequence), tt.most)
		}
	}
}

// A segment that smooth does not change has the parts that it has without it, and the same sound.
func TestSmoothChangesOnlyBlends(t *testing.T) {
	infos := map[string]*Info{"s": fakeVideo(r(30, 1), 300, 0)}
	plain, slow := ms(0, 3000), ms(3000, 6000)
	smooth := plain
	smooth.Smooth = true
	slow.Speed = 0.5
	slower := slow
	slower.Smooth = true
	before, after := planOf(t, infos, nil, plain, slow), planOf(t, infos, nil, smooth, slower)
	if before.Sequence[0].Key != after.Sequence[0].Key || before.Sequence[1].Key == after.Sequence[1].Key {
		t.Error("the wrong parts change")
	}
	for i, s := range before.Stretches {
		if s.Key != after.Stretches[i].Key {
			t.Error("the sound changes")
		}
	}
}
