package demo

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"cutroom/internal/sandbox/measure"
)

// sync compares every flash of the lamps with its tick.
func (j *judge) sync(ctx context.Context) error {
	if !j.ownMedia() {
		return nil // the user's clips have no flashes
	}
	chirp, err := tickSound(ctx)
	if err != nil {
		return err
	}
	expected, found := 0, 0
	var worst, sum time.Duration
	for i, s := range j.film.segments {
		from, to := j.film.alone(i)
		bright, err := brightness(ctx, j.video, j.film.lampArea(s.clip))
		if err != nil {
			return err
		}
		for second := (s.from + time.Second - 1).Truncate(time.Second); second < s.to; second += time.Second {
			if at := s.start + second - s.from; at >= from && at < to && !j.film.mutedAt(at) {
				expected++
			}
		}
		for _, n := range measure.Flashes(bright) {
			flash := j.film.timeOf(n)
			if flash < from || flash >= to || j.film.mutedAt(flash) {
				continue // the other clip covers this lamp, or there is silence
			}
			late, score := findChirp(j.heard[j.video], chirp, flash)
			if score < 0.5 {
				continue // no tick there
			}
			found++
			sum += late
			if late.Abs() > worst.Abs() {
				worst = late
			}
		}
	}
	j.add("sound after picture", fmt.Sprintf("%d flashes within %.0f ms", expected, ms(syncWithin)),
		fmt.Sprintf("%d flashes, mean %+.2f ms, worst %+.2f ms", found, ms(sum)/float64(max(found, 1)), ms(worst)),
		found == expected && worst.Abs() <= syncWithin)
	return nil
}

// tickSound returns the sound of one tick.
func tickSound(ctx context.Context) (audio, error) {
	return stereo(ctx, "-f", "lavfi", "-i", "aevalsrc=exprs='"+tick+"|"+tick+"':s=48000:d=0.024")
}

// brightness returns the mean brightness of an area in every frame of a film.
func brightness(ctx context.Context, path string, a lamp) ([]byte, error) {
	side := max(a.radius, 2) // well inside the disc
	frames, err := measure.Pictures(ctx, path,
		fmt.Sprintf("format=gray,crop=%d:%d:%d:%d,scale=1:1:flags=area", side, side, a.x-side/2, a.y-side/2), "gray", 1)
	return slices.Concat(frames...), err
}

// findChirp finds a chirp within 150 ms of a time. It returns how late it is, and its share of the sound there,
// from 0 to 1.
func findChirp(heard, chirp audio, near time.Duration) (late time.Duration, score float64) {
	const reach = 150 * time.Millisecond
	// Sharpen both alike, which removes the music and speech under the chirp.
	around, want := sharpen(heard.cut(near-reach, near+reach+chirp.length())), sharpen(chirp)
	power, best := dot(want, want), 0
	for lag := 0; lag+len(want) <= len(around); lag += 2 {
		here := around[lag : lag+len(want)]
		if s := dot(want, here) / math.Sqrt(dot(here, here)*power+1e-12); s > score {
			best, score = lag, s
		}
	}
	return audio(around[:best]).length() - reach, score
}

// sharpen applies the second difference, which rises by 12 dB per octave, twice.
func sharpen(s audio) audio {
	for range 2 {
		out := make(audio, len(s))
		for i := 2; i+2 < len(s); i++ {
			out[i] = s[i-2] - 2*s[i] + s[i+2]
		}
		s = out
	}
	return s
}
