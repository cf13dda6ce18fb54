package engine

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"cutroom/internal/film/media"
	"cutroom/internal/film/media/container"
)

const (
	// posterSide is the longer side of a poster, in pixels.
	posterSide    = 640
	posterTimeout = time.Minute
	// posterExact is the time up to which a poster shows exactly the chosen frame. Later it shows the key frame
	// before it, because decoding the frames in between can take longer than one percent of the render. Near the
	// start that key frame would be the film's first frame, which is often black.
	posterExact = 2 * time.Second
)

// Poster writes a JPEG of a frame near the end of the first third of a film that Render made.
func (e *Engine) Poster(ctx context.Context, film, jpeg string) error {
	movie, err := container.ReadMovie(film)
	if err != nil {
		return fmt.Errorf("poster: %w", err)
	}
	if _, err := e.cfg.Media.Encode(ctx, posterPass(film, jpeg, posterTime(movie.Video))); err != nil {
		return fmt.Errorf("poster: %w", noSpace(err))
	}
	if st, err := os.Stat(jpeg); err != nil || st.Size() == 0 {
		return fmt.Errorf("poster: no frame came out (%v)", err)
	}
	return nil
}

// posterTime returns the time of the poster's frame. A seek may land up to reorderDelay frames too late, still
// within the first third.
func posterTime(video container.Track) time.Duration {
	frame := (video.Samples+2)/3 - 1 - reorderDelay - 1
	if frame <= 0 {
		return 0
	}
	ticks := media.MulDiv(2*frame-1, video.Ticks, 2*video.Samples) // half a frame early, so that rounding cannot skip it
	return time.Duration(media.MulDiv(ticks, int64(time.Second), max(1, video.Timescale)))
}

// jpegColours are the scaler's options to convert limited-range BT.709, which films use, to full-range BT.601, which
// JPEG implies.
const jpegColours = "in_color_matrix=bt709:in_range=limited:out_color_matrix=bt601:out_range=full"

func posterPass(film, jpeg string, at time.Duration) media.Pass {
	args := []string{"-an", "-sn", "-dn"}
	if at > 0 {
		args = append(args, "-ss", decimal(at.Seconds()))
	}
	if at > posterExact {
		// Without copyts ffmpeg would drop the frames before the requested time.
		args = append(args, "-noaccurate_seek", "-copyts")
	}
	args = append(args, media.InputArgs(container.MP4, film)...)
	side := func(this, other string) string {
		return fmt.Sprintf("'if(gte(%s,%s),%d,max(1,round(%d*%s/%s)))'", this, other, posterSide, posterSide, this, other)
	}
	scale := "scale=w=" + side("iw", "ih") + ":h=" + side("ih", "iw") + ":" + jpegColours + ",format=yuvj420p"
	args = append(args, "-map", "0:v:0", "-frames:v", "1", "-vf", scale,
		"-c:v", "mjpeg", "-q:v", "4", "-bitexact", "-f", "mjpeg", "file:"+jpeg)
	return media.Pass{Name: "poster", Args: args, Dir: filepath.Dir(jpeg), Inputs: []string{film}, Timeout: posterTimeout}
}
