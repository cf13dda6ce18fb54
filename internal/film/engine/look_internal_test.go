// Rotation, mirror, crop, moves and adjustments, measured in the film against the contract's definitions.

package engine

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"cutroom/internal/base/fault"
	"cutroom/internal/film/timeline"
	"cutroom/internal/testkit/mediatest"
)

// The level of every point of the film tells which point of the source it shows, see rampClip.
func TestTurnedMirroredAndCropped(t *testing.T) {
	t.Parallel()
	upright := rampClip(t, "320x180", "")
	turned := mediatest.WithMatrix(t, upright, [4]int32{0, 1, -1, 0}) // clockwise
	crop := timeline.Crop{Left: 0.1, Top: 0.2, Right: 0.3, Bottom: 0.05}
	focus := timeline.Focus{X: 0.3, Y: 0.6} // of the cropped picture
	for aspect, fit := range map[timeline.Aspect]timeline.Fit{timeline.SourceAspect: timeline.Contain, "1:1": timeline.Cover, "9:16": timeline.Blur} {
		t.Run(string(aspect), func(t *testing.T) {
			t.Parallel()
			tl := timeline.Timeline{Canvas: &timeline.Canvas{Aspect: aspect, Fit: fit}}
			for i := range 8 {
				s := timeline.Segment{SourceKey: upright, Rotate: int64(i%4) * 90, Mirror: i > 3, Crop: crop, Focus: &focus}
				if i%3 == 1 {
					s.SourceKey = turned
				}
				tl.Segments = append(tl.Segments, s)
			}
			for i, p := range rendered(t, tl) {
				s := tl.Segments[i]
				canvas := Canvas{Width: p.Rect.Dx(), Height: p.Rect.Dy()}
				if i == 0 && aspect == timeline.SourceAspect && (canvas.Width != 192 || canvas.Height != 136) { // 320 x 0.6, 180 x 0.75 = 135
					t.Fatalf("the canvas is %v", p.Rect)
				}
				w, h := 320.0, 180.0 // as displayed
				if s.SourceKey == turned {
					w, h = h, w
				}
				if s.Rotate%180 != 0 {
					w, h = h, w
				}
				w, h = w*0.6, h*0.75
				// The size of the fitted picture, in canvas pixels, and its point in the middle of the canvas.
				scale, middle := min(float64(canvas.Width)/w, float64(canvas.Height)/h), timeline.Focus{X: 0.5, Y: 0.5}
				if fit == timeline.Cover {
					scale = max(float64(canvas.Width)/w, float64(canvas.Height)/h)
					halfX, halfY := float64(canvas.Width)/w/scale/2, float64(canvas.Height)/h/scale/2
					middle = timeline.Focus{X: min(1-halfX, max(halfX, focus.X)), Y: min(1-halfY, max(halfY, focus.Y))}
				}
				for _, at := range [][2]float64{{0.5, 0.5}, {0.2, 0.3}, {0.7, 0.25}, {0.3, 0.8}, {0.85, 0.7}} {
					// A point of the cropped picture, its place on the canvas, and in the source.
					px := int(float64(canvas.Width)/2 + (at[0]-middle.X)*w*scale)
					py := int(float64(canvas.Height)/2 + (at[1]-middle.Y)*h*scale)
					if px < 2 || py < 2 || px > canvas.Width-3 || py > canvas.Height-3 {
						continue
					}
					x, y := crop.Left+at[0]*0.6, crop.Top+at[1]*0.75
					if s.Mirror {
						x = 1 - x
					}
					for range s.Rotate / 90 { // where a point came from before a turn clockwise
						x, y = y, 1-x
					}
					if s.SourceKey == turned {
						x, y = y, 1-x
					}
					gotX, gotY := (float64(p.Y[p.YOffset(px, py)])-16)/219, (float64(p.Cb[p.COffset(px, py)])-16)/224
					if math.Abs(gotX-x) > 0.016 || math.Abs(gotY-y) > 0.016 {
						t.Errorf("%s, turned by %d, mirrored %v, %v: shows %.3f, %.3f of the source, want %.3f, %.3f",
							filepath.Base(s.SourceKey), s.Rotate, s.Mirror, at, gotX, gotY, x, y)
					}
				}
			}
		})
	}
}

