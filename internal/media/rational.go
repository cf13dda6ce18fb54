package media

import (
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// Rational is an exact ratio, as ffmpeg writes frame rates, time bases and
// pixel shapes. The zero value means unknown.
type Rational struct{ Num, Den int64 }

// Known reports whether the ratio is a positive number.
func (r Rational) Known() bool { return r.Num > 0 && r.Den > 0 }

// Float is the ratio's value, 0 when unknown.
func (r Rational) Float() float64 {
	if r.Den == 0 {
		return 0
	}
	return float64(r.Num) / float64(r.Den)
}

// String is "num/den", as ffmpeg reads it.
func (r Rational) String() string { return fmt.Sprintf("%d/%d", r.Num, r.Den) }

// parseRational reads "30000/1001" or "4:3"; anything else, and a ratio with a
// zero, is unknown.
func parseRational(s string) Rational {
	a, b, ok := strings.Cut(strings.Replace(s, ":", "/", 1), "/")
	if !ok {
		return Rational{}
	}
	num, err1 := strconv.ParseInt(a, 10, 64)
	den, err2 := strconv.ParseInt(b, 10, 64)
	r := Rational{num, den}
	if err1 != nil || err2 != nil || !r.Known() {
		return Rational{}
	}
	return r
}

// ticksToDuration converts a count of ticks of base seconds, rounded to the
// nearest nanosecond. Values beyond what a Duration holds (292 years) saturate.
func ticksToDuration(ticks int64, base Rational) time.Duration {
	if !base.Known() {
		return 0
	}
	neg := ticks < 0
	abs := uint64(ticks)
	if neg {
		abs = -abs
	}
	const limit = uint64(1<<63 - 1)
	result := limit
	hi, lo := bits.Mul64(abs, uint64(base.Num))
	if den := uint64(base.Den); hi < den { // else the quotient has more than 64 bits
		// Nanoseconds of a second need 30 bits, so the product is divided in two steps.
		sec, rest := bits.Div64(hi, lo, den)
		if sec <= limit/uint64(time.Second) {
			h, l := bits.Mul64(rest, uint64(time.Second))
			l, carry := bits.Add64(l, den/2, 0)
			q, _ := bits.Div64(h+carry, l, den)            // rest < den, so q fits
			result = min(limit, sec*uint64(time.Second)+q) // below 2^64: sec is bounded and q is at most a second
		}
	}
	if neg {
		return -time.Duration(result)
	}
	return time.Duration(result)
}

// parseSeconds reads ffmpeg's decimal seconds ("1.023021"); "N/A" and nonsense
// are 0. Values beyond a Duration saturate.
func parseSeconds(s string) time.Duration {
	f, err := strconv.ParseFloat(s, 64)
	const limit = float64(math.MaxInt64) / float64(time.Second)
	switch {
	case err != nil || math.IsNaN(f):
		return 0
	case f >= limit:
		return math.MaxInt64
	case f <= -limit:
		return -math.MaxInt64
	}
	// Six decimals are exact in microseconds; a float of seconds is not.
	return time.Duration(math.Round(f*1e6)) * time.Microsecond
}
