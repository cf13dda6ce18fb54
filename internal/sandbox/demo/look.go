// The demonstration's second film, which crops, zooms, warms and ramps one clip, and the measurements of each.

package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"

	"cutroom/internal/sandbox/api"
	"cutroom/internal/sandbox/measure"
)

// The second film of the demonstration: four shots of its first clip, each with one part of a look. Times are in
// milliseconds. The clip has 30 frames a second, so each shot begins exactly on a frame.
const (
	lookRate   = 30
	shotFrames = 30   // of the first three shots
	zoomFrom   = 2000 // in the clip
	cropFrom   = 0
	warmFrom   = 4000
	rampFrom   = 5000
	croppedOff = 0.1 // of each side
	zoomedTo   = 1.5
	warmth     = 0.5
	rampLength = 2000
	fastest    = 2.0 // speed at the start of the ramp
	slowest    = 0.5 // and at its end
)

// timeCode is where the clip shows the number of each frame.
var timeCode = area{left: 40, top: 660, width: 200, height: 34}

// lookConfig returns the RenderConfig of the second film.
func lookConfig(source string, c clip) map[string]any {
	shot := func(order, from, to int, look map[string]any) map[string]any {
		look["sourceFileKey"], look["order"], look["durationMs"] = source, order, c.length.Milliseconds()
		look["trimStartMs"], look["trimEndMs"] = from, to
		return look
	}
	return map[string]any{"quality": "medium", "segments": []map[string]any{
		shot(1, cropFrom, cropFrom+1000, map[string]any{
			"crop": map[string]any{"left": croppedOff, "right": croppedOff, "top": croppedOff, "bottom": croppedOff}}),
		shot(0, zoomFrom, zoomFrom+1000, map[string]any{"moves": []map[string]any{{"atMs": 0}, {"atMs": 1000, "scale": zoomedTo}}}),
		shot(2, warmFrom, warmFrom+1000, map[string]any{"adjust": map[string]any{"warmth": warmth}}),
		shot(3, rampFrom, rampFrom+rampLength, map[string]any{"speedPoints": []map[string]any{
			{"atMs": 0, "speed": fastest}, {"atMs": rampLength, "speed": slowest}}}),
	}}
}

// frameIn returns the clip's frame at a time in milliseconds.
func frameIn(ms int) int { return ms * lookRate / 1000 }

// renderLook renders the second film from the demonstration's own first clip.
func (r *run) renderLook(ctx context.Context) error {
	c := r.clips[0]
	if c.lamp == nil {
		return nil // the user's films have no time code
	}
	r.result.look = r.path("film-look.mp4")
	return r.step("Render a look", func(on *step) (string, error) {
		config, err := json.Marshal(lookConfig("video_0", c))
		if err != nil {
			return "", err
		}
		id, err := r.client.submit(ctx, "/api/v2/render", on,
			api.Part{Name: "video_0", Path: c.path, Filename: "video_0" + filepath.Ext(c.path), Type: "video/mp4"},
			api.Part{Name: "config", Text: string(config)})
		if err != nil {
			return "", err
		}
		return r.finish(ctx, id, "film-look.mp4", on)
	})
}

// looks compares each shot of the second film with the frames of its clip.
func (j *judge) looks(ctx context.Context) error {
	if j.look == "" {
		return nil
	}
	for _, measure := range []func(context.Context) error{j.zoomed, j.cropped, j.warmed, j.ramped} {
		if err := measure(ctx); err != nil {
			return err
		}
	}
	return nil
}

// apart returns the mean difference of two pictures, in levels.
func apart(a, b []byte) float64 {
	sum := 0.0
	for i := range a {
		sum += math.Abs(float64(a[i]) - float64(b[i]))
	}
	return sum / float64(max(len(a), 1))
}

const (
	lookColumns, lookRows = 32, 18
	lookWithin            = 3.0 // of 255 levels
)

func (j *judge) cropped(ctx context.Context) error {
	c := j.film.clips[0]
	shown := area{left: int(croppedOff * float64(c.width)), top: int(croppedOff * float64(c.height)),
		width: int((1 - 2*croppedOff) * float64(c.width)), height: int((1 - 2*croppedOff) * float64(c.height))}
	film, err := thumbnails(ctx, j.look, "null", shotFrames, shotFrames, lookColumns, lookRows)
	if err != nil {
		return err
	}
	want, err := thumbnails(ctx, c.path, shown.crop(), frameIn(cropFrom), shotFrames, lookColumns, lookRows)
	if err != nil {
		return err
	}
	off := apart(film, want)
	j.add("crop", fmt.Sprintf("%d frames of the middle within %.0f of 255 levels", shotFrames, lookWithin),
		fmt.Sprintf("%d frames, %.1f levels", shotFrames, off), off <= lookWithin)
	return nil
}

