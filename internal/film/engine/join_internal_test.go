// Joins: exact pictures before encoding, which parts a change touches, and the sound of joins, cuts and ranges.

package engine

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"cutroom/internal/film/timeline"
	"cutroom/internal/testkit/mediatest"
)

func joinedBy(kind timeline.TransitionKind, ms int64, s timeline.Segment) timeline.Segment {
	s.Transition = &timeline.Transition{Kind: kind, Duration: timeline.Milliseconds(ms)}
	return s
}

// drawn returns a part's pictures before they are encoded, as planes of 4:2:0.
func drawn(t *testing.T, v *videoPart) []byte {
	t.Helper()
	args := []string{"-copyts"}
	for i, s := range v.shots {
		args = append(args, s.input("1", v.keyframes(0)[i])...)
	}
	args = append(args, "-filter_complex", v.graph(v.keyframes(0)), "-map", "[out]", "-fps_mode", "passthrough", "-f", "rawvideo", "pipe:1")
	for i := range v.shots {
		args = append(args, "-map", "["+label("log", i)+"]", "-f", "null", "-")
	}
	raw := mediatest.FFmpeg(t, args...)
	if want := int(v.Frames * v.canvas.pixels() * 3 / 2); len(raw) != want {
		t.Fatalf("%s: %d bytes, want %d", v.Name, len(raw), want)
	}
	return raw
}

// Before encoding, every pixel of a join is the mix of two pictures that the contract states, in all three planes.
func TestMixesAreExact(t *testing.T) {
	t.Parallel()
	runner := newEngine(t, nil).cfg.Media
	const w, h = 64, 48
	infos := map[string]*Info{}
	paths := map[string]string{}
	dir := t.TempDir()
	args := []string{"-f", "lavfi", "-i", "testsrc2=size=64x48:rate=30000/1001", "-f", "lavfi", "-i", "mandelbrot=size=64x48:rate=30000/1001"}
	for i, name := range []string{"a", "b"} {
		paths[name] = filepath.Join(dir, name+".mp4")
		args = append(args, "-map", fmt.Sprint(i), "-frames:v", "40", "-c:v", "libx264", "-pix_fmt", "yuv420p", paths[name])
	}
	mediatest.FFmpeg(t, args...)
	for name, path := range paths {
		var err error
		if infos[name], err = analyse(t.Context(), runner, path); err != nil {
			t.Fatal(err)
		}
	}
	draw := func(v *videoPart) []byte {
		for _, s := range v.shots {
			s.source.Path = paths[s.source.SHA256]
		}
		return drawn(t, v)
	}
	plain := func(v *videoPart, shot int) []byte {
		return draw(&videoPart{Name: "plain", Frames: v.Frames, canvas: v.canvas, shots: v.shots[shot : shot+1]})
	}
	colour := func(kind timeline.TransitionKind) []byte {
		luma := byte(16)
		if kind == timeline.FadeWhite {
			luma = 235
		}
		return append(bytes.Repeat([]byte{luma}, w*h), bytes.Repeat([]byte{128}, w*h/2)...)
	}
	mixed := func(name string, got, a, b []byte, weight float64) { // weights are rounded to 256ths, and mixes down
		for i := range got {
			if want := float64(a[i]) + (float64(b[i])-float64(a[i]))*weight; math.Abs(want-float64(got[i])) > 1.9 {
				t.Fatalf("%s: byte %d is %d, want %.1f", name, i, got[i], want)
			}
		}
	}
	const size = w * h * 3 / 2
	frame := func(raw []byte, n int64) []byte { return raw[n*size : (n+1)*size] }

	dissolve := planOf(t, infos, nil, of("a", ms(100, 900)), joinedBy(timeline.Dissolve, 300, of("b", ms(200, 1000)))).Sequence[1]
	if dissolve.Frames != 9 {
		t.Fatalf("%d frames", dissolve.Frames)
	}
	raw, a, b := draw(dissolve), plain(dissolve, 0), plain(dissolve, 1)
	for n := range int64(9) {
		mixed("dissolve", frame(raw, n), frame(a, n), frame(b, n), float64(n+1)/10)
	}

	for i, kind := range []timeline.TransitionKind{timeline.Wipe, timeline.Slide, timeline.Push} {
		for _, direction := range []timeline.Direction{timeline.Left, timeline.Right, timeline.Up, timeline.Down} {
			next := joinedBy(kind, 300-33*int64(i%2), of("b", ms(200, 1000)))
			next.Transition.Direction = direction
			moving := planOf(t, infos, nil, of("a", ms(100, 900)), next).Sequence[1]
			raw, a, b := draw(moving), plain(moving, 0), plain(moving, 1)
			for n := range moving.Frames {
				want := moved(frame(a, n), frame(b, n), kind, direction, n, moving.Frames)
				mixed(fmt.Sprintf("%s %s, frame %d of %d", kind, direction, n, moving.Frames), frame(raw, n), want, want, 0)
			}
		}
	}

	const n = 11 // frames of a fade: 5 out, 6 in
	for _, kind := range []timeline.TransitionKind{timeline.FadeBlack, timeline.FadeWhite} {
		p := planOf(t, infos, nil, of("a", ms(0, 900)), joinedBy(kind, 367, of("b", ms(0, 1000))), joinedBy(timeline.FadeBlack, 300, of("a", ms(0, 700))))
		first, second := p.Sequence[0], p.Sequence[1]
		raw, a := draw(first), plain(first, 0)
		for i := range first.Frames {
			mixed("out", frame(raw, i), frame(a, i), colour(kind), float64(max(0, i-(first.Frames-5)+1))/6)
		}
		raw, a = draw(second), plain(second, 0)
		for i := range second.Frames {
			switch {
			case i < n-n/2:
				mixed("in", frame(raw, i), frame(a, i), colour(kind), float64(6-i)/7)
			default: // a fade of 9 frames follows, 4 of them here
				mixed("in and out", frame(raw, i), frame(a, i), colour(timeline.FadeBlack), float64(max(0, i-(second.Frames-4)+1))/5)
			}
		}
	}
}

