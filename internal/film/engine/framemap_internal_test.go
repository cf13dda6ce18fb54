// Every frame of a film shows the right picture of its source. The pictures carry numbers, and the expected one is
// computed again from the rules of the API.

package engine

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"cutroom/internal/film/timeline"
	"cutroom/internal/testkit/mediatest"
)

var (
	frameMapSeed = flag.Uint64("framemap-seed", 1, "seed of the random cuts in TestEveryFrameIsTheRightOne; 0 takes the clock")
	frameMapAll  = flag.Bool("framemap-all", false, "let TestEveryFrameIsTheRightOne cut all its clips, not only three")
)

// Numbered pictures: 4x4 black or white squares that encode a number and, to detect a blurred picture, its lower bits
// again, inverted.
const (
	cell   = 16
	side   = 4 * cell
	digits = 10
)

func numberedPicture(n int) []byte {
	word := n | (^n&0x3f)<<digits
	p := make([]byte, side*side)
	for i := range p {
		x, y := i%side/cell, i/side/cell
		if word>>(4*y+x)&1 != 0 {
			p[i] = 255
		}
	}
	return p
}

// cells are the mean levels of a picture's squares.
type cells [16]float64

// cellsIn reads the squares of a picture that was turned anticlockwise by degrees. It ignores the edges of squares,
// which compression blurs.
func cellsIn(p []byte, degrees int) (c cells) {
	for y := range 4 {
		for x := range 4 {
			sx, sy := x, y
			for range degrees / 90 {
				sx, sy = sy, 3-sx
			}
			for i := range cell / 2 {
				for j := range cell / 2 {
					c[4*y+x] += float64(p[(sy*cell+cell/4+i)*side+sx*cell+cell/4+j]) / (cell * cell / 4)
				}
			}
		}
	}
	return c
}

// number reads the number of a picture, -1 if it is blurred.
func (c cells) number() int {
	word := 0
	for i, level := range c {
		if level > 127 {
			word |= 1 << i
		}
	}
	n := word & (1<<digits - 1)
	if word>>digits != ^n&0x3f {
		return -1
	}
	return n
}

// picturesIn decodes a file and reads its pictures.
func picturesIn(t *testing.T, path string, degrees int) []cells {
	t.Helper()
	raw := mediatest.FFmpeg(t, "-noautorotate", "-i", path, "-map", "0:v", "-fps_mode", "passthrough", "-f", "rawvideo", "-pix_fmt", "gray", "pipe:1")
	var pictures []cells
	for ; len(raw) >= side*side; raw = raw[side*side:] {
		pictures = append(pictures, cellsIn(raw[:side*side], degrees))
	}
	return pictures
}

// numberedClip makes a clip whose video counts in ticks of 1/clock.
type numberedClip struct {
	rate   string // of the frames
	frames int
	clock  int
	encode string // options of x264; uses B-frames unless they say otherwise
	times  string // an expression for setpts in ticks of 1/clock: a variable rate
	remux  string // options of a second, copying run: edit lists, rotation
	turned int    // degrees anticlockwise by which a player turns the pictures
}

func (c numberedClip) make(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	var raw bytes.Buffer
	for n := range c.frames {
		raw.Write(numberedPicture(n))
	}
	rawPath, path := filepath.Join(dir, "numbers.raw"), filepath.Join(dir, "numbers.mp4")
	if err := os.WriteFile(rawPath, raw.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"-f", "rawvideo", "-pix_fmt", "gray", "-s", fmt.Sprintf("%dx%d", side, side), "-r", c.rate, "-i", rawPath,
		"-c:v", "libx264", "-preset", "ultrafast", "-crf", "20", "-pix_fmt", "yuv420p", "-g", "50"}
	if c.encode == "" {
		c.encode = "-bf 3 -x264-params b-adapt=0"
	}
	args = append(args, strings.Fields(c.encode)...)
	if c.times != "" {
		args = append(args, "-vf", fmt.Sprintf("settb=1/%d,setpts='%s'", c.clock, c.times), "-fps_mode", "passthrough", "-enc_time_base", fmt.Sprintf("1:%d", c.clock))
	}
	mediatest.FFmpeg(t, append(args, "-video_track_timescale", fmt.Sprint(c.clock), path)...)
	if c.turned == 90 {
		path = mediatest.WithMatrix(t, path, [4]int32{0, -1, 1, 0})
	}
	if c.remux == "" {
		return path
	}
	again := filepath.Join(dir, "again.mp4")
	before, after, _ := strings.Cut(c.remux, "|") // options of the input and of the output
	args = append(strings.Fields(before), "-i", path, "-c", "copy", "-video_track_timescale", fmt.Sprint(c.clock))
	mediatest.FFmpeg(t, append(append(args, strings.Fields(after)...), again)...)
	return again
}

