// Exact arithmetic of frames and samples, and the choice of the film's frame rate.

package engine

import (
	"math"
	"time"

	"cutroom/internal/film/audio"
	"cutroom/internal/film/media"
)

// sampleRate is the rate of all sound inside the engine and in the output, Hz.
const sampleRate = audio.SampleRate

// samplesAt returns the number of the sample at the start of frame n: n * 48000 / rate, rounded to the nearest. It is
// exact for every n >= 0.
func samplesAt(n int64, rate media.Rational) int64 {
	return media.MulDiv(n, sampleRate*rate.Den, rate.Num)
}

// framesDuration returns how long n frames last, rounded to a nanosecond.
func framesDuration(n int64, rate media.Rational) time.Duration {
	return time.Duration(media.MulDiv(n, int64(time.Second)*rate.Den, rate.Num))
}

// micros converts seconds to microseconds, rounded to the nearest.
func micros(seconds float64) int64 { return int64(math.Round(seconds * 1e6)) }

// samplesOf converts a time to samples, rounded to the nearest. Whole milliseconds are exact.
func samplesOf(d time.Duration) int64 {
	return media.MulDiv(int64(d), sampleRate, int64(time.Second))
}

// samplesDuration returns how long n samples last, rounded to a nanosecond.
func samplesDuration(n int64) time.Duration {
	return time.Duration(media.MulDiv(n, int64(time.Second), sampleRate))
}

// standardRates are the frame rates that cameras and editors use.
var standardRates = []media.Rational{
	{Num: 5, Den: 1}, {Num: 8, Den: 1}, {Num: 10, Den: 1}, {Num: 12, Den: 1}, {Num: 25, Den: 2}, {Num: 15000, Den: 1001}, {Num: 15, Den: 1},
	{Num: 18, Den: 1}, {Num: 20, Den: 1}, {Num: 24000, Den: 1001}, {Num: 24, Den: 1}, {Num: 25, Den: 1},
	{Num: 30000, Den: 1001}, {Num: 30, Den: 1},
	{Num: 48000, Den: 1001}, {Num: 48, Den: 1}, {Num: 50, Den: 1}, {Num: 60000, Den: 1001}, {Num: 60, Den: 1},
}

// maxRate is the highest frame rate of an output.
const maxRate = 60

// canvasRate chooses the output's frame rate for a first segment with video v.
//
// A constant rate is kept exactly; 29.97 written as 2997/100 becomes 30000/1001. A variable rate becomes the standard
// rate nearest to the usual distance between frames; the mean would not show that a phone which drops frames in the
// dark films at 30. For a mostly still screen recording, the short distances decide. Rates above 60 are divided if that
// gives a standard rate, which keeps motion even.
func canvasRate(v *videoInfo) media.Rational {
	rate := constantRate(v)
	if !rate.Known() {
		usual, short := v.usualStep(), v.shortStep()
		rate = nearestStandard(1 / usual.Seconds())
		if rate.Float() < 24 && short < usual*2/3 {
			rate = nearestStandard(max(30, 1/short.Seconds()))
		}
	}
	if rate.Float() > maxRate {
		rate = divided(rate)
	}
	if rate.Float() < 1 {
		return media.Rational{Num: 1, Den: 1} // a slide show: a coarser grid would make cuts too coarse
	}
	return rate
}

// constantRate returns the exact rate of a video with evenly spaced frames, and unknown for any other.
func constantRate(v *videoInfo) media.Rational {
	claimed := v.AvgFrameRate
	if !claimed.Known() {
		claimed = v.FrameRate
	}
	n := len(v.Starts)
	if n < 2 { // one frame says nothing about a rate
		if r := snap(claimed.Float()); r.Known() {
			return r
		}
		return media.Rational{Num: 30, Den: 1}
	}
	// Every frame must lie where an even rate puts it, within the rounding of the container's clock (1 ms in matroska).
	step := float64(v.Starts[n-1]-v.Starts[0]) / float64(n-1)
	tick := v.TimeBase.Float()
	slack := max(1.01, 0.0011/tick, step*0.02)
	for i, s := range v.Starts {
		if math.Abs(float64(s-v.Starts[0])-float64(i)*step) > slack {
			return media.Rational{}
		}
	}
	measured := 1 / (step * tick)
	// The header has the exact ratio; the measured one is only close to it.
	uncertainty := 2*slack/(step*float64(n-1)) + 1e-6
	for _, r := range []media.Rational{claimed, v.FrameRate} {
		if r.Known() && math.Abs(r.Float()/measured-1) <= uncertainty {
			if s := snap(r.Float()); s.Known() {
				return s
			}
			if r.Num <= 1_000_000 && r.Den <= 100_000 {
				return r
			}
		}
	}
	if s := snap(measured); s.Known() {
		return s
	}
	return media.Rational{Num: int64(math.Round(measured * 1000)), Den: 1000}
}

// snap returns the standard or whole rate within 0.02 % of f, or unknown if there is none. 29.97 and 30 are 0.1 %
// apart.
func snap(f float64) media.Rational {
	for _, r := range standardRates {
		if math.Abs(f/r.Float()-1) < 0.0002 {
			return r
		}
	}
	if w := math.Round(f); w >= 1 && math.Abs(f/w-1) < 0.0002 {
		return media.Rational{Num: int64(w), Den: 1}
	}
	return media.Rational{}
}

// nearestStandard returns the standard rate closest to f by ratio. Between 29.97 and 30 the whole rate wins unless f is
// almost exactly the other one: variable rates usually aim at 30.
func nearestStandard(f float64) media.Rational {
	if f < 4 {
		return media.Rational{Num: max(1, int64(math.Round(f))), Den: 1}
	}
	best, distance := media.Rational{}, math.Inf(1)
	for _, r := range standardRates {
		d := math.Abs(math.Log(f / r.Float()))
		if r.Den == 1001 && d > 0.0004 {
			d += 0.0015
		}
		if d < distance {
			best, distance = r, d
		}
	}
	return best
}

// divided lowers a rate above 60.
func divided(rate media.Rational) media.Rational {
	k := int64(math.Ceil(rate.Float() / maxRate))
	if r := snap(rate.Float() / float64(k)); r.Known() && r.Float() >= 48 && r.Float() <= maxRate {
		return r
	}
	return media.Rational{Num: maxRate, Den: 1}
}
