// Package picture draws the demonstration's moving pictures: two procedural
// landscapes, the lettering over them and a lamp that flashes at every whole
// second, so that a film made of them can be measured against its sound.
//
// Everything is a pure function of the frame number: the same frame is the same
// bytes on every machine and in any order of drawing.
package picture

import "math"

// Canvas is a picture of 8-bit RGB, three bytes a pixel, rows from the top
// without padding: ffmpeg's rgb24.
type Canvas struct {
	Width, Height int
	Pix           []byte
}

// NewCanvas makes a black canvas.
func NewCanvas(width, height int) *Canvas {
	return &Canvas{Width: width, Height: height, Pix: make([]byte, 3*width*height)}
}

// Color is a colour with channels from 0 to 1; light that is added up may
// exceed 1 and is cut when it is stored.
type Color struct{ R, G, B float32 }

// RGB is the colour of a hexadecimal number such as 0x1b1f4b.
func RGB(hex uint32) Color {
	return Color{float32(hex>>16&255) / 255, float32(hex>>8&255) / 255, float32(hex&255) / 255}
}

// Mix is a for t = 0 and b for t = 1.
func (a Color) Mix(b Color, t float32) Color {
	return Color{a.R + (b.R-a.R)*t, a.G + (b.G-a.G)*t, a.B + (b.B-a.B)*t}
}

// Add adds b's light, scaled.
func (a Color) Add(b Color, scale float32) Color {
	return Color{a.R + b.R*scale, a.G + b.G*scale, a.B + b.B*scale}
}

// Scale is the colour in brighter or dimmer light.
func (a Color) Scale(s float32) Color { return Color{a.R * s, a.G * s, a.B * s} }

func toByte(v float32) byte {
	switch {
	case v <= 0:
		return 0
	case v >= 1:
		return 255
	}
	return byte(v*255 + 0.5)
}

// set stores a colour at a byte offset.
func (c *Canvas) set(at int, v Color) {
	p := c.Pix[at : at+3 : at+3]
	p[0], p[1], p[2] = toByte(v.R), toByte(v.G), toByte(v.B)
}

// at is the colour at a byte offset.
func (c *Canvas) at(at int) Color {
	p := c.Pix[at : at+3 : at+3]
	return Color{float32(p[0]) / 255, float32(p[1]) / 255, float32(p[2]) / 255}
}

// Blend lays a colour over a pixel; pixels outside are ignored.
func (c *Canvas) Blend(x, y int, v Color, alpha float32) {
	if x < 0 || y < 0 || x >= c.Width || y >= c.Height || alpha <= 0 {
		return
	}
	at := 3 * (y*c.Width + x)
	c.set(at, c.at(at).Mix(v, min(alpha, 1)))
}

// Glow adds light to a pixel; pixels outside are ignored.
func (c *Canvas) Glow(x, y int, v Color, amount float32) {
	if x < 0 || y < 0 || x >= c.Width || y >= c.Height {
		return
	}
	at := 3 * (y*c.Width + x)
	c.set(at, c.at(at).Add(v, amount))
}

// Fill lays a colour over the rectangle [x, x+w) x [y, y+h).
func (c *Canvas) Fill(x, y, w, h int, v Color, alpha float32) {
	for py := max(y, 0); py < min(y+h, c.Height); py++ {
		for px := max(x, 0); px < min(x+w, c.Width); px++ {
			c.Blend(px, py, v, alpha)
		}
	}
}

// Disc lays a filled circle with a soft edge over the picture.
func (c *Canvas) Disc(cx, cy, radius float64, v Color, alpha float32) {
	for y := int(cy - radius - 1); y <= int(cy+radius+1); y++ {
		for x := int(cx - radius - 1); x <= int(cx+radius+1); x++ {
			d := math.Hypot(float64(x)+0.5-cx, float64(y)+0.5-cy)
			c.Blend(x, y, v, alpha*clamp(float32(radius-d)+0.5))
		}
	}
}

// Ring lays a circle line of the given thickness over the picture.
func (c *Canvas) Ring(cx, cy, radius, thickness float64, v Color, alpha float32) {
	reach := radius + thickness
	for y := int(cy - reach - 1); y <= int(cy+reach+1); y++ {
		for x := int(cx - reach - 1); x <= int(cx+reach+1); x++ {
			d := math.Abs(math.Hypot(float64(x)+0.5-cx, float64(y)+0.5-cy) - radius)
			c.Blend(x, y, v, alpha*clamp(float32(thickness/2-d)+0.5))
		}
	}
}

// Line lays a straight line with round ends over the picture.
func (c *Canvas) Line(x0, y0, x1, y1, thickness float64, v Color, alpha float32) {
	reach := thickness/2 + 1
	for y := int(min(y0, y1) - reach); y <= int(max(y0, y1)+reach); y++ {
		for x := int(min(x0, x1) - reach); x <= int(max(x0, x1)+reach); x++ {
			d := toSegment(float64(x)+0.5, float64(y)+0.5, x0, y0, x1, y1)
			c.Blend(x, y, v, alpha*clamp(float32(thickness/2-d)+0.5))
		}
	}
}

// toSegment is the distance of a point from a line between two others.
func toSegment(x, y, x0, y0, x1, y1 float64) float64 {
	dx, dy := x1-x0, y1-y0
	var t float64
	if length := dx*dx + dy*dy; length > 0 {
		t = min(max(((x-x0)*dx+(y-y0)*dy)/length, 0), 1)
	}
	return math.Hypot(x-x0-t*dx, y-y0-t*dy)
}

func clamp(v float32) float32 { return min(max(v, 0), 1) }

// smoothstep rises from 0 at a to 1 at b, flat at both ends.
func smoothstep(a, b, v float32) float32 {
	t := clamp((v - a) / (b - a))
	return t * t * (3 - 2*t)
}

// gradient is a colour that changes along a line through its stops.
type gradient []stop

type stop struct {
	at    float32 // ascending, 0..1
	color Color
}

func (g gradient) color(at float32) Color {
	for i := 1; i < len(g); i++ {
		if at <= g[i].at {
			return g[i-1].color.Mix(g[i].color, smoothstep(g[i-1].at, g[i].at, at))
		}
	}
	return g[len(g)-1].color
}

// Paste copies another picture's pixels so that its top left corner comes to
// x, y; what hangs over the edge is left out.
func (c *Canvas) Paste(from *Canvas, x, y int) {
	for py := range from.Height {
		if ty := y + py; ty >= 0 && ty < c.Height {
			first, last := max(-x, 0), min(from.Width, c.Width-x)
			if first < last {
				copy(c.Pix[3*(ty*c.Width+x+first):], from.Pix[3*(py*from.Width+first):3*(py*from.Width+last)])
			}
		}
	}
}