// Every frame of a film shows the source frame that the plan's map states, whatever clock the source uses. The pictures
// contain their numbers.
func TestEveryFrameIsTheRightOne(t *testing.T) {
	t.Parallel()
	seed := *frameMapSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-framemap-seed=%d", seed)
	engine := newEngine(t, newCache(t)) // the canvases are analysed once
	canvas := map[string]string{"own": ""}
	for rate, sampled := range map[string]bool{"24": true, "30000/1001": false, "60": false} {
		if sampled || *frameMapAll {
			canvas[rate] = numberedClip{rate: rate, frames: 8, clock: 90000}.make(t)
		}
	}
	sample := []string{"29.97 in 600", "variable", "edit list"}
	for name, c := range map[string]struct {
		numberedClip
		canvas string
	}{
		"iphone":        {numberedClip{rate: "30", frames: 400, clock: 600}, "own"},
		"29.97 in 600":  {numberedClip{rate: "30000/1001", frames: 200, clock: 600}, "24"},
		"30":            {numberedClip{rate: "30", frames: 400, clock: 30}, "own"},
		"25":            {numberedClip{rate: "25", frames: 200, clock: 25}, "30000/1001"},
		"24":            {numberedClip{rate: "24", frames: 200, clock: 24}, "60"},
		"ntsc":          {numberedClip{rate: "30000/1001", frames: 400, clock: 30000}, "own"},
		"ffmpeg":        {numberedClip{rate: "30", frames: 200, clock: 15360}, "24"},
		"90000":         {numberedClip{rate: "60", frames: 300, clock: 90000}, "30000/1001"},
		"no reordering": {numberedClip{rate: "30", frames: 200, clock: 600, encode: "-bf 0"}, "own"},
		"intra alone":   {numberedClip{rate: "30", frames: 120, clock: 30, encode: "-g 1"}, "60"},
		// A camera that drops every 7th frame and sometimes pauses, and a still screen.
		"variable":     {numberedClip{rate: "30", frames: 200, clock: 600, times: "20*(N+floor(N/7)+15*floor(N/50))"}, "own"},
		"still screen": {numberedClip{rate: "30", frames: 60, clock: 1000, times: "100*N+1900*floor(N/9)"}, "30000/1001"},
		"edit list":    {numberedClip{rate: "30", frames: 250, clock: 600, remux: "-ss 0.7|"}, "own"},
		"begins late":  {numberedClip{rate: "30", frames: 200, clock: 600, remux: "-itsoffset 0.45|"}, "24"},
		"turned":       {numberedClip{rate: "30", frames: 200, clock: 600, turned: 90}, "own"},
	} {
		if !*frameMapAll && !slices.Contains(sample, name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, uint64(len(name))))
			m := &frameMap{engine: engine, path: c.make(t), turned: c.turned, canvas: canvas[c.canvas]}
			m.check(t, randomCuts(rng, m.read(t)))
		})
	}
}

// randomCuts is a timeline of the whole source, which is encoded in chunks, and of cuts of one frame or more, at all
// speeds and with all kinds of transitions.
func randomCuts(rng *rand.Rand, length time.Duration) []timeline.Segment {
	speeds := []float64{1, 1, 0.5, 2, 0.1, 10, 0.73, 1.25, 3.3}
	ms := length.Milliseconds()
	cuts := []timeline.Segment{{Speed: 1}}
	for _, speed := range []float64{1, 1, speeds[rng.IntN(len(speeds))], speeds[rng.IntN(len(speeds))], 0.1 + 3*rng.Float64()} {
		longest := min(float64(ms)/2, 1500*speed)
		cut := timeline.Segment{Speed: math.Round(speed*1000) / 1000, TrimStart: timeline.Milliseconds(rng.Int64N(ms / 2))}
		cut.Reverse, cut.Smooth = rng.IntN(3) == 0, rng.IntN(3) == 0
		if rng.IntN(3) == 0 {
			for at := int64(0); at < ms/2; at += 50 + rng.Int64N(400) {
				cut.SpeedPoints = append(cut.SpeedPoints, timeline.SpeedPoint{At: timeline.Milliseconds(at), Speed: 0.2 + 2*math.Pow(rng.Float64(), 2)})
			}
			cut.SpeedPoints, cut.Speed, longest = cut.SpeedPoints[:min(16, len(cut.SpeedPoints))], 1, min(longest, 1000)
		}
		// Mostly shorter ones, down to a single frame.
		cut.TrimEnd = cut.TrimStart + timeline.Milliseconds(int64(34+math.Pow(rng.Float64(), 3)*longest))
		kinds := []timeline.TransitionKind{"", timeline.Dissolve, timeline.Dissolve, timeline.Dissolve, timeline.FadeBlack, timeline.FadeWhite}
		if kind := kinds[rng.IntN(len(kinds))]; kind != "" {
			cut.Transition = &timeline.Transition{Kind: kind, Duration: timeline.Milliseconds(100 + rng.Int64N(900))}
		}
		cuts = append(cuts, cut)
	}
	return cuts
}

