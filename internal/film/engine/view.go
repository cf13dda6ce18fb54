package engine

import (
	"math"

	"cutroom/internal/base/fault"
	"cutroom/internal/film/media"
	"cutroom/internal/film/timeline"
)

// view is the part of a source's picture that a segment shows, and its orientation. Both together with the framing are
// one map from the canvas to the coded picture, so a picture is resampled once.
type view struct {
	orientation   media.Orientation // turns the coded picture into the one that is shown
	window        window            // the part that is shown, in coded pixels; its corner is even
	width, height float64           // of the part as displayed
	cropped       bool
}

// newView returns the view of a segment. For the zero segment, it is the whole picture as displayed.
func newView(v *videoInfo, s timeline.Segment) view {
	whole := view{orientation: v.Orientation.Then(int(s.Rotate), s.Mirror), window: window{w: v.Width, h: v.Height},
		width: float64(v.DisplayWidth), height: float64(v.DisplayHeight)}
	if s.Rotate%180 != 0 {
		whole.width, whole.height = whole.height, whole.width
	}
	if s.Crop == (timeline.Crop{}) {
		return whole
	}
	return whole.crop(s.Crop)
}

// crop returns what c leaves of v, the view of a whole picture.
func (v view) crop(c timeline.Crop) view {
	// Decimal shares have no exact binary form, so round their errors away.
	left := func(length, before, after float64) float64 { return math.Round(length*(1-before-after)*1e6) / 1e6 }
	side := func(length int, a, b float64) (from, size int) {
		from = min(nearestEven(min(a, b)*float64(length)), (length-1)&^1)
		to := min(nearestEven(max(a, b)*float64(length)), length)
		if max(a, b) == 1 {
			to = length
		}
		return from, max(to-from, min(2, length-from))
	}
	x0, y0 := coded(v.orientation, c.Left, c.Top)
	x1, y1 := coded(v.orientation, 1-c.Right, 1-c.Bottom)
	cropped := view{orientation: v.orientation, cropped: true,
		width: left(v.width, c.Left, c.Right), height: left(v.height, c.Top, c.Bottom)}
	cropped.window.x, cropped.window.w = side(v.window.w, x0, x1)
	cropped.window.y, cropped.window.h = side(v.window.h, y0, y1)
	return cropped
}

// setViews sets the views of all segments. The error names the segment if its crop leaves too little.
func (l *layout) setViews() error {
	for k := range l.segments {
		p := &l.segments[k]
		p.view = newView(p.source.info.Video, p.segment)
		if v := p.view; v.cropped && min(v.width, v.height) < smallestSide {
			return fault.Failedf(fault.NoMedia, "%s.crop: it leaves %gx%g pixels of the picture, at least %d are needed either way",
				p.name(), v.width, v.height, smallestSide)
		}
	}
	return nil
}

// coded converts a point of the picture as shown to one of the coded picture, both in shares from left to right and
// from top to bottom.
func coded(o media.Orientation, x, y float64) (float64, float64) {
	switch o.Degrees {
	case 90:
		x, y = y, 1-x
	case 180:
		x, y = 1-x, 1-y
	case 270:
		x, y = 1-y, x
	}
	if o.Mirrored {
		x = 1 - x
	}
	return x, y
}
