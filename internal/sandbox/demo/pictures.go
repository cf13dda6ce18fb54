// Measures the demonstration's pictures: fades, dissolve, push and blurred bars, frame by frame.

package demo

import (
	"context"
	"fmt"
	"math"
	"slices"

	"cutroom/internal/sandbox/measure"
)

// pictures compares the frames of the fades, the dissolve and the push with those of the clips, and the bars beside the
// second clip with the blurred picture.
func (j *judge) pictures(ctx context.Context) error {
	if !j.ownMedia() || len(j.film.segments) < 2 {
		return nil // the user's clips may have any rate, and bright edges
	}
	for _, measure := range []func(context.Context) error{j.fades, j.dissolved, j.pushed, j.bars} {
		if err := measure(ctx); err != nil {
			return err
		}
	}
	return nil
}

// thumbnails returns the brightness of frames frames, starting at first, averaged to columns by rows of an area.
func thumbnails(ctx context.Context, path, filter string, first, frames, columns, rows int) ([]byte, error) {
	pictures, err := measure.Pictures(ctx, path,
		fmt.Sprintf("%s,trim=start_frame=%d:end_frame=%d,scale=%d:%d:flags=area+accurate_rnd",
			filter, first, first+frames, columns, rows), "gray", columns*rows)
	if err == nil && len(pictures) != frames {
		err = fmt.Errorf("%s: %d frames of %d", path, len(pictures), frames)
	}
	return slices.Concat(pictures...), err
}

func (a area) crop() string { return fmt.Sprintf("crop=%d:%d:%d:%d", a.width, a.height, a.left, a.top) }

// source returns thumbnails of n frames of a segment's clip at the film's frame rate: those that the film shows from
// its frame first on.
func (j *judge) source(ctx context.Context, s segment, filter string, first, n, columns, rows int) ([]byte, error) {
	_, _, rate := j.film.canvas()
	return thumbnails(ctx, j.film.clips[s.clip].path, fmt.Sprintf("fps=%s:start_time=0,%s", rate.RatString(), filter),
		first-j.film.frameAt(s.start)+j.film.frameAt(s.from), n, columns, rows)
}

// dissolved measures the dissolve inside the second clip's picture. The first clip fills the canvas.
func (j *judge) dissolved(ctx context.Context) error {
	const columns, rows, within = 8, 14, 6.0
	before, s := j.film.segments[0], j.film.segments[1]
	first, n := j.film.frameAt(s.start), j.film.frameAt(s.overlap)
	shown := j.film.inside(s.clip).crop()
	film, err := thumbnails(ctx, j.video, shown, first, n, columns, rows)
	if err != nil {
		return err
	}
	out, err := j.source(ctx, before, shown, first, n, columns, rows)
	if err != nil {
		return err
	}
	in, err := j.source(ctx, s, "null", first, n, columns, rows)
	if err != nil {
		return err
	}
	worst := 0.0
	for i := range film {
		weight := float64(i/(columns*rows)+1) / float64(n+1)
		worst = max(worst, math.Abs(float64(film[i])-(1-weight)*float64(out[i])-weight*float64(in[i])))
	}
	j.add("dissolve", fmt.Sprintf("%d frames, each the right blend within %.0f of 255 levels", n, within),
		fmt.Sprintf("%d frames, worst %.1f levels", n, worst), worst <= within)
	return nil
}

// fades measures both ends of the film: the first and the last frame are black, and the frames between them and the
// undimmed picture have the right share of it.
func (j *judge) fades(ctx context.Context) error {
	const columns, rows, within, black = 16, 9, 3.0, 1 // levels of 255
	n, last := j.film.frameAt(ends), len(j.film.segments)-1
	width, height, _ := j.film.canvas()
	for _, end := range []struct {
		name, moves string
		s           segment
		first       int               // frame of the film
		share       func(int) float64 // of the picture, in frame i
	}{
		{"opens from black", "rising", j.film.segments[0], 0, func(i int) float64 { return float64(i) / float64(n) }},
		{"ends in black", "falling", j.film.segments[last], j.film.frames() - n, func(i int) float64 { return float64(n-1-i) / float64(n) }},
	} {
		film, err := thumbnails(ctx, j.video, "null", end.first, n, columns, rows)
		if err != nil {
			return err
		}
		// The clip fills the canvas.
		clip, err := j.source(ctx, end.s, "null", end.first, n, columns, rows)
		if err != nil {
			return err
		}
		worst, means := 0.0, make([]float64, n)
		for i, level := range film {
			frame := i / (columns * rows)
			worst = max(worst, math.Abs(float64(level)-end.share(frame)*float64(clip[i])))
			means[frame] += float64(level) / (columns * rows)
		}
		dark := end.first
		if end.first > 0 {
			dark += n - 1
			slices.Reverse(means)
		}
		levels, err := measure.Pictures(ctx, j.video, fmt.Sprintf("trim=start_frame=%d:end_frame=%d", dark, dark+1), "rgb24", 3*width*height)
		if err != nil {
			return err
		}
		if len(levels) == 0 {
			return fmt.Errorf("%s: no frame %d", j.video, dark)
		}
		brightest, moves := slices.Max(levels[0]), "not "+end.moves
		if slices.IsSorted(means) && means[0] < means[n-1] {
			moves = end.moves
		}
		j.add(end.name, fmt.Sprintf("frame %d black, %d frames %s, each the right share within %.0f of 255 levels", dark, n, end.moves, within),
			fmt.Sprintf("brightest %d of 255, %d frames %s, worst %.1f levels", brightest, n, moves, worst),
			brightest <= black && moves == end.moves && worst <= within)
	}
	return nil
}

