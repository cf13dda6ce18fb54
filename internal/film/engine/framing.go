package engine

import (
	"fmt"
	"math"

	"cutroom/internal/film/timeline"
)

// smallestSide is the shortest side that an output may have.
const smallestSide = 16

// canvasSize returns the output's size for a first segment with that view: its size, or the aspect and size that the
// canvas requests.
func canvasSize(v view, c *timeline.Canvas) (width, height int) {
	w, h := v.width, v.height
	if !v.cropped { // then both are whole numbers
		w, h = float64(int(w)&^1), float64(int(h)&^1)
	}
	if c == nil {
		c = &timeline.Canvas{}
	}
	a, b := c.Aspect.Ratio()
	if a > 0 {
		short := min(v.width, v.height) / float64(min(a, b))
		w, h = short*float64(a), short*float64(b)
	}
	if c.ShortSide != nil {
		// Use the exact aspect ratio: a first segment with an odd side gets a slightly different one on its even
		// canvas.
		if a > 0 {
			w, h = float64(a), float64(b)
		} else {
			w, h = v.width, v.height
		}
		scale := float64(*c.ShortSide) / min(w, h)
		w, h = w*scale, h*scale
	}
	if c.MaxSide != nil && max(w, h) > float64(*c.MaxSide) {
		scale := float64(*c.MaxSide&^1) / max(w, h)
		w, h = w*scale, h*scale
	}
	return max(smallestSide, nearestEven(w)), max(smallestSide, nearestEven(h))
}

// nearestEven rounds to the nearest even number; odd numbers go up.
func nearestEven(f float64) int { return 2 * int(math.Floor(f/2+0.5)) }

// contain scales w x h into the canvas and keeps its aspect. A side up to half a percent short of the canvas is
// stretched to fill it, because a black hairline looks worse.
func contain(w, h float64, canvas Canvas) (int, int) {
	ratio := min(float64(canvas.Width)/w, float64(canvas.Height)/h)
	side := func(n float64, limit int) int {
		s := int(math.Round(n*ratio/2)) * 2
		if limit-s <= max(2, limit/200) {
			return limit
		}
		return max(2, s)
	}
	return side(w, canvas.Width), side(h, canvas.Height)
}

// framing defines how a picture with another aspect fills the canvas. The zero value pads. Pictures with the
// canvas's aspect always have the zero value.
type framing struct {
	window window // the crop that covers the canvas, in coded pixels; zero = the whole picture
	blur   bool   // the window applies only to the background; the picture itself is placed by contain
}

type window struct{ w, h, x, y int }

// newFraming returns the framing of a view on a canvas.
func newFraming(v view, canvas Canvas, fit timeline.Fit, focus timeline.Focus) framing {
	w, h := contain(v.width, v.height, canvas)
	if fit == timeline.Contain || w == canvas.Width && h == canvas.Height {
		return framing{}
	}
	if fit == timeline.Blur {
		fitted := view{window: window{w: w, h: h}, width: float64(w), height: float64(h)}
		return framing{window: cover(fitted, canvas, focus), blur: true}
	}
	return framing{window: cover(v, canvas, focus)}
}

// cover returns the largest window of the view that has the canvas's aspect. Its centre is as near to the focus as the
// edges allow.
func cover(v view, canvas Canvas, focus timeline.Focus) window {
	shape := float64(canvas.Width) / float64(canvas.Height) * v.height / v.width
	wide, high := min(1, shape), min(1, 1/shape) // fractions of the view
	x, y := coded(v.orientation, focus.X, focus.Y)
	if v.orientation.SwapsSides() {
		wide, high = high, wide
	}
	side := func(length int, share, focus float64) (size, from int) {
		if share == 1 {
			return length, 0
		}
		size = min(length, max(2, nearestEven(float64(length)*share)))
		middle := focus*float64(length) - float64(size)/2
		return size, min((length-size)&^1, max(0, nearestEven(middle)))
	}
	c := v.window
	var left, top int
	c.w, left = side(v.window.w, wide, x)
	c.h, top = side(v.window.h, high, y)
	c.x, c.y = c.x+left, c.y+top
	return c
}

// The background is blurred at a size whose shorter side is backdropSide, with sigma backdropBlur. That removes all
// detail finer than a twentieth of the canvas.
const (
	backdropSide = 64
	backdropBlur = 4
)

// backdrop returns the size at which the canvas's background is blurred.
func backdrop(canvas Canvas) (width, height int) {
	scale := min(1, backdropSide/float64(min(canvas.Width, canvas.Height)))
	return max(2, nearestEven(float64(canvas.Width)*scale)), max(2, nearestEven(float64(canvas.Height)*scale))
}

// crop returns the filter that cuts out the window.
func (c window) crop() string { return fmt.Sprintf("crop=%d:%d:%d:%d", c.w, c.h, c.x, c.y) }
