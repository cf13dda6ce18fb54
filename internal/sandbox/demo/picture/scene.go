package picture

import (
	"fmt"
	"math"
)

// Scene is a moving picture. Draw may be called for any frame in any order and
// from several goroutines, each with a canvas of its own.
type Scene interface {
	// Draw fills a canvas of Size with the frame that is shown at frame / Rate
	// seconds.
	Draw(c *Canvas, frame int)
	// Size is the displayed size in pixels.
	Size() (width, height int)
	// Rate is the number of frames a second.
	Rate() int
	// Lamp is where the lamp shines.
	Lamp() Lamp
}

// Lamp is a disc that is dark except for FlashFrames frames at the start of
// every whole second.
type Lamp struct {
	X, Y, Radius float64 // pixels of the displayed picture
}

// FlashFrames is how long the lamp shines.
const FlashFrames = 3

// Lit tells whether the lamp shines in a frame.
func Lit(frame, rate int) bool { return frame%rate < FlashFrames }

// instruments is what lies over every scene: a name, a timecode, and the lamp
// with a hand that goes round once a second.
type instruments struct {
	name, about string
	rate        int
	lamp        Lamp
	left, base  float64 // left edge and lower edge of the lettering
	title, code *Face
	small       *Face
}

var (
	paper = RGB(0xfff6e4)
	night = RGB(0x0a0d1c)
	amber = RGB(0xffc46b)
)

func newInstruments(name, about string, rate int, width, height int) *instruments {
	unit := float64(min(width, height)) / 720
	return &instruments{
		name: name, about: about, rate: rate,
		lamp: Lamp{X: float64(width) - 74*unit, Y: 74 * unit, Radius: 26 * unit},
		left: 40 * unit, base: float64(height) - 40*unit,
		title: NewFace(19*unit, 0.15), code: NewFace(34*unit, 0.12), small: NewFace(13*unit, 0.14),
	}
}

// timecode is hours:minutes:seconds:frames.
func timecode(frame, rate int) string {
	s := frame / rate
	return fmt.Sprintf("%02d:%02d:%02d:%02d", s/3600, s/60%60, s%60, frame%rate)
}

func (in *instruments) draw(c *Canvas, frame int) {
	code := timecode(frame, in.rate)
	h := in.base - 34*in.small.unit/1.3
	shadowed := func(f *Face, x, y float64, text string, v Color, alpha float32) {
		f.Draw(c, x+1.5, y+1.5, text, night, alpha*0.6)
		f.Draw(c, x, y, text, v, alpha)
	}
	shadowed(in.code, in.left, h, code, paper, 0.95)
	shadowed(in.title, in.left, h-19*in.small.unit/1.3-18*in.small.unit/1.3, in.name, amber, 0.95)
	shadowed(in.small, in.left+in.title.Width(in.name)+12*in.small.unit, h-33*in.small.unit/1.3, in.about, paper, 0.75)
	in.drawLamp(c, frame)
}

func (in *instruments) drawLamp(c *Canvas, frame int) {
	l := in.lamp
	lit := Lit(frame, in.rate)
	if lit {
		bloom := l.Radius * 3.2
		for y := int(l.Y - bloom); y <= int(l.Y+bloom); y++ {
			for x := int(l.X - bloom); x <= int(l.X+bloom); x++ {
				d := math.Hypot(float64(x)-l.X, float64(y)-l.Y) / bloom
				if d < 1 {
					c.Glow(x, y, RGB(0xffe9c0), float32((1-d)*(1-d)*0.55))
				}
			}
		}
		c.Disc(l.X, l.Y, l.Radius, Color{1, 1, 1}, 1)
	} else {
		c.Disc(l.X, l.Y, l.Radius, night, 0.88)
	}
	c.Ring(l.X, l.Y, l.Radius*1.28, l.Radius*0.1, paper, 0.85)
	turn := 2 * math.Pi * float64(frame%in.rate) / float64(in.rate)
	sin, cos := math.Sincos(turn)
	// The hand stays outside the disc, which has to be plainly dark or lit.
	c.Line(l.X+sin*l.Radius*1.12, l.Y-cos*l.Radius*1.12, l.X+sin*l.Radius*1.5, l.Y-cos*l.Radius*1.5, l.Radius*0.16, amber, 1)
}

// reflect fills the rows from shore down with a rippled, darkened image of
// what is above it. bright is how much light comes back, tint its colour.
func reflect(c *Canvas, shore int, t float64, ripples *tile, tint Color, bright float32) {
	w := c.Width
	depth := float64(c.Height - shore)
	row := make([]float32, 2) // reused in the loop below: dx of the row's two waves
	for y := shore; y < c.Height; y++ {
		d := float64(y-shore) / depth // 0 at the shore, 1 at the viewer
		// Waves look longer and reach further the nearer they are.
		row[0] = float32(math.Sin(float64(y)*0.9/(0.25+d)+t*3.1) * (1 + 5*d))
		row[1] = float32(math.Sin(float64(y)*0.37/(0.2+d)-t*2.2) * (1 + 8*d))
		near := float32(d)
		for x := range w {
			n := ripples.at(float32(x)*0.55/(0.4+near)+float32(t)*14, float32(y-shore)*3.2/(0.3+near)-float32(t)*30)
			dx := row[0] + row[1] + (n-0.5)*(6+26*near)
			dy := (n - 0.5) * (8 + 46*near)
			sx := int(float32(x) + dx)
			sx = min(max(sx, 0), w-1)
			sy := shore - 1 - int(float32(y-shore)*1.05+dy)
			sy = min(max(sy, 0), shore-1)
			v := c.at(3 * (sy*w + sx))
			v = v.Mix(tint, 0.25+0.4*near).Scale(bright * (1 - 0.25*near))
			if glint := n - 0.66; glint > 0 { // crests catch the sky
				v = v.Add(tint, glint*0.9*(0.4+near))
			}
			c.set(3*(y*w+x), v)
		}
	}
}

// glowTable is light by squared distance, so that no root is taken per pixel.
type glowTable struct {
	values []float32
	scale  float32 // entries per squared pixel
}

func newGlowTable(reach float64, fall func(d float64) float64) *glowTable {
	const size = 4096
	g := &glowTable{values: make([]float32, size+1), scale: float32(size / (reach * reach))}
	for i := range size {
		g.values[i] = float32(fall(math.Sqrt(float64(i) / float64(g.scale))))
	}
	return g // the last entry is 0: beyond reach there is no light
}

func (g *glowTable) at(squared float32) float32 {
	return g.values[min(int(squared*g.scale), len(g.values)-1)]
}

// grain is a little noise that hides the steps of 8-bit gradients. It moves
// with the frame.
func grain(x, y, frame int) float32 {
	v := uint32(x)*0x9e3779b1 ^ uint32(y)*0x85ebca77 ^ uint32(frame)*0xc2b2ae3d
	v = (v ^ v>>15) * 0x2c1b3c6d
	return (float32(v>>16)/65536 - 0.5) * (2.2 / 255)
}
