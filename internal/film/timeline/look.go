package timeline

import "time"

// Limits of the fields of a segment's look, part of the API's contract.
const (
	maxCrop  = 0.9 // cut off one side, or two opposite ones
	maxMoves = 16
	maxScale = 8.0
)

// Crop is how much of each side of a picture is cut off: shares of its width or height, 0..0.9. Two opposite sides lose
// at most 0.9 together.
type Crop struct {
	Left   float64 `json:"left,omitempty"`
	Top    float64 `json:"top,omitempty"`
	Right  float64 `json:"right,omitempty"`
	Bottom float64 `json:"bottom,omitempty"`
}

// Move is the window of the canvas that fills it at an instant of the segment. The window has 1/Scale of the canvas's
// size and its centre at X, Y, shares of the canvas's width and height; it moves inwards where it would leave the
// canvas. Between two moves Scale is interpolated geometrically, X and Y linearly; outside they are constant.
type Move struct {
	At    time.Duration `json:"atNs"`  // >= 0, strictly ascending; output time from the segment's start
	Scale float64       `json:"scale"` // 1..8
	X     float64       `json:"x"`     // 0..1
	Y     float64       `json:"y"`     // 0..1
}

// DefaultMove is what a move without fields means: the whole canvas.
var DefaultMove = Move{Scale: 1, X: 0.5, Y: 0.5}

// Adjust corrects a picture's light and colours. Every field is -1..1, and 0 changes nothing.
type Adjust struct {
	Exposure   float64 `json:"exposure,omitempty"`
	Contrast   float64 `json:"contrast,omitempty"`
	Saturation float64 `json:"saturation,omitempty"`
	Warmth     float64 `json:"warmth,omitempty"`
	Tint       float64 `json:"tint,omitempty"`
}