func TestSizeAfterCrop(t *testing.T) {
	info := fakeVideo(r(30, 1), 60, 0)
	for _, tt := range []struct {
		w, h   int
		crop   timeline.Crop
		rotate int64
		canvas string // "" is a failure
	}{
		{320, 180, timeline.Crop{Left: 0.1, Right: 0.2}, 0, "224x180"},
		{320, 180, timeline.Crop{Left: 0.1, Right: 0.2}, 90, "126x320"},
		{320, 180, timeline.Crop{Top: 0.25}, 0, "320x136"},                                          // 135
		{100, 100, timeline.Crop{Left: 0.35, Right: 0.2, Top: 0.4, Bottom: 0.57 - 0.4}, 0, "46x44"}, // 45 and 43
		{160, 160, timeline.Crop{Left: 0.45, Right: 0.45}, 0, "16x160"},
		{158, 160, timeline.Crop{Left: 0.45, Right: 0.45}, 0, ""},
		{320, 150, timeline.Crop{Top: 0.9}, 0, ""},
		{321, 181, timeline.Crop{}, 0, "320x180"},
	} {
		v := info.Video
		v.Width, v.Height, v.DisplayWidth, v.DisplayHeight = tt.w, tt.h, tt.w, tt.h
		s := ms(0, 1000)
		s.Crop, s.Rotate = tt.crop, tt.rotate
		p, err := plan(filmOf(s), map[string]*Info{"s": info}, Limits{})
		if tt.canvas == "" {
			if f := fault.As(err); f == nil || f.Reason != fault.NoMedia {
				t.Errorf("%+v of %dx%d: %v", tt.crop, tt.w, tt.h, err)
			}
			continue
		}
		if err != nil {
			t.Error(err)
		} else if got := fmt.Sprintf("%dx%d", p.Canvas.Width, p.Canvas.Height); got != tt.canvas {
			t.Errorf("%+v of %dx%d: %s, want %s", tt.crop, tt.w, tt.h, got, tt.canvas)
		}
	}
}

// adjusted is a level of the contract's definition, exact.
func adjusted(a timeline.Adjust, plane int, level float64) float64 {
	g := math.Exp2(a.Exposure)
	switch plane {
	case 0:
		return min(235, max(16, 16+219*((g*(level-16)/219-0.5)*(1+a.Contrast)+0.5)))
	case 1:
		return min(240, max(16, 128+224*(g*(level-128)/224*(1+a.Saturation)-0.06*a.Warmth+0.04*a.Tint)))
	}
	return min(240, max(16, 128+224*(g*(level-128)/224*(1+a.Saturation)+0.06*a.Warmth+0.04*a.Tint)))
}

