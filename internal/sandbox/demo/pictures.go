package demo

import (
	"context"
	"fmt"
	"math"
	"slices"

	"cutroom/internal/sandbox/measure"
)

// pictures compares the frames of the fades and of the dissolve with those of the clips.
func (j *judge) pictures(ctx context.Context) error {
	if !j.ownMedia() || len(j.film.segments) < 2 {
		return nil // the user's clips may have any rate, and bright edges
	}
	if err := j.fades(ctx); err != nil {
		return err
	}
	return j.dissolved(ctx)
}

// thumbnails returns the brightness of frames frames, starting at first, averaged to columns by rows of an
// area.
func thumbnails(ctx context.Context, path, filter string, first, frames, columns, rows int) ([]byte, error) {
	pictures, err := measure.Pictures(ctx, path,
		fmt.Sprintf("%s,trim=start_frame=%d:end_frame=%d,scale=%d:%d:flags=area+accurate_rnd", filter, first, first+frames, columns, rows), "gray", columns*rows)
	if err == nil && len(pictures) != frames {
		err = fmt.Errorf("%s: %d frames of %d", path, len(pictures), frames)
	}
	return slices.Concat(pictures...), err
}

func (a area) crop() string { return fmt.Sprintf("crop=%d:%d:%d:%d", a.width, a.height, a.left, a.top) }

// source returns thumbnails of n frames of a segment's clip, on the film's frame rate: those that the film shows
// from its frame first on.
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

// fades measures both ends of the film: the first and the last frame are black, and the frames between them and
// the undimmed picture have the right share of it.
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
