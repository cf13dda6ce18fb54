package httpapi

import (
	"fmt"

	"cutroom/internal/timeline"
)

// The wire form of what shapes the sound of a render.
type pointWire struct {
	AtMs   *integer `json:"atMs"`
	Volume *float64 `json:"volume"`
}

type duckingWire struct {
	AmountDb  *float64 `json:"amountDb"`
	AttackMs  *integer `json:"attackMs"`
	ReleaseMs *integer `json:"releaseMs"`
}

type loudnessWire struct {
	TargetLufs    *float64 `json:"targetLufs"`
	MaxTruePeakDb *float64 `json:"maxTruePeakDb"`
}

// pointsOf reads the volumePoints of an object, whose path is given as a format.
func pointsOf(wire []pointWire, object string, indexes ...any) ([]timeline.Point, error) {
	var points []timeline.Point
	for i, w := range wire {
		list := fmt.Sprintf(object, indexes...) + ".volumePoints"
		if err := required(list, i, field{"atMs", w.AtMs != nil}, field{"volume", w.Volume != nil}); err != nil {
			return nil, err
		}
		points = append(points, timeline.Point{At: ms(*w.AtMs), Volume: *w.Volume})
	}
	return points, nil
}

// ducking is nil where the field is absent.
func (w *duckingWire) ducking() *timeline.Ducking {
	if w == nil {
		return nil
	}
	d := timeline.DefaultDucking
	d.AmountDB = or(w.AmountDb, d.AmountDB)
	if w.AttackMs != nil {
		d.Attack = ms(*w.AttackMs)
	}
	if w.ReleaseMs != nil {
		d.Release = ms(*w.ReleaseMs)
	}
	return &d
}

// loudness is nil where the field is absent.
func (w *loudnessWire) loudness() *timeline.Loudness {
	if w == nil {
		return nil
	}
	l := timeline.DefaultLoudness
	l.TargetLUFS, l.MaxTruePeakDB = or(w.TargetLufs, l.TargetLUFS), or(w.MaxTruePeakDb, l.MaxTruePeakDB)
	return &l
}