// Every level of every plane is adjusted as the contract defines, before encoding. Black bars stay black.
func TestAdjustmentIsExact(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "levels.mp4")
	mediatest.FFmpeg(t, "-f", "lavfi", "-i", "color=gray:size=256x128:rate=10:duration=0.5,format=yuv420p,"+
		"geq=lum='if(between(X,16,235),X,16)':cb='if(between(X,8,119),2*X,128)':cr='if(between(X,8,119),256-2*X,128)',"+hd,
		"-c:v", "libx264", "-qp", "0", path)
	engine := newEngine(t, nil)
	info, err := analyse(t.Context(), engine.cfg.Media, path)
	if err != nil {
		t.Fatal(err)
	}
	square := func(tl *timeline.Timeline) { tl.Canvas = &timeline.Canvas{Aspect: "1:1", Fit: timeline.Contain} }
	draw := func(a timeline.Adjust, moves []timeline.Move, change func(*timeline.Timeline)) []byte {
		s := ms(0, 500)
		s.Adjust, s.Moves = a, moves
		v := planOf(t, map[string]*Info{"s": info}, change, s).Parts[0]
		v.shots[0].source.Path = path
		return drawn(t, v)
	}
	still := []timeline.Move{{Scale: 1.5, X: 0.4, Y: 0.5}}
	for _, change := range []func(*timeline.Timeline){nil, square} {
		w, h, bar := 256, 128, 0
		if change != nil {
			w, bar = 128, 32
			h = w
		}
		plain, moved := draw(timeline.Adjust{}, nil, change), draw(timeline.Adjust{}, still, change)
		together := timeline.Adjust{Exposure: 0.3, Contrast: -0.25, Saturation: 0.4, Warmth: 0.5, Tint: -0.6}
		adjustments := []timeline.Adjust{together}
		if change == nil {
			adjustments = append(adjustments, timeline.Adjust{Exposure: 1}, timeline.Adjust{Exposure: -0.7}, timeline.Adjust{Contrast: 1},
				timeline.Adjust{Contrast: -1}, timeline.Adjust{Saturation: -1}, timeline.Adjust{Saturation: 0.8}, timeline.Adjust{Warmth: 1},
				timeline.Adjust{Tint: -1})
		}
		for _, a := range adjustments {
			for _, c := range []struct {
				moves []timeline.Move
				from  []byte
				slack float64
			}{{nil, plain, 0}, {still, moved, 3}} {
				if c.moves != nil && a != together {
					continue
				}
				got := draw(a, c.moves, change)
				for i := range w * h * 3 / 2 {
					plane, row := 0, i/w
					if i >= w*h {
						j := i - w*h
						plane, row = 1+j/(w*h/4), j%(w*h/4)/(w/2)*2
					}
					want, slack := adjusted(a, plane, float64(c.from[i])), 1+c.slack*b2f(bar > 0)
					switch margin := row - bar; {
					case bar == 0:
					case c.moves == nil && (row < bar || row >= h-bar):
						want = float64([]int{16, 128, 128}[plane])
					case c.moves != nil && (row < 8 || row >= h-8): // the bars end at row 16
						want = float64([]int{16, 128, 128}[plane])
					case c.moves != nil && (margin < 0 || row > h-24): // what lies on the bars' edges is mixed with them
						continue
					case c.moves != nil && (want <= 17 || want >= 234): // sampling sharp edges between pixels overshoots
						continue
					}
					if math.Abs(want-float64(got[i])) > slack {
						t.Fatalf("%+v, %v, bars of %d: plane %d, row %d: %d becomes %d, want %.1f", a, c.moves, bar, plane, row, c.from[i], got[i], want)
					}
				}
			}
		}
	}
}

func b2f(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// markedClip shows a light box of another colour at 120 to 200, 60 to 120 of 320x180.
func markedClip(t *testing.T, length time.Duration) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "marked.mp4")
	mediatest.FFmpeg(t, "-f", "lavfi", "-i", fmt.Sprintf("color=gray:size=320x180:rate=10:duration=%f,format=yuv420p,"+
		"geq=lum='if(between(X,120,199)*between(Y,60,119),200,60)':cb='if(between(X,60,99)*between(Y,30,59),180,80)':cr=128,%s", length.Seconds(), hd),
		"-c:v", "libx264", "-qp", "2", "-g", "40", path)
	return path
}

// edges returns where a line of levels passes half-way from low to high and back, in shares of the line's length; NaN
// for an edge that is not on the line.
func edges(line []byte, low, high float64) (rise, fall float64) {
	rise, fall = math.NaN(), math.NaN()
	half := (low + high) / 2
	for i := 1; i < len(line); i++ {
		a, b := float64(line[i-1]), float64(line[i])
		at := (float64(i) - 0.5 + (half-a)/(b-a)) / float64(len(line))
		switch {
		case a < half && b >= half:
			rise = at
		case a >= half && b < half:
			fall = at
		}
	}
	return rise, fall
}

// windowAt is the contract's definition of a window: its upper left corner and its share, at t seconds.
func windowAt(moves []timeline.Move, t float64) (x, y, share float64) {
	at := func(m timeline.Move) float64 { return m.At.Seconds() }
	m := moves[0]
	for k := 1; k < len(moves); k++ {
		a, b := moves[k-1], moves[k]
		if p := (t - at(a)) / (at(b) - at(a)); p > 0 {
			p = min(1, p)
			m.Scale, m.X, m.Y = a.Scale*math.Pow(b.Scale/a.Scale, p), a.X+(b.X-a.X)*p, a.Y+(b.Y-a.Y)*p
		}
	}
	share = 1 / m.Scale
	corner := func(middle float64) float64 { return min(1-share, max(0, middle-share/2)) }
	return corner(m.X), corner(m.Y), share
}

