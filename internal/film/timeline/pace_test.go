package timeline_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"cutroom/internal/film/timeline"
)

// The film's time at a source time is the integral of 1 / speed; the map ascends, and its inverse returns the source
// time and the speed.
func TestPace(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var s timeline.Segment
		at := int64(0)
		for range rapid.IntRange(2, 16).Draw(t, "points") {
			s.SpeedPoints = append(s.SpeedPoints, timeline.SpeedPoint{At: time.Duration(at) * time.Millisecond,
				Speed: rapid.SampledFrom([]float64{0.1, 10, 1, 1, 0.100001, rapid.Float64Range(0.1, 10).Draw(t, "any")}).Draw(t, "speed")})
			at += rapid.SampledFrom([]int64{1, 40, 1000, 100_000}).Draw(t, "step")
		}
		speed := func(source float64) float64 {
			k := len(s.SpeedPoints) - 1
			for k > 0 && s.SpeedPoints[k].At.Seconds() > source {
				k--
			}
			a := s.SpeedPoints[k]
			if k == len(s.SpeedPoints)-1 {
				return a.Speed
			}
			b := s.SpeedPoints[k+1]
			return a.Speed + (b.Speed-a.Speed)*(source-a.At.Seconds())/(b.At-a.At).Seconds()
		}
		pace := s.Pace()
		end := rapid.Float64Range(0.001, float64(at)/1000+1).Draw(t, "end")
		// Simpson's rule on each piece.
		sum, film := 0.0, 0.0
		integrate := func(from, to float64) {
			const n = 2000
			h := (to - from) / n
			for i := range n {
				x := from + float64(i)*h
				sum += h / 6 * (1/speed(x) + 4/speed(x+h/2) + 1/speed(x+h-h*1e-9))
			}
		}
		from := 0.0
		for _, p := range s.SpeedPoints[1:] {
			if to := min(end, p.At.Seconds()); to > from {
				integrate(from, to)
				from = to
			}
		}
		if end > from {
			integrate(from, end)
		}
		if film = pace.FilmTime(end); math.Abs(film-sum) > 1e-5*(1+sum) {
			t.Fatalf("the film's time of %v is %v, want %v", end, film, sum)
		}
		source, v := pace.At(film)
		if math.Abs(source-end) > 1e-7*(1+end) || math.Abs(v-speed(end)) > 1e-4*v {
			t.Fatalf("back from %v come %v at %v, want %v at %v", film, source, v, end, speed(end))
		}
		if later := pace.FilmTime(end + 0.001); later <= film {
			t.Fatalf("the map does not ascend at %v: %v, %v", end, film, later)
		}
	})
}
