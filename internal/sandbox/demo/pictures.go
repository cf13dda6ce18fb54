package demo

import (
	"context"
	"fmt"
	"math"

	"cutroom/internal/sandbox/process"
)

// pictures compares the frames of the dissolve with those of the clips, and the bars
// beside the second clip with the blurred picture.
func (j *judge) pictures(ctx context.Context) error {
	if !j.ownMedia() || len(j.film.segments) < 2 {
		return nil // the user's clips may have any rate, and bright edges
	}
	if err := j.dissolved(ctx); err != nil {
		return err
	}
	return j.bars(ctx)
}

// thumbnails returns the brightness of frames frames, starting at first, averaged to columns by rows of an
// area.
func thumbnails(ctx context.Context, path, filter string, first, frames, columns, rows int) ([]byte, error) {
	raw, err := process.Output(ctx, "ffmpeg", "-nostdin", "-loglevel", "error", "-i", "file:"+path, "-map", "0:v:0", "-vf",
		fmt.Sprintf("%s,trim=start_frame=%d:end_frame=%d,scale=%d:%d:flags=area,format=gray", filter, first, first+frames, columns, rows),
		"-fps_mode", "passthrough", "-f", "rawvideo", "pipe:1")
	if err == nil && len(raw) != frames*columns*rows {
		err = fmt.Errorf("%s: %d bytes of %d frames", path, len(raw), frames)
	}
	return raw, err
}

func (a area) crop() string { return fmt.Sprintf("crop=%d:%d:%d:%d", a.width, a.height, a.left, a.top) }

// dissolved measures the dissolve inside the second clip's picture.
func (j *judge) dissolved(ctx context.Context) error {
	const columns, rows, within = 8, 14, 6.0
	before, s := j.film.segments[0], j.film.segments[1]
	_, _, rate := j.film.canvas()
	first, n := j.film.frameAt(s.start), j.film.frameAt(s.dissolve)
	shown := j.film.inside(s.clip).crop()
	film, err := thumbnails(ctx, j.video, shown, first, n, columns, rows)
	if err != nil {
		return err
	}
	// The first clip fills the canvas and has the canvas's rate.
	out, err := thumbnails(ctx, j.film.clips[before.clip].path, shown, j.film.frameAt(before.from+s.start-before.start), n, columns, rows)
	if err != nil {
		return err
	}
	onGrid := fmt.Sprintf("fps=%s:start_time=0", rate.RatString())
	in, err := thumbnails(ctx, j.film.clips[s.clip].path, onGrid, j.film.frameAt(s.from), n, columns, rows)
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

// bars measures one frame in the middle of the second clip: beside the picture, the canvas must show what a
// covering picture would show there, without its detail.
func (j *judge) bars(ctx context.Context) error {
	const columns, rows, within, most = 216, 360, 12.0, 0.75
	s := j.film.segments[1]
	width, height, rate := j.film.canvas()
	left := area{width: j.film.inside(s.clip).left &^ 1, height: height}
	from, to := j.film.alone(1)
	middle := (from + to) / 2
	film, err := thumbnails(ctx, j.video, left.crop(), j.film.frameAt(middle), 1, columns, rows)
	if err != nil {
		return err
	}
	covering := fmt.Sprintf("fps=%s:start_time=0,scale=%d:%d:force_original_aspect_ratio=increase,crop=%[2]d:%[3]d,%[4]s",
		rate.RatString(), width, height, left.crop())
	sharp, err := thumbnails(ctx, j.film.clips[s.clip].path, covering, j.film.frameAt(s.from+middle-s.start), 1, columns, rows)
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