// In every frame, in every part and under joins, the window is where the contract places it, in luma and colour.
func TestMovesAreExactInEveryFrame(t *testing.T) {
	t.Parallel()
	marked := markedClip(t, 15*time.Second)
	second := time.Second
	moves := []timeline.Move{
		{At: second / 2, Scale: 1, X: 0.5, Y: 0.5}, {At: 4 * second, Scale: 1.3, X: 0.5, Y: 0.5}, // slowly in
		{At: 7 * second, Scale: 1.3, X: 0.62, Y: 0.42}, // slowly over
		{At: 9 * second, Scale: 3, X: 0.4, Y: 0.6}, {At: 10*second + 33*time.Millisecond, Scale: 8, X: 0.38, Y: 0.34},
		{At: 12 * second, Scale: 1, X: 0, Y: 1}, {At: 20 * second, Scale: 1.5, X: 1, Y: 0}, // beyond the end
	}
	tl := filmOf(of(marked, ms(0, 0)), joinedBy(timeline.Dissolve, 1200, of(marked, ms(0, 4000))))
	tl.Segments[0].Moves = moves
	tl.Segments[1].Moves = []timeline.Move{{At: 0, Scale: 2, X: 0.45, Y: 0.5}, {At: 2 * second, Scale: 2, X: 0.55, Y: 0.5}}
	tl.Segments[1].Speed = 0.5 // the moves count output time
	plan := func() *Plan {
		r := newEngine(t, nil).newRun(jobOf(t, tl))
		defer r.close()
		if err := r.open(t.Context()); err != nil {
			t.Fatal(err)
		}
		return r.plan
	}()
	const w, h = 320, 180
	var film [2][][]byte // of each segment, under the join as well
	for _, v := range plan.Sequence {
		for i, s := range v.shots {
			raw := drawn(t, &videoPart{Name: v.Name, Frames: v.Frames, canvas: v.canvas, shots: v.shots[i : i+1]})
			for ; len(raw) > 0; raw = raw[w*h*3/2:] {
				film[s.segment] = append(film[s.segment], raw[:w*h*3/2])
			}
		}
	}
	if len(film[0]) != 150 || len(film[1]) != 80 || len(plan.Sequence) < 5 {
		t.Fatalf("%d and %d frames in %d parts", len(film[0]), len(film[1]), len(plan.Sequence))
	}
	worst, measured := [2]float64{}, 0
	for i, p := range slices.Concat(film[0], film[1]) {
		s, frame := 0, i
		if i >= len(film[0]) {
			s, frame = 1, i-len(film[0])
		}
		x, y, share := windowAt(tl.Segments[s].Moves, float64(frame)/10)
		shown := func(at, corner float64) float64 { return (at - corner) / share }
		for plane, size := range [][2]int{{w, h}, {w / 2, h / 2}} {
			pixels, low, high := p[:w*h], 60.0, 200.0
			if plane == 1 {
				pixels, low, high = p[w*h:w*h*5/4], 80, 180
			}
			inX, inY := shown(160.0/320, x), shown(90.0/180, y)
			middleX, middleY := int(min(0.99, max(0, inX))*float64(size[0])), int(min(0.99, max(0, inY))*float64(size[1]))
			row, column := pixels[middleY*size[0]:(middleY+1)*size[0]], make([]byte, size[1])
			for k := range column {
				column[k] = pixels[k*size[0]+middleX]
			}
			left, right := edges(row, low, high)
			top, bottom := edges(column, low, high)
			for _, e := range []struct{ got, want, length, across float64 }{
				{left, shown(120.0/320, x), w, inY}, {right, shown(200.0/320, x), w, inY},
				{top, shown(60.0/180, y), h, inX}, {bottom, shown(120.0/180, y), h, inX},
			} {
				if e.want < 0.05 || e.want > 0.95 || e.across < 0 || e.across > 1 {
					continue // not in the window
				}
				measured++
				off := math.Abs(e.got-e.want) * e.length // pixels of the canvas
				worst[plane] = max(worst[plane], off)
				if !(off <= 0.3) {
					t.Fatalf("frame %d, plane %d: an edge at %.2f of %g, want %.2f", i, plane, e.got*e.length, e.length, e.want*e.length)
				}
			}
		}
	}
	if measured < 1000 {
		t.Errorf("only %d edges were measured", measured)
	}
	t.Logf("%d edges, at most %.3f pixels off, %.3f in colour", measured, worst[0], worst[1])
}