// pushed measures the push to the left: in each frame the incoming picture must have its left edge, and the
// outgoing one its own, where the frame's number puts them.
func (j *judge) pushed(ctx context.Context) error {
	const rows, reach, within, enough = 90, 24, 3.0, 80 // reach and enough in pixels
	before, s := j.film.segments[1], j.film.segments[2]
	width, _, _ := j.film.canvas()
	first, n := j.film.frameAt(s.start), j.film.frameAt(s.overlap)
	film, err := thumbnails(ctx, j.video, "null", first, n, width, rows)
	if err != nil {
		return err
	}
	// The incoming clip fills the canvas.
	in, err := j.source(ctx, s, "null", first, n, width, rows)
	if err != nil {
		return err
	}
	// The outgoing one is upright and as high as the canvas.
	inside := j.film.inside(before.clip)
	out, err := j.source(ctx, before, "null", first, n, inside.width, rows)
	if err != nil {
		return err
	}
	// apart returns the mean difference between the columns from left to right of frame i and a clip's picture with
	// its left edge at edge.
	apart := func(i int, clip []byte, columns, edge, left, right int) float64 {
		left, right = max(left, edge), min(right, edge+columns)
		sum := 0.0
		for y := range rows {
			for x := left; x < right; x++ {
				sum += math.Abs(float64(film[(i*rows+y)*width+x]) - float64(clip[(i*rows+y)*columns+x-edge]))
			}
		}
		return sum / float64(max(right-left, 1)*rows)
	}
	off, worst, compared := 0, 0.0, 0
	for i := range n {
		d := 2 * int(math.Round(float64((i+1)*width)/float64(n+1)/2))
		for _, p := range []struct {
			clip                       []byte
			columns, edge, left, right int // the picture's, and the part of the canvas where it may be seen
		}{{in, width, width - d, width - d, width}, {out, inside.width, inside.left - d, 0, width - d}} {
			if min(p.right, p.edge+p.columns)-max(p.left, p.edge) < enough {
				continue // outside the canvas
			}
			compared++
			worst = max(worst, apart(i, p.clip, p.columns, p.edge, p.left, p.right))
			best, least := 0, math.Inf(1)
			for shift := -reach; shift <= reach; shift++ {
				// Compare away from the picture's edges, so that it covers the same columns at every shift.
				if a := apart(i, p.clip, p.columns, p.edge+shift, max(p.left, p.edge+reach), min(p.right, p.edge+p.columns-reach)); a < least {
					best, least = shift, a
				}
			}
			off = max(off, best, -best)
		}
	}
	j.add("push", fmt.Sprintf("%d frames, both pictures within 1 pixel of their place and %.0f of 255 levels", n, within),
		fmt.Sprintf("%d frames, %d pictures, worst %d pixels, %.1f levels", n, compared, off, worst), off <= 1 && worst <= within)
	return nil
}

// bars measures one frame in the middle of the second clip: beside the picture, the canvas must show what a
// covering picture would show there, without its detail.
func (j *judge) bars(ctx context.Context) error {
	const columns, rows, within, most = 216, 360, 12.0, 0.75
	s := j.film.segments[1]
	width, height, _ := j.film.canvas()
	left := area{width: j.film.inside(s.clip).left &^ 1, height: height}
	from, to := j.film.alone(1)
	middle := j.film.frameAt((from + to) / 2)
	film, err := thumbnails(ctx, j.video, left.crop(), middle, 1, columns, rows)
	if err != nil {
		return err
	}
	covering := fmt.Sprintf("scale=%d:%d:force_original_aspect_ratio=increase,crop=%[1]d:%[2]d,%[3]s", width, height, left.crop())
	sharp, err := j.source(ctx, s, covering, middle, 1, columns, rows)
	if err != nil {
		return err
	}
	apart, blurred, detail := 0.0, 0.0, 0.0
	for i := range film {
		apart += math.Abs(float64(film[i])-float64(sharp[i])) / float64(len(film))
		if i%columns > 0 {
			blurred += math.Abs(float64(film[i]) - float64(film[i-1]))
			detail += math.Abs(float64(sharp[i]) - float64(sharp[i-1]))
		}
	}
	share := blurred / max(detail, 1)
	j.add("blurred bars", fmt.Sprintf("the picture within %.0f levels, at most ×%.2f of its detail", within, most),
		fmt.Sprintf("%.1f levels, detail ×%.2f", apart, share), apart <= within && share <= most)
	return nil
}
