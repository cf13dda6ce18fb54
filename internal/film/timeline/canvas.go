package timeline

// Fit is how a picture fills a canvas with another aspect ratio.
type Fit string

// The fits, spelled as on the wire.
const (
	Contain Fit = "contain" // whole, between black bars
	Cover   Fit = "cover"   // fills the canvas; the overhang is cut off
	Blur    Fit = "blur"    // whole, on a blurred cover of the same picture
)

// Aspect is the shape of a canvas, spelled as on the wire.
type Aspect string

// SourceAspect is the shape of the first segment's picture.
const SourceAspect Aspect = "source"

// aspects are the other shapes, width to height.
var aspects = map[Aspect][2]int{
	"16:9": {16, 9}, "9:16": {9, 16}, "1:1": {1, 1}, "4:5": {4, 5}, "4:3": {4, 3}, "3:4": {3, 4},
}

// Ratio returns the shape as width to height, or 0, 0 for SourceAspect.
func (a Aspect) Ratio() (width, height int) { return aspects[a][0], aspects[a][1] }

// Limits of a canvas's sides, in pixels.
const (
	minSide      = 240
	maxSide      = 3840
	maxShortSide = 2160
)

// frameRates are the rates that a canvas may request, in frames per second.
var frameRates = []int64{24, 25, 30, 50, 60}

// Canvas is the picture format of all segments.
type Canvas struct {
	Aspect    Aspect `json:"aspect"`
	MaxSide   *int64 `json:"maxSide,omitempty"`   // of the longer side; nil = as large as the first segment
	ShortSide *int64 `json:"shortSide,omitempty"` // of the shorter side; nil = that of the first segment
	FrameRate *int64 `json:"frameRate,omitempty"` // frames per second; nil = that of the first segment
	Fit       Fit    `json:"fit"`                 // for segments without their own
}

// Focus is the point of a displayed picture that a crop keeps as near to its middle as the edges allow: 0..1 from
// left to right and from top to bottom.
type Focus struct {
	X float64 `json:"x"`
	Y float64 `json:"y"`
}

// FitOf returns how the segment is fitted.
func (t Timeline) FitOf(s Segment) Fit {
	switch {
	case s.Fit != "":
		return s.Fit
	case t.Canvas != nil:
		return t.Canvas.Fit
	}
	return Contain
}

// FocusOf returns the segment's focus, by default the middle.
func (s Segment) FocusOf() Focus {
	if s.Focus == nil {
		return Focus{0.5, 0.5}
	}
	return *s.Focus
}