// moved returns frame i of n of a join of the 64x48 pictures a and b.
func moved(a, b []byte, kind timeline.TransitionKind, direction timeline.Direction, i, n int64) []byte {
	const w, h = 64, 48
	length := w
	if direction == timeline.Up || direction == timeline.Down {
		length = h
	}
	d := 2 * int(math.Floor(float64(length)*float64(i+1)/float64(n+1)/2+0.5))
	// What lies at x, y: the incoming picture at the end of the movement, shifted back by what is left of it.
	var out []byte
	plane := func(offset, scale int) {
		w, h, d, length := w/scale, h/scale, d/scale, length/scale
		for y := range h {
			for x := range w {
				back, forth := map[timeline.Direction][2]int{timeline.Left: {-1, 0}, timeline.Right: {1, 0}, timeline.Up: {0, -1}, timeline.Down: {0, 1}}[direction], length-d
				shows := map[timeline.Direction]bool{timeline.Left: x >= w-d, timeline.Right: x < d, timeline.Up: y >= h-d, timeline.Down: y < d}[direction]
				from, by := a, 0
				switch {
				case shows && kind != timeline.Wipe:
					from, by = b, forth // not yet arrived
				case shows:
					from = b
				case kind == timeline.Push:
					by = -d // has left
				}
				out = append(out, from[offset+(y+back[1]*by)*w+x+back[0]*by])
			}
		}
	}
	plane(0, 1)
	plane(w*h, 2)
	plane(w*h*5/4, 2)
	return out
}

