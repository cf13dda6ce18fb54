package engine

import (
	"fmt"
	"strings"

	"cutroom/internal/timeline"
)

// fade is a range of a part's frames that fades to a colour or from it.
type fade struct {
	colour string // in ffmpeg's syntax
	from   int64  // the part's frame at which the fade begins; < 0 if it begins in an earlier part
	frames int64
	in     bool // fade from the colour
}

// fadesOf returns the fades at a segment's two ends that reach into its frames c.
func fadesOf(s *placed, c span) []fade {
	var fades []fade
	add := func(kind timeline.TransitionKind, from, frames int64, in bool) {
		if from < c.to && from+frames > c.from && frames > 0 {
			colour := map[timeline.TransitionKind]string{timeline.FadeBlack: "black", timeline.FadeWhite: "white"}[kind]
			fades = append(fades, fade{colour, from - c.from, frames, in})
		}
	}
	add(s.join.Kind, 0, s.join.FadeIn(), true)
	out := s.next.FadeOut()
	add(s.next.Kind, s.frames-out, out, false)
	return fades
}

// weight returns an expression for the colour's weight in the part's frame N.
func (f fade) weight() string {
	if f.in {
		return fmt.Sprintf("(%d-N)/%d", f.from+f.frames, f.frames+1)
	}
	return fmt.Sprintf("(N-(%d))/%d", f.from-1, f.frames+1)
}

// graph brings the part's shots onto the canvas and joins them into [out].
func (v *videoPart) graph() string {
	var graph []string
	outs := make([]string, len(v.shots))
	for i, s := range v.shots {
		outs[i] = label("shot", i)
		if len(v.shots) == 1 && len(v.fades) == 0 {
			outs[i] = "out"
		}
		if v.draws == (ends{}) {
			graph = append(graph, s.graph(i, outs[i], label("film", i), label("log", i)))
		} else {
			graph = append(graph, s.graph(i, "drawn", label("film", i), label("log", i)), v.divide("drawn", outs[i]))
		}
	}
	if len(v.shots) == 2 {
		weight := fmt.Sprintf("(N+1)/%d", v.Frames+1)
		return strings.Join(append(graph, v.mask(weight, "mask"), "[shot][shot1][mask]maskedmerge[out]"), ";")
	}
	from := outs[0]
	for i, f := range v.fades {
		first, last := max(0, f.from), min(v.Frames, f.from+f.frames)-1
		colour, mask, out := label("colour", i), label("mask", i), label("faded", i)
		if i == len(v.fades)-1 {
			out = "out"
		}
		weight := fmt.Sprintf("between(N,%d,%d)*%s", first, last, f.weight())
		graph = append(graph, v.flat(f.colour)+fmt.Sprintf("[%s]", colour), v.mask(weight, mask),
			fmt.Sprintf("[%s][%s][%s]maskedmerge=enable='between(n,%d,%d)'[%s]", from, colour, mask, first, last, out))
		from = out
	}
	return strings.Join(graph, ";")
}

// label numbers a label. The first has no number, because it is the only one in most graphs.
func label(name string, n int) string {
	if n == 0 {
		return name
	}
	return fmt.Sprint(name, n)
}

// flat generates one colour with the part's length and rate.
func (v *videoPart) flat(colour string) string {
	return fmt.Sprintf("color=%s:size=%dx%d:rate=%s,format=yuv420p,%s,trim=end_frame=%d",
		colour, v.canvas.Width, v.canvas.Height, v.canvas.Rate, neutral, v.Frames)
}

// mask generates pictures with the weight of maskedmerge's second input, in 256ths. Expressions are expensive
// per pixel, so mask computes a few pixels and scales them up. Its colour tags are those of the shots, because
// ffmpeg 7 and later convert pictures with other tags, or none.
func (v *videoPart) mask(weight, out string) string {
	value := fmt.Sprintf("'round(256*%s)'", weight)
	return fmt.Sprintf("color=black:size=16x16:rate=%s,format=yuv420p,trim=end_frame=%d,geq=lum=%s:cb=%s:cr=%s,%s,scale=%d:%d:flags=neighbor[%s]",
		v.canvas.Rate, v.Frames, value, value, value, neutral, v.canvas.Width, v.canvas.Height, out)
}
