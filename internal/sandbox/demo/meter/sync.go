package meter

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"
)

// Area is a rectangle of a picture, in pixels.
type Area struct{ X, Y, Width, Height int }

// Brightness is the mean brightness (0..255) of each area in every frame of a
// film: Brightness(...)[area][frame].
func Brightness(ctx context.Context, path string, areas []Area) ([][]byte, error) {
	n := len(areas)
	var graph strings.Builder
	fmt.Fprintf(&graph, "[0:v:0]format=gray,split=%d", n)
	for i := range areas {
		fmt.Fprintf(&graph, "[i%d]", i)
	}
	for i, a := range areas {
		fmt.Fprintf(&graph, ";[i%d]crop=%d:%d:%d:%d,scale=1:1:flags=area[o%d]", i, a.Width, a.Height, a.X, a.Y, i)
	}
	graph.WriteString(";")
	for i := range areas {
		fmt.Fprintf(&graph, "[o%d]", i)
	}
	if n > 1 {
		fmt.Fprintf(&graph, "hstack=inputs=%d[out]", n)
	} else {
		graph.WriteString("null[out]")
	}
	raw, err := run(ctx, nil, "ffmpeg", "-nostdin", "-hide_banner", "-loglevel", "error", "-i", "file:"+path,
		"-filter_complex", graph.String(), "-map", "[out]", "-fps_mode", "passthrough", "-f", "rawvideo", "pipe:1")
	if err != nil {
		return nil, fmt.Errorf("measure brightness of %s: %w", path, err)
	}
	out := make([][]byte, n)
	for i, v := range raw {
		out[i%n] = append(out[i%n], v)
	}
	return out, nil
}

// Flashes are the first bright frames of every flash in a row of brightnesses.
func Flashes(brightness []byte) []int {
	var starts []int
	dark := true
	for i, v := range brightness {
		if v > 150 && dark {
			starts = append(starts, i)
		}
		// The way back is longer than the way in: a flash that flickers in the
		// encoder's hands counts once.
		if v > 150 {
			dark = false
		} else if v < 110 {
			dark = true
		}
	}
	return starts
}

// FindPulse finds a known short sound within reach of a time: where it begins,
// and how surely it is there (the best fit over the next best that is not a
// part of the same peak; more than 1.5 is sure).
func FindPulse(s Sound, pulse []float64, near, reach time.Duration) (at time.Duration, sure float64) {
	first := Sample(near - reach)
	lags := 2*Sample(reach) + 1
	heard := mono(s.Cut(near-reach, near+reach+time.Duration(float64(len(pulse)+1)/Rate*float64(time.Second))))
	scores := make([]float64, lags)
	best := 0
	for lag := range lags {
		if lag+len(pulse) > len(heard) {
			break
		}
		var cross float64
		for i, v := range pulse {
			cross += v * heard[lag+i]
		}
		scores[lag] = math.Abs(cross)
		if scores[lag] > scores[best] {
			best = lag
		}
	}
	var next float64
	for lag, v := range scores {
		if lag < best-len(pulse) || lag > best+len(pulse) {
			next = max(next, v)
		}
	}
	return time.Duration(float64(first+best) / Rate * float64(time.Second)), scores[best] / (next + 1e-9)
}