// frameMap compares the frames of a film with its timeline.
type frameMap struct {
	engine *Engine
	path   string
	turned int
	canvas string // a clip at the start of the film; "" is none

	info     *Info
	pictures []cells // the source's frames, in order
}

// read analyses the source and returns its length.
func (m *frameMap) read(t *testing.T) time.Duration {
	t.Helper()
	var err error
	if m.info, err = analyse(context.Background(), m.engine.cfg.Media, m.path); err != nil {
		t.Fatal(err)
	}
	m.pictures = picturesIn(t, m.path, 0)
	if len(m.pictures) != len(m.info.Video.Starts) {
		t.Fatalf("the source has %d frames, analysed are %d", len(m.pictures), len(m.info.Video.Starts))
	}
	return m.info.Duration()
}

func (m *frameMap) check(t *testing.T, cuts []timeline.Segment) {
	t.Helper()
	ctx := context.Background()
	tl := timeline.Timeline{OutputKind: timeline.Video, Quality: timeline.High}
	if m.canvas != "" {
		tl.Segments = append(tl.Segments, timeline.Segment{SourceKey: m.canvas, Speed: 1})
		cuts[0].Transition = nil // the canvas clip's pictures are not checked
	}
	for _, c := range cuts {
		c.SourceKey = m.path
		tl.Segments = append(tl.Segments, c)
	}
	for i := range tl.Segments {
		s := &tl.Segments[i]
		s.Order, s.Volume, s.Duration = int64(i), 1, time.Hour
	}
	r := m.engine.newRun(jobOf(t, tl))
	out, err := r.render(ctx)
	if err != nil {
		t.Fatal(err)
	}
	shown := picturesIn(t, out.Path, m.turned)
	analysed, err := r.analyseAll(ctx)
	if err != nil {
		t.Fatal(err)
	}
	l, err := layOut(tl, analysed)
	if err != nil {
		t.Fatal(err)
	}
	if int64(len(shown)) != l.frames || l.frames != r.plan.Frames {
		t.Fatalf("%d frames, planned %d, laid out %d", len(shown), r.plan.Frames, l.frames)
	}
	drawn := drawnBy(l)
	for i, got := range shown {
		if !m.shows(l, drawn[i], got) {
			t.Errorf("frame %d shows %v, want %+v", i, got, drawn[i])
			return
		}
	}
	if m.canvas == "" && constantRate(m.info.Video).Known() { // then every frame is shown once
		for i := range l.segments[0].frames - l.segments[0].next.Frames {
			if shown[i].number() != m.pictures[i].number() {
				t.Fatalf("the whole source: frame %d shows %d, want %d", i, shown[i].number(), m.pictures[i].number())
			}
		}
	}
}

// layer is one of the pictures mixed in a frame of the film.
type layer struct {
	segment int     // in play order; -1 for a colour
	frame   int64   // of the segment
	level   float64 // of the colour
	weight  float64
}

// drawnBy returns the layers of each frame of the film by the rules of the API. It takes only the starts and lengths of
// segments from the plan.
func drawnBy(l *layout) [][]layer {
	film := make([][]layer, l.frames)
	for k, p := range l.segments {
		for i := range p.frames {
			own := layer{segment: k, frame: i, weight: 1}
			at, in, out := &film[p.frame+i], p.join, p.next
			n, left := in.Frames, p.frames-i // left includes this one
			switch {
			case in.Kind == timeline.Dissolve && i < n:
				own.weight = float64(i+1) / float64(n+1)
			case out.Kind == timeline.Dissolve && left <= out.Frames:
				own.weight = float64(left) / float64(out.Frames+1)
			case in.Kind != timeline.Dissolve && i < n-n/2:
				n -= n / 2
				own.weight = 1 - float64(n-i)/float64(n+1)
				*at = append(*at, layer{segment: -1, level: level(in.Kind), weight: 1 - own.weight})
			case out.Kind != timeline.Dissolve && left <= out.Frames/2:
				n = out.Frames / 2
				own.weight = 1 - float64(n-left+1)/float64(n+1)
				*at = append(*at, layer{segment: -1, level: level(out.Kind), weight: 1 - own.weight})
			}
			*at = append(*at, own)
		}
	}
	return film
}