// The parts of a film with many segments cover every frame, and changing one transition changes only the parts that it
// overlaps.
func TestJoinsChangeTheirEdgesAlone(t *testing.T) {
	infos := map[string]*Info{"s": fakeVideo(r(30000, 1001), 3000, 0)}
	for key := int64(0); key < 100; key += 2 {
		infos["s"].Video.Keys = append(infos["s"].Video.Keys, time.Duration(key)*time.Second)
	}
	rng := rand.New(rand.NewPCG(5, 1))
	kinds := []timeline.TransitionKind{timeline.Dissolve, timeline.Push, timeline.FadeBlack, timeline.FadeWhite}
	random := func(s timeline.Segment) timeline.Segment {
		return joinedBy(kinds[rng.IntN(len(kinds))], 100+rng.Int64N(3000), s)
	}
	parts := func(p *Plan) map[string]*videoPart {
		all, frames := map[string]*videoPart{}, int64(0)
		for _, v := range p.Sequence {
			all[v.Key] = v
			frames += v.Frames
		}
		if frames != p.Frames {
			t.Fatalf("the parts have %d frames, the film %d", frames, p.Frames)
		}
		return all
	}
	for range 20 {
		var segments []timeline.Segment
		for range 2 + rng.IntN(199) {
			from := rng.Int64N(70000)
			s := ms(from, from+40+int64(math.Pow(rng.Float64(), 3)*25000))
			if rng.IntN(3) > 0 {
				s = random(s)
			}
			segments = append(segments, s)
		}
		before := planOf(t, infos, nil, segments...)
		edited := 1 + rng.IntN(len(segments)-1)
		segments[edited] = random(segments[edited])
		after := planOf(t, infos, nil, segments...)
		known := parts(before)
		for key, v := range parts(after) {
			if known[key] != nil {
				continue
			}
			for _, s := range v.shots {
				if s.segment != edited && s.segment != edited-1 {
					t.Fatalf("%s is made again for the transition into segments[%d]", v.Name, edited)
				}
			}
			reach := float64(3101 * time.Millisecond) // of the longest transition
			s, edge := v.shots[0], segments[edited].TrimStart
			if s.segment == edited-1 {
				edge = segments[edited-1].TrimEnd
			}
			length := float64(v.Frames) * 1001 / 30000 * float64(time.Second)
			if from := s.start * float64(time.Second); from > float64(edge)+reach || from+length < float64(edge)-reach {
				t.Fatalf("%s at %.2f s does not touch the transition at %v", v.Name, s.start, edge)
			}
		}
	}
}

// If segments dissolve, their sounds cross-fade with equal power over the same frames. At a fade they fade to silence
// and back.
func TestSoundOfJoins(t *testing.T) {
	rate := r(30000, 1001)
	infos := map[string]*Info{"a": fakeVideo(rate, 300, 0), "b": fakeVideo(rate, 300, 0), "c": fakeVideo(rate, 300, 0)}
	segments := []timeline.Segment{
		of("a", ms(1000, 4000)), joinedBy(timeline.Dissolve, 500, of("b", ms(2000, 5000))), joinedBy(timeline.FadeWhite, 700, of("c", ms(0, 2000))),
	}
	p := planOf(t, infos, nil, segments...)
	alone := planOf(t, infos, func(t *timeline.Timeline) { t.OutputKind = timeline.Audio }, segments...)
	if !reflect.DeepEqual(p.Regions, alone.Regions) || p.Samples != alone.Samples {
		t.Error("sound alone differs from that of the film")
	}
	// Frames of the film: a 0 to 89, b 75 to 164, c 165 to 223; 21 frames fade.
	at := func(frame int64) int64 { return samplesAt(frame, rate) }
	fade := func(n, from, to int64) float64 {
		return min(1, max(0, (float64(n-at(from))+0.5)/float64(at(to)-at(from))))
	}
	want := map[string]func(n int64) float64{
		"a": func(n int64) float64 { return math.Cos(math.Pi / 2 * fade(n, 75, 90)) },
		"b": func(n int64) float64 {
			if n < at(75) {
				return 0
			}
			return math.Sin(math.Pi/2*fade(n, 75, 90)) * (1 - fade(n, 155, 165))
		},
		"c": func(n int64) float64 {
			if n < at(165) {
				return 0
			}
			return fade(n, 165, 176)
		},
	}
	gainsAre(t, p, want)
}