// zoomed measures the first, the middle and the last frame of the zoom. Its scale grows by the same factor in each.
func (j *judge) zoomed(ctx context.Context) error {
	c, worst := j.film.clips[0], 0.0
	frames := []int{0, shotFrames / 2, shotFrames - 1}
	for _, i := range frames {
		scale := math.Pow(zoomedTo, float64(i)/shotFrames)
		window := area{width: int(math.Round(float64(c.width) / scale)), height: int(math.Round(float64(c.height) / scale))}
		window.left, window.top = (c.width-window.width)/2, (c.height-window.height)/2
		film, err := thumbnails(ctx, j.look, "null", i, 1, lookColumns, lookRows)
		if err != nil {
			return err
		}
		// Without subsampled colours a crop may begin at any pixel.
		want, err := thumbnails(ctx, c.path, "format=gray,"+window.crop(), frameIn(zoomFrom)+i, 1, lookColumns, lookRows)
		if err != nil {
			return err
		}
		worst = max(worst, apart(film, want))
	}
	j.add("slow zoom", fmt.Sprintf("%d frames where their numbers put them, within %.0f of 255 levels", len(frames), lookWithin),
		fmt.Sprintf("%d frames, worst %.1f levels", len(frames), worst), worst <= lookWithin)
	return nil
}

// warmed measures how far the colours moved, and that the light did not.
func (j *judge) warmed(ctx context.Context) error {
	const columns, rows, within = 32, 16, 1.5
	const light, colours = columns * rows, columns / 2 * rows / 2
	mean := func(path string, first int) (y, cb, cr float64, err error) {
		pictures, err := measure.Pictures(ctx, path, fmt.Sprintf("trim=start_frame=%d:end_frame=%d,scale=%d:%d:flags=area+accurate_rnd",
			first, first+shotFrames, columns, rows), "yuv420p", light+2*colours)
		if err != nil {
			return 0, 0, 0, err
		}
		for _, p := range pictures {
			for i, level := range p {
				switch {
				case i < light:
					y += float64(level)
				case i < light+colours:
					cb += float64(level)
				default:
					cr += float64(level)
				}
			}
		}
		n := float64(len(pictures))
		return y / n / light, cb / n / colours, cr / n / colours, nil
	}
	y0, cb0, cr0, err := mean(j.film.clips[0].path, frameIn(warmFrom))
	if err != nil {
		return err
	}
	y, cb, cr, err := mean(j.look, 2*shotFrames)
	if err != nil {
		return err
	}
	const moved = 0.06 * warmth * 224
	ok := math.Abs(y-y0) <= within && math.Abs(cb-cb0+moved) <= within && math.Abs(cr-cr0-moved) <= within
	j.add("warm look", fmt.Sprintf("Y +0.0, Cb %+.1f, Cr %+.1f levels, within %.1f", -moved, moved, within),
		fmt.Sprintf("Y %+.1f, Cb %+.1f, Cr %+.1f levels", y-y0, cb-cb0, cr-cr0), ok)
	return nil
}

// ramped finds which frame of the clip each frame of the speed curve shows, by its time code.
func (j *judge) ramped(ctx context.Context) error {
	made, err := probe(ctx, j.look)
	if err != nil {
		return err
	}
	// How long the ramp lasts in the film, and the frame of the clip that is due in a frame of the film:
	// docs/app/film.md.
	const slope = (slowest - fastest) / (rampLength / 1000.)
	lasts := math.Log(slowest/fastest) / slope
	due := func(i int) int {
		grown := math.Exp(slope * float64(i) / lookRate)
		speed, at := fastest*grown, fastest*(grown-1)/slope
		return int(at*lookRate + 0.4142*min(speed, 1))
	}

	frames := made.First("video").Packets - 3*shotFrames
	want := int(math.Round(lasts * lookRate))
	if frames < want-1 || frames > want+1 {
		j.add("speed curve", fmt.Sprintf("%d frames", want), fmt.Sprintf("%d frames", frames), false)
		return nil
	}
	film, err := thumbnails(ctx, j.look, timeCode.crop(), 3*shotFrames, frames, timeCode.width, timeCode.height)
	if err != nil {
		return err
	}
	inClip := frameIn(rampLength)
	clip, err := thumbnails(ctx, j.film.clips[0].path, timeCode.crop(), frameIn(rampFrom), inClip, timeCode.width, timeCode.height)
	if err != nil {
		return err
	}
	size, wrong := timeCode.width*timeCode.height, 0
	for i := range frames {
		best, least := 0, math.Inf(1)
		for n := range inClip {
			if d := apart(film[i*size:(i+1)*size], clip[n*size:(n+1)*size]); d < least {
				best, least = n, d
			}
		}
		if best != due(i) {
			wrong++
		}
	}
	j.add("speed curve", fmt.Sprintf("%d frames, each the one that is due", want),
		fmt.Sprintf("%d frames, %d wrong", frames, wrong), wrong == 0)
	return nil
}