func level(kind timeline.TransitionKind) float64 {
	if kind == timeline.FadeWhite {
		return 255
	}
	return 0
}

// shows compares a picture with its expected layers. It computes the source's frame again in seconds: the last one that
// has begun by then, within the tolerance. Frames that begin within two microseconds of that may count or not.
func (m *frameMap) shows(l *layout, layers []layer, got cells) bool {
	mixes, blended := []cells{{}}, false
	for _, y := range layers {
		choice := [][]float64{slices.Repeat([]float64{y.level}, 16)}
		if y.segment >= 0 {
			p := &l.segments[y.segment]
			if p.source.Path != m.path {
				return true
			}
			early, late := m.due(p, l.rate.Float(), y.frame, -2e-6), m.due(p, l.rate.Float(), y.frame, 2e-6)
			choice = [][]float64{early[:], late[:]}
			blended = blended || early.number() < 0 || late.number() < 0
		}
		var mixed []cells
		for _, mix := range mixes {
			for _, levels := range choice {
				mixed = append(mixed, mix.with(y.weight, levels))
			}
		}
		mixes = mixed
	}
	return slices.ContainsFunc(mixes, func(want cells) bool {
		if len(layers) == 1 && !blended {
			return want.number() == got.number()
		}
		for i := range want {
			if math.Abs(want[i]-got[i]) > 4 { // 2 from the mix, see TestMixesAreExact, and 2 from the encoder
				return false
			}
		}
		return true
	})
}

// due returns what a frame of a segment shows, by the rules of the API. slack is added to every instant.
func (m *frameMap) due(p *placed, rate float64, frame int64, slack float64) cells {
	s, v, zero := p.segment, m.info.Video, m.info.Zero
	speed, played := s.Speed, float64(frame)*s.Speed/rate
	if len(s.SpeedPoints) > 0 { // integrated in small steps
		const ds = 2e-5
		played = 0
		for t := 0.0; ; played += ds {
			k := 0
			for k+1 < len(s.SpeedPoints) && s.SpeedPoints[k+1].At.Seconds() <= played+ds/2 {
				k++
			}
			speed = s.SpeedPoints[k].Speed
			if k+1 < len(s.SpeedPoints) {
				a, b := s.SpeedPoints[k], s.SpeedPoints[k+1]
				speed += (b.Speed - speed) * (played + ds/2 - a.At.Seconds()) / (b.At - a.At).Seconds()
			}
			if t += ds / speed; t > float64(frame)/rate {
				played += ds - (t-float64(frame)/rate)*speed
				break
			}
		}
		slack *= 5
	}
	step := speed / rate
	start := func(n int) float64 {
		if n == len(v.Starts) {
			return v.start(n-1, zero) + v.usualStep().Seconds()
		}
		return v.start(n, zero)
	}
	// instant of the source, which a reversed segment plays from its end, and the picture that is seen then.
	instant, end := p.start+played+slack, p.out.Seconds()
	seen := func(tolerance float64) int { return v.visibleAt(instant+tolerance, zero) }
	if s.Reverse {
		instant, end = p.turned-played+slack, p.turned
		last := v.visibleAt(end-cutSlack, zero)
		seen = func(tolerance float64) int {
			n := 0
			for n < last && start(n+1) < instant-tolerance {
				n++
			}
			return n
		}
	}
	now := seen(1e-6)
	other, ended, share := now+1, start(now+1), 0.0
	if s.Reverse {
		other = now - 1
		share = (ended - instant) / (ended - start(now))
	} else {
		share = (instant - start(now)) / (ended - start(now))
	}
	inside := func(n int) bool {
		return n >= v.visibleAt(p.in.Seconds()+cutSlack, zero) && n <= v.visibleAt(end-cutSlack, zero)
	}
	if s.Smooth && share >= 0 && step < 0.9999*(ended-start(now)) && inside(now) && inside(other) {
		switch {
		case share < 0.1:
			return m.pictures[now]
		case share > 0.9:
			return m.pictures[other]
		}
		return cells{}.with(1-share, m.pictures[now][:]).with(share, m.pictures[other][:])
	}
	if s.Reverse && s.Speed == 1 && len(s.SpeedPoints) == 0 { // what the last frames but these show without it
		return m.pictures[v.visibleAt(p.start+float64(p.frames-1-frame)*step+tolerance(step, v)+slack, zero)]
	}
	return m.pictures[seen(tolerance(step, v))]
}

// with returns the cells plus weighted levels.
func (c cells) with(weight float64, levels []float64) cells {
	for i := range c {
		c[i] += weight * levels[i]
	}
	return c
}