// The sounds on both sides of a cut cross-fade with equal power if both sources continue there.
func TestSoundOfCuts(t *testing.T) {
	rate := r(25, 1)
	infos := map[string]*Info{"a": fakeVideo(rate, 250, 0), "b": fakeVideo(rate, 250, 0), "c": fakeVideo(rate, 250, 0)}
	p := planOf(t, infos, nil, of("a", ms(1000, 2000)), of("a", ms(2000, 3000)), of("b", ms(4000, 5000)), of("c", ms(0, 1000)))
	const cut, next, end, half = 96000, 144000, 192000, seamFade / 2
	ramp := func(n, from, length int64) float64 { return min(1, max(0, (float64(n-from)+0.5)/float64(length))) }
	gainsAre(t, p, map[string]func(n int64) float64{
		"a": func(n int64) float64 { return math.Cos(math.Pi / 2 * ramp(n, cut-half, 2*half)) },
		"b": func(n int64) float64 {
			if n >= next {
				return 0
			}
			return math.Sin(math.Pi/2*ramp(n, cut-half, 2*half)) * (1 - ramp(n, next-seamFade, seamFade)) // c has nothing before its start
		},
		"c": func(n int64) float64 {
			if n < next {
				return 0
			}
			return ramp(n, next, seamFade)
		},
	})
	if p.Samples != end {
		t.Errorf("%d samples", p.Samples)
	}
}

// gainsAre checks the gain of each source's sound in every sample of the mix.
func gainsAre(t *testing.T, p *Plan, want map[string]func(n int64) float64) {
	t.Helper()
	for key, gain := range want {
		dir := t.TempDir()
		for _, s := range p.Audio { // one sound is at full scale throughout, the others are silent
			level := silence
			if s.source.SHA256 == key {
				level = func(float64) float64 { return 1 }
			}
			signal{left: level, right: level}.write(t, dir, s)
		}
		for n, got := range mixOf(t, dir, p)[0] {
			if math.Abs(got-gain(int64(n))) > 1e-6 {
				t.Fatalf("%s: sample %d has gain %.6f, want %.6f", key, n, got, gain(int64(n)))
			}
		}
	}
}

// A directive's range moves with the segments that it lies in; one that lies in two, because they overlap, moves with
// the second. A range over several segments does not move.
func TestRangesOnAFilmWithOverlaps(t *testing.T) {
	l := planned(t, fakeVideo(r(30, 1), 900, 0), ms(10, 4000), joinedBy(timeline.Dissolve, 1000, ms(10005, 14000)), joinedBy(timeline.Dissolve, 1000, ms(20000, 24000)))
	a, b, c := l.segments[0], l.segments[1], l.segments[2]
	if l.frames != 10*30 || a.shift == 0 || b.shift == 0 || a.shift == b.shift || c.shift != b.shift {
		t.Fatalf("%+v", l)
	}
	const second = sampleRate
	for _, tt := range []struct {
		from, to int64
		want     span
		shift    int64
	}{
		{0, 10000, span{0, 10 * second}, 0},
		{0, 3990, span{0, 4 * second}, a.shift},
		{2000, 3500, span{2*second + a.shift, 3.5*second + a.shift}, a.shift},
		{2980, 3000, span{2.98*second + a.shift, 3*second + a.shift}, a.shift},
		{3200, 3800, span{3.2*second + b.shift, 3.8*second + b.shift}, b.shift},
		{2991, 6500, span{2.991*second + b.shift, 6.5*second + b.shift}, b.shift},
		{2970, 6500, span{2.97*second + b.shift, 6.5*second + b.shift}, b.shift}, // rounded to a frame
		{2940, 6500, span{2.94 * second, 6.5 * second}, 0},
		{3500, 8000, span{3.5 * second, 8 * second}, 0},
		{9000, 12000, span{9*second + c.shift, 10 * second}, c.shift},
		{11000, 12000, span{10 * second, 10 * second}, 0},
	} {
		got, shift := l.place(timeline.Range{Start: timeline.Milliseconds(tt.from), End: timeline.Milliseconds(tt.to)})
		if got != tt.want || shift != tt.shift {
			t.Errorf("%d to %d ms: %v moved by %d, want %v by %d", tt.from, tt.to, got, shift, tt.want, tt.shift)
		}
	}
}
