package picture

import (
	"math"
	"strconv"
	"strings"
	"sync"
)

// glyphs are drawn with strokes on a grid 6 wide and 10 high, y downwards:
// lines of points separated by semicolons. Corners are cut, as on an
// instrument's face. There are no small letters.
var glyphs = map[rune]string{
	'0': "1.5,0 4.5,0 6,1.5 6,8.5 4.5,10 1.5,10 0,8.5 0,1.5 1.5,0",
	'1': "1,2 3.2,0 3.2,10;1,10 5.4,10",
	'2': "0,1.6 1.6,0 4.5,0 6,1.5 6,3.6 0,10 6,10",
	'3': "0,1.5 1.5,0 4.5,0 6,1.5 6,3.6 4.7,4.8 2.2,4.8;4.7,4.8 6,6.2 6,8.5 4.5,10 1.5,10 0,8.5",
	'4': "4.4,10 4.4,0 0,7 6,7",
	'5': "5.7,0 0.5,0 0.5,4.4 4.5,4.4 6,5.9 6,8.5 4.5,10 1.5,10 0,8.5",
	'6': "5.5,0.8 4.7,0 1.5,0 0,1.5 0,8.5 1.5,10 4.5,10 6,8.5 6,5.9 4.5,4.4 0,4.4",
	'7': "0,0 6,0 2.2,10",
	'8': "1.5,0 4.5,0 5.8,1.3 5.8,3.4 4.4,4.8 1.6,4.8 0.2,3.4 0.2,1.3 1.5,0;1.6,4.8 0,6.3 0,8.5 1.5,10 4.5,10 6,8.5 6,6.3 4.4,4.8",
	'9': "0.5,9.2 1.3,10 4.5,10 6,8.5 6,1.5 4.5,0 1.5,0 0,1.5 0,4.1 1.5,5.6 6,5.6",
	'A': "0,10 0,3 3,0 6,3 6,10;0,6.2 6,6.2",
	'B': "0,0 4.5,0 5.8,1.3 5.8,3.4 4.4,4.8 0,4.8;4.4,4.8 6,6.3 6,8.5 4.5,10 0,10 0,0",
	'C': "6,1.8 4.4,0 1.6,0 0,1.6 0,8.4 1.6,10 4.4,10 6,8.2",
	'D': "0,0 4,0 6,2 6,8 4,10 0,10 0,0",
	'E': "6,0 0,0 0,10 6,10;0,4.8 4.6,4.8",
	'F': "6,0 0,0 0,10;0,4.8 4.6,4.8",
	'G': "6,1.8 4.4,0 1.6,0 0,1.6 0,8.4 1.6,10 4.4,10 6,8.4 6,5.4 3.4,5.4",
	'H': "0,0 0,10;6,0 6,10;0,4.8 6,4.8",
	'I': "1.2,0 4.8,0;3,0 3,10;1.2,10 4.8,10",
	'J': "1.6,0 5.4,0 5.4,8.4 3.8,10 1.6,10 0,8.4",
	'K': "0,0 0,10;6,0 0,5.6;1.9,4 6,10",
	'L': "0,0 0,10 5.8,10",
	'M': "0,10 0,0 3,4.6 6,0 6,10",
	'N': "0,10 0,0 6,10 6,0",
	'O': "1.6,0 4.4,0 6,1.6 6,8.4 4.4,10 1.6,10 0,8.4 0,1.6 1.6,0",
	'P': "0,10 0,0 4.4,0 6,1.6 6,3.8 4.4,5.4 0,5.4",
	'Q': "1.6,0 4.4,0 6,1.6 6,8.4 4.4,10 1.6,10 0,8.4 0,1.6 1.6,0;3.6,7.2 6.2,10.4",
	'R': "0,10 0,0 4.4,0 6,1.6 6,3.6 4.4,5.2 0,5.2;3,5.2 6,10",
	'S': "6,1.6 4.4,0 1.6,0 0,1.6 0,3.4 1.4,4.6 4.6,5.2 6,6.5 6,8.4 4.4,10 1.6,10 0,8.4",
	'T': "0,0 6,0;3,0 3,10",
	'U': "0,0 0,8.4 1.6,10 4.4,10 6,8.4 6,0",
	'V': "0,0 3,10 6,0",
	'W': "0,0 1.2,10 3,5 4.8,10 6,0",
	'X': "0,0 6,10;6,0 0,10",
	'Y': "0,0 3,4.6 6,0;3,4.6 3,10",
	'Z': "0,0 6,0 0,10 6,10",
	'.': "2.9,9.8 3.1,9.8",
	',': "3.2,9.4 2.4,11.4",
	':': "2.9,3 3.1,3;2.9,8 3.1,8",
	'-': "1.2,5.2 4.8,5.2",
	'+': "1,5.2 5,5.2;3,3.2 3,7.2",
	'/': "5.4,0 0.6,10",
	'=': "1,4 5,4;1,6.8 5,6.8",
	'(': "4,-0.6 2.4,1.6 2.4,8.4 4,10.6",
	')': "2,-0.6 3.6,1.6 3.6,8.4 2,10.6",
	'%': "5.4,0 0.6,10;0.4,1.2 1.4,0.2 2.4,1.2 1.4,2.2 0.4,1.2;3.6,8.8 4.6,7.8 5.6,8.8 4.6,9.8 3.6,8.8",
	'×': "1,3 5,8;5,3 1,8",
	'·': "2.9,5.2 3.1,5.2",
}

