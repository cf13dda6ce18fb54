// The filters of fades and of overlaps (dissolve, wipe, slide, push), made from masks and moving pictures.

package engine

import (
	"fmt"
	"strings"

	"cutroom/internal/film/timeline"
)

// fade is a range of frames that fades to a colour or from it, at a join or at an end of the film. The colour's
// weights are multiples of 1/steps.
type fade struct {
	colour string // in ffmpeg's syntax
	// from is the frame at which the fade begins, counted in the film or in its part. In a part it is < 0 if the fade
	// begins in an earlier part.
	from   int64
	frames int64
	steps  int64 // frames + 1 at a join; frames at an end of the film, where one frame is the pure colour
	in     bool  // fade from the colour
}

// joinFades returns the fades at a segment's two ends.
func joinFades(s *placed) []fade {
	colours := map[timeline.TransitionKind]string{timeline.FadeBlack: "black", timeline.FadeWhite: "white"}
	in, out := s.join.FadeIn(), s.next.FadeOut()
	return []fade{
		{colour: colours[s.join.Kind], from: s.frame, frames: in, steps: in + 1, in: true},
		{colour: colours[s.next.Kind], from: s.frame + s.frames - out, frames: out, steps: out + 1},
	}
}

// within returns the fades that reach into the film's frames c, counted from the first of these.
func within(fades []fade, c span) []fade {
	var reaching []fade
	for _, f := range fades {
		if f.frames > 0 && f.from < c.to && f.from+f.frames > c.from {
			f.from -= c.from
			reaching = append(reaching, f)
		}
	}
	return reaching
}

// weight returns an expression for the colour's weight in the part's frame N.
func (f fade) weight() string {
	if f.in {
		return fmt.Sprintf("(%d-N)/%d", f.from+f.frames, f.steps)
	}
	return fmt.Sprintf("(N-(%d))/%d", f.from-1, f.steps)
}

// pure returns the part's frame that is the pure colour, or -1 if there is none.
func (f fade) pure() int64 {
	switch {
	case f.steps > f.frames:
		return -1
	case f.in:
		return f.from
	}
	return f.from + f.frames - 1
}

// graph brings the part's shots onto the canvas, joins them if there are two, and fades the result into [out]. keys are
// the file times from which the shots are decoded, see keyframes.
func (v *videoPart) graph(keys []float64) string {
	var graph []string
	for i, s := range v.shots {
		graph = append(graph, s.graph(i, keys[i], label("shot", i), label("film", i), label("log", i)))
	}
	from := "shot"
	if len(v.shots) > 1 {
		graph = append(graph, v.overlap()...)
		from = "joined"
	}
	for i, f := range v.fades {
		first, last := max(0, f.from), min(v.Frames, f.from+f.frames)-1
		colour, mask, out := label("colour", i), label("mask", i), label("faded", i)
		fill := ""
		if n := f.pure(); n >= 0 && n < v.Frames { // a mask cannot weigh more than 255 of 256
			fill = fmt.Sprintf(",drawbox=color=%s:thickness=fill:enable='eq(n,%d)'", f.colour, n)
		}
		weight := fmt.Sprintf("between(N,%d,%d)*%s", first, last, f.weight())
		graph = append(graph, v.flat(f.colour)+fmt.Sprintf("[%s]", colour), v.mask(16, 16, weight, mask),
			fmt.Sprintf("[%s][%s][%s]maskedmerge=enable='between(n,%d,%d)'%s[%s]", from, colour, mask, first, last, fill, out))
		from = out
	}
	last := len(graph) - 1
	graph[last] = strings.TrimSuffix(graph[last], "["+from+"]") + "[out]"
	return strings.Join(graph, ";")
}

// overlap lays the incoming [shot1] over the outgoing [shot] into [joined]. A mask says where the incoming picture
// shows, and some kinds move pictures:
//
//	kind        the incoming picture shows            moving pictures
//	dissolve    everywhere, with growing weight       none
//	wipe        beyond an edge                        none
//	slide       beyond an edge                        the incoming one
//	push        beyond an edge                        both, side by side, so that no mask is needed
//
// The edge moves through the canvas. It lies between even pixels, because chroma has half the resolution.
func (v *videoPart) overlap() []string {
	if v.join.Kind == timeline.Dissolve {
		return []string{
			v.mask(16, 16, fmt.Sprintf("(N+%d)/%d", v.joinFrom+1, v.join.Frames+1), "weights"),
			"[shot][shot1][weights]maskedmerge[joined]",
		}
	}
	w, h := v.canvas.Width, v.canvas.Height
	position, length, maskWidth, maskHeight, stack, window := "X/SW", w, w, 2, "hstack", "'%s':0"
	if v.join.Direction == timeline.Up || v.join.Direction == timeline.Down {
		position, length, maskWidth, maskHeight, stack, window = "Y/SH", h, 2, h, "vstack", "0:'%s'"
	}
	// revealed is how many columns or rows show the incoming picture in the given frame.
	revealed := func(frame string) string {
		return fmt.Sprintf("2*floor(%d*(%s+%d)/%d+0.5)", length, frame, v.joinFrom+1, 2*(v.join.Frames+1))
	}
	shows, begin, first, second := fmt.Sprintf("gte(%s,%d-%s)", position, length, revealed("N")), revealed("n"), "shot", "shot1"
	if v.join.Direction == timeline.Right || v.join.Direction == timeline.Down {
		shows, begin = fmt.Sprintf("lt(%s,%s)", position, revealed("N")), fmt.Sprintf("%d-%s", length, revealed("n"))
		first, second = second, first
	}
	// moving lays two pictures side by side and shows them through a moving window of the canvas's size.
	moving := func(first, second, out string) string {
		return fmt.Sprintf("[%s][%s]%s,crop=%d:%d:%s[%s]", first, second, stack, w, h, fmt.Sprintf(window, begin), out)
	}
	var graph []string
	incoming := "shot1"
	switch v.join.Kind {
	case timeline.Push:
		return []string{moving(first, second, "joined")}
	case timeline.Slide: // next to a copy of itself, which the mask hides
		graph = append(graph, "[shot1]split[copy][copy1]", moving("copy", "copy1", "incoming"))
		incoming = "incoming"
	}
	return append(graph, v.mask(maskWidth, maskHeight, shows, "edge"), fmt.Sprintf("[shot][%s][edge]maskedmerge[joined]", incoming))
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

// mask generates pictures with the weight of maskedmerge's second input, in 256ths. Expressions are expensive per
// pixel, so it computes width x height pixels and scales them up. Its colour tags are those of the shots, see
// shot.tags.
func (v *videoPart) mask(width, height int, weight, out string) string {
	return weightMask(v.canvas, v.Frames, width, height, weight, out)
}

// weightMask is the mask of a number of frames of a canvas.
func weightMask(canvas Canvas, frames int64, width, height int, weight, out string) string {
	value := fmt.Sprintf("'min(255,round(256*%s))'", weight)
	return fmt.Sprintf("color=black:size=%dx%d:rate=%s,format=yuv420p,trim=end_frame=%d,"+
		"geq=lum=%s:cb=%s:cr=%s,%s,scale=%d:%d:flags=neighbor[%s]",
		width, height, canvas.Rate, frames, value, value, value, neutral, canvas.Width, canvas.Height, out)
}