// A changed look encodes its segment and the joins at its ends, and no other part. A change without a visible effect
// changes no part.
func TestLookChangesItsSegmentAlone(t *testing.T) {
	info := fakeVideo(r(30, 1), 1800, 0)
	parts := func(change func(s *timeline.Segment)) map[string]*videoPart {
		segments := []timeline.Segment{ms(0, 9000), joinedBy(timeline.Dissolve, 500, ms(10000, 40000)), joinedBy(timeline.Push, 500, ms(45000, 55000))}
		change(&segments[1])
		found := map[string]*videoPart{}
		for _, v := range planOf(t, map[string]*Info{"s": info}, func(tl *timeline.Timeline) {
			tl.Canvas = &timeline.Canvas{Aspect: "16:9", Fit: timeline.Contain}
		}, segments...).Parts {
			found[v.Key] = v
		}
		return found
	}
	base := parts(func(*timeline.Segment) {})
	second := 0 // parts that show the second segment
	for _, v := range base {
		if slices.ContainsFunc(v.shots, func(s *shot) bool { return s.segment == 1 }) {
			second++
		}
	}
	move := func(at time.Duration, scale float64) timeline.Move {
		return timeline.Move{At: at, Scale: scale, X: 0.2, Y: 0.5}
	}
	for name, tt := range map[string]struct {
		change func(s *timeline.Segment)
		parts  int
	}{
		"rotate":     {func(s *timeline.Segment) { s.Rotate = 180 }, second},
		"mirror":     {func(s *timeline.Segment) { s.Mirror = true }, second},
		"crop":       {func(s *timeline.Segment) { s.Crop.Top = 0.2 }, second},
		"adjust":     {func(s *timeline.Segment) { s.Adjust.Warmth = 0.1 }, second},
		"moves":      {func(s *timeline.Segment) { s.Moves = []timeline.Move{move(0, 1), move(time.Minute, 2)} }, second},
		"late moves": {func(s *timeline.Segment) { s.Moves = []timeline.Move{move(20*time.Second, 1), move(29*time.Second, 2)} }, 3},
		"no moves":   {func(s *timeline.Segment) { s.Moves = []timeline.Move{move(0, 1), move(time.Second, 1)} }, 0},
	} {
		changed := 0
		for key, v := range parts(tt.change) {
			if base[key] != nil {
				continue
			}
			changed++
			if !slices.ContainsFunc(v.shots, func(s *shot) bool { return s.segment == 1 }) {
				t.Errorf("%s: changes %s", name, v.Name)
			}
		}
		if changed != tt.parts {
			t.Errorf("%s: changes %d parts, want %d of %d", name, changed, tt.parts, second)
		}
	}
	// A window that stands still is the same wherever a part lies.
	still := func(trim int64) map[string]*videoPart {
		return parts(func(s *timeline.Segment) {
			s.TrimStart = timeline.Milliseconds(trim)
			s.Moves = []timeline.Move{move(0, 1.5), move(time.Second, 2)}
		})
	}
	shared, before := 0, still(10000)
	for key, v := range still(12000) {
		if before[key] != nil && v.shots[0].moves != nil {
			shared++
		}
	}
	if shared < 3 {
		t.Errorf("a trim keeps %d parts with a still window", shared)
	}
	plain := planOf(t, map[string]*Info{"s": info}, nil, ms(0, 5000))
	moving := ms(0, 5000)
	moving.Moves = []timeline.Move{move(0, 1), move(time.Minute, 2)}
	pixels, drawn, _ := plain.work()
	if p, d, _ := planOf(t, map[string]*Info{"s": info}, nil, moving).work(); d != 2*drawn || p <= pixels {
		t.Errorf("%d frames are drawn with moves, %d without", d, drawn)
	}
}
