package httpapi

import (
	"cutroom/internal/fault"
	"cutroom/internal/timeline"
)

type canvasWire struct {
	Aspect  *string  `json:"aspect"`
	MaxSide *integer `json:"maxSide"`
	Fit     *string  `json:"fit"`
}

type transitionWire struct {
	Type       *string  `json:"type"`
	DurationMs *integer `json:"durationMs"`
}

// canvas reads the canvas; nil is the first segment's picture.
func (w *canvasWire) canvas() *timeline.Canvas {
	if w == nil {
		return nil
	}
	c := &timeline.Canvas{
		Aspect: timeline.Aspect(or(w.Aspect, string(timeline.SourceAspect))),
		Fit:    timeline.Fit(or(w.Fit, string(timeline.Contain))),
	}
	if w.MaxSide != nil {
		side := int64(*w.MaxSide)
		c.MaxSide = &side
	}
	return c
}

// picture reads how the i-th segment joins the one before and fits the canvas.
func (w *segmentWire) picture(i int, s *timeline.Segment) error {
	if t := w.Transition; t != nil {
		if t.Type == nil {
			return fault.Invalidf("segments[%d].transition.type is required", i)
		}
		s.Transition = &timeline.Transition{Kind: timeline.TransitionKind(*t.Type), Duration: timeline.DefaultTransition}
		if t.DurationMs != nil {
			s.Transition.Duration = ms(*t.DurationMs)
		}
	}
	if w.Fit != nil {
		s.Fit = timeline.Fit(nonBlank(*w.Fit))
	}
	if w.FocusX != nil || w.FocusY != nil {
		s.Focus = &timeline.Focus{X: or(w.FocusX, 0.5), Y: or(w.FocusY, 0.5)}
	}
	return nil
}