// Face draws lettering of one size. It is safe for concurrent use.
type Face struct {
	unit   float64 // pixels per unit of the grid
	stroke float64 // pixels

	mu    sync.Mutex
	masks map[rune]*mask
}

type mask struct {
	x, y, w, h int // place of the first pixel relative to the pen
	cover      []float32
}

// NewFace makes lettering with capitals of the given height in pixels. weight
// is the stroke's thickness relative to the height; 0 means 0.13.
func NewFace(height, weight float64) *Face {
	if weight == 0 {
		weight = 0.13
	}
	return &Face{unit: height / 10, stroke: height * weight, masks: map[rune]*mask{}}
}

// advance is the distance between two letters.
func (f *Face) advance() float64 { return 6*f.unit + f.stroke + 1.7*f.unit }

// Width is the width of a text in pixels. All letters are equally wide; a space
// is narrower.
func (f *Face) Width(text string) float64 {
	var w float64
	for _, r := range text {
		w += f.step(r)
	}
	return w
}

func (f *Face) step(r rune) float64 {
	switch r {
	case ' ':
		return f.advance() * 0.6
	case '.', ':', '·', ',':
		return f.advance() * 0.55
	}
	return f.advance()
}

// Draw writes a text whose capitals' top left corner is at x, y.
func (f *Face) Draw(c *Canvas, x, y float64, text string, v Color, alpha float32) {
	for _, r := range strings.ToUpper(text) {
		step := f.step(r)
		if m := f.mask(r); m != nil {
			// A narrow letter's grid is centred on its step.
			left := int(math.Round(x - (f.advance()-step)/2 + f.stroke/2))
			top := int(math.Round(y))
			for py := range m.h {
				for px := range m.w {
					c.Blend(left+m.x+px, top+m.y+py, v, alpha*m.cover[py*m.w+px])
				}
			}
		}
		x += step
	}
}

func (f *Face) mask(r rune) *mask {
	f.mu.Lock()
	defer f.mu.Unlock()
	if m, ok := f.masks[r]; ok {
		return m
	}
	m := f.render(glyphs[r])
	f.masks[r] = m
	return m
}

// render draws a glyph's strokes into one mask, so that strokes that cross do
// not count twice.
func (f *Face) render(strokes string) *mask {
	if strokes == "" {
		return nil
	}
	pad := int(math.Ceil(f.stroke/2 + f.unit + 1))
	m := &mask{x: -pad, y: -pad, w: int(math.Ceil(6*f.unit)) + 2*pad, h: int(math.Ceil(10*f.unit)) + 2*pad}
	m.cover = make([]float32, m.w*m.h)
	for stroke := range strings.SplitSeq(strokes, ";") {
		points := parsePoints(stroke)
		for i := 1; i < len(points); i++ {
			a, b := points[i-1], points[i]
			for py := range m.h {
				for px := range m.w {
					d := toSegment(float64(px+m.x)+0.5, float64(py+m.y)+0.5, a[0]*f.unit, a[1]*f.unit, b[0]*f.unit, b[1]*f.unit)
					at := py*m.w + px
					m.cover[at] = max(m.cover[at], clamp(float32(f.stroke/2-d)+0.5))
				}
			}
		}
	}
	return m
}

func parsePoints(stroke string) [][2]float64 {
	var points [][2]float64
	for pair := range strings.FieldsSeq(stroke) {
		xs, ys, _ := strings.Cut(pair, ",")
		x, errX := strconv.ParseFloat(xs, 64)
		y, errY := strconv.ParseFloat(ys, 64)
		if errX != nil || errY != nil {
			panic("picture: glyph point " + pair) // the table above is wrong; a test draws every glyph
		}
		points = append(points, [2]float64{x, y})
	}
	return points
}
