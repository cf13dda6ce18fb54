package engine

import (
	"fmt"
	"math"

	"cutroom/internal/film/media"
	"cutroom/internal/film/timeline"
)

// waypoint is a timeline.Move on the frames of a part.
type waypoint struct {
	frame       float64 // counted from the part's first frame; < 0 if the move lies before it
	scale, x, y float64
}

// waypoints returns the moves that the given frames of a segment depend on: those among the frames and their
// neighbours. Frames during which the window stands still have one waypoint, wherever they lie; frames that show the
// whole canvas have none.
func waypoints(moves []timeline.Move, c span, rate media.Rational) []waypoint {
	first, last := 0, len(moves)-1
	var all []waypoint
	for k, m := range moves {
		frame := math.Round((m.At.Seconds()*rate.Float()-float64(c.from))*1e6) / 1e6
		if frame <= 0 {
			first = k
		}
		if frame >= float64(c.to-c.from-1) {
			last = min(last, k)
		}
		all = append(all, waypoint{frame, m.Scale, m.X, m.Y})
	}
	all = all[first : last+1]
	still, whole := true, true
	for _, w := range all {
		w.frame = all[0].frame
		still = still && w == all[0]
		whole = whole && w.scale == 1
	}
	switch {
	case whole:
		return nil
	case still:
		all = all[:1]
		all[0].frame = 0
	}
	return all
}

// moving returns the filters that let the window of the waypoints fill the canvas. n numbers its labels.
//
// Filter perspective samples between pixels, to 1/256, and evaluates its corners for every frame. crop, zoompan and
// scale move by whole pixels, so a slow move would stutter. perspective maps chroma samples as if they lay at the top
// left of the pixels that share them, up to half a pixel times the scale away, so every plane is handled here as a
// picture of its own. Linear interpolation is soft between pixels, so luma would pulse as it moves; chroma has little
// detail to lose.
func (s *shot) moving(n int) string {
	var planes, windows, merged string
	for _, plane := range []string{"luma", "blue", "red"} {
		from, to, interpolation := label(plane, n), label(plane+"window", n), "linear"
		if plane == "luma" {
			interpolation = "cubic"
		}
		planes += fmt.Sprintf("[%s]", from)
		windows += fmt.Sprintf("[%s]%s[%s];", from, perspective(s.moves, interpolation), to)
		merged += fmt.Sprintf("[%s]", to)
	}
	return fmt.Sprintf("extractplanes=y+u+v%s;%s%smergeplanes=format=yuv420p:map0s=0:map1s=1:map2s=2", planes, windows, merged)
}

// perspective returns the filter that enlarges the window of the waypoints to the size of a plane. Its corners are in
// pixels whose centres are whole numbers, so the corners of the whole picture would be at -1/2 and size - 1/2.
func perspective(moves []waypoint, interpolation string) string {
	// log is the scale's logarithm, because the scale is interpolated geometrically. ld(0) is the window's share of the
	// picture.
	log := piecewise(moves, func(w waypoint) float64 { return math.Log(w.scale) })
	edges := func(size string, middle func(w waypoint) float64) (from, to string) {
		from = fmt.Sprintf("st(0,exp(-(%s)));%s*clip(%s-ld(0)/2,0,1-ld(0))+(ld(0)-1)/2", log, size, piecewise(moves, middle))
		return from, from + "+" + size + "*ld(0)"
	}
	left, right := edges("W", func(w waypoint) float64 { return w.x })
	top, bottom := edges("H", func(w waypoint) float64 { return w.y })
	eval := "frame"
	if len(moves) == 1 {
		eval = "init"
	}
	corners := fmt.Sprintf("x0='%s':y0='%s':x1='%s':y1='%s':", left, top, right, top) +
		fmt.Sprintf("x2='%s':y2='%s':x3='%s':y3='%s':", left, bottom, right, bottom)
	return "perspective=" + corners + "interpolation=" + interpolation + ":eval=" + eval
}

// piecewise returns an expression for a value that is linear between waypoints and constant outside them. ffmpeg counts
// frames in on, from 1.
func piecewise(moves []waypoint, value func(w waypoint) float64) string {
	last := len(moves) - 1
	expression := decimal(value(moves[last]))
	for k := last - 1; k >= 0; k-- {
		a, b := moves[k], moves[k+1]
		slope := (value(b) - value(a)) / (b.frame - a.frame)
		expression = fmt.Sprintf("if(lt(on,%s),%s+(%s)*(on-%s),%s)",
			decimal(b.frame+1), decimal(value(a)), decimal(slope), decimal(a.frame+1), expression)
	}
	if last > 0 && moves[0].frame > 0 {
		expression = fmt.Sprintf("if(lt(on,%s),%s,%s)", decimal(moves[0].frame+1), decimal(value(moves[0])), expression)
	}
	return expression
}

// adjusting returns the filter that corrects light and colours: a lookup table for each plane, because every result
// depends only on its own plane.
func (s *shot) adjusting() string {
	a := s.adjust
	gain := math.Exp2(a.Exposure)
	table := func(zero, factor, offset float64, highest int) string {
		return fmt.Sprintf("'clip(floor(%s*(val-%g)+%s),16,%d)'", decimal(factor), zero, decimal(zero+offset+0.5), highest)
	}
	colour := func(warmth float64) string {
		return table(128, gain*(1+a.Saturation), 224*(warmth*a.Warmth+0.04*a.Tint), 240)
	}
	return fmt.Sprintf("lutyuv=y=%s:u=%s:v=%s", table(16, gain*(1+a.Contrast), -219*a.Contrast/2, 235), colour(-0.06), colour(0.06))
}
