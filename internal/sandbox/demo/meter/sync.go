package meter

import (
	"context"
	"fmt"
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

// FindPulse finds a known short sound of high pitch within reach of a time:
// where it begins, and how much of what is heard there it is, from 0 to 1.
// Another sound scores below 0.4.
func FindPulse(s Sound, pulse []float64, near, reach time.Duration) (at time.Duration, score float64) {
	first := Sample(near - reach)
	lags := 2*Sample(reach) + 1
	// Both are sharpened alike, which takes music and speech away from under
	// the pulse.
	heard := sharpen(mono(s.Cut(near-reach, near+reach+time.Duration(float64(len(pulse)+1)/Rate*float64(time.Second)))))
	lag, score := search(heard, sharpen(pulse), 0, lags-1)
	return time.Duration(float64(first+lag) / Rate * float64(time.Second)), score
}

// sharpen takes the second difference, which rises by 12 dB an octave, twice.
func sharpen(v []float64) []float64 {
	for range 2 {
		out := make([]float64, len(v))
		for i := range v {
			var before, after float64
			if i > 0 {
				before = v[i-1]
			}
			if i+1 < len(v) {
				after = v[i+1]
			}
			out[i] = before - 2*v[i] + after
		}
		v = out
	}
	return v
}
