package meter

import (
	"context"
	"fmt"
	"strings"
	"time"

	"cutroom/internal/sandbox/demo/picture"
)

// Frames decodes the pictures shown at the given ascending times, scaled to a
// size.
func Frames(ctx context.Context, path string, times []time.Duration, width, height int) ([]*picture.Canvas, error) {
	m, err := Probe(ctx, path)
	if err != nil {
		return nil, err
	}
	if m.Video == nil {
		return nil, fmt.Errorf("take frames of %s: no video", path)
	}
	rate, _ := m.Video.Rate.Float64()
	var chosen []string
	for _, t := range times {
		chosen = append(chosen, fmt.Sprintf(`eq(n\,%d)`, min(int(t.Seconds()*rate), max(m.Video.Frames-1, 0))))
	}
	raw, err := run(ctx, nil, "ffmpeg", "-nostdin", "-hide_banner", "-loglevel", "error", "-i", "file:"+path, "-map", "0:v:0",
		"-vf", fmt.Sprintf("select=%s,scale=%d:%d:flags=area:in_color_matrix=bt709", strings.Join(chosen, "+"), width, height),
		"-fps_mode", "passthrough", "-pix_fmt", "rgb24", "-f", "rawvideo", "pipe:1")
	if err != nil {
		return nil, fmt.Errorf("take frames of %s: %w", path, err)
	}
	size := 3 * width * height
	var frames []*picture.Canvas
	for at := 0; at+size <= len(raw); at += size {
		frames = append(frames, &picture.Canvas{Width: width, Height: height, Pix: raw[at : at+size]})
	}
	if len(frames) != len(times) {
		return nil, fmt.Errorf("take frames of %s: %d of %d were decoded", path, len(frames), len(times))
	}
	return frames, nil
}
