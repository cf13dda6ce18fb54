package media

import (
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// Rational is an exact ratio, as ffmpeg writes frame rates, time bases and pixel shapes. The zero value means unknown.
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

// parseRational parses "30000/1001" or "4:3" as ffmpeg's 32-bit numbers. Anything else, and a ratio with a zero, is
// unknown.
func parseRational(s string) Rational {
	a, b, ok := strings.Cut(strings.Replace(s, ":", "/", 1), "/")
	if !ok {
		return Rational{}
	}
	num, err1 := strconv.ParseInt(a, 10, 32)
	den, err2 := strconv.ParseInt(b, 10, 32)
	r := Rational{num, den}
	if err1 != nil || err2 != nil || !r.Known() {
		return Rational{}
	}
	return r
}

// MulDiv returns a*b/c rounded to the nearest, halves away from zero as ffmpeg rounds, computed with 128 bits. b >= 0
// and c > 0. A result beyond int64 saturates.
func MulDiv(a, b, c int64) int64 {
	abs := uint64(a)
	if a < 0 {
		abs = -abs
	}
	hi, lo := bits.Mul64(abs, uint64(b))
	lo, carry := bits.Add64(lo, uint64(c)/2, 0)
	hi += carry
	result := int64(math.MaxInt64)
	if hi < uint64(c) {
		q, _ := bits.Div64(hi, lo, uint64(c))
		result = int64(min(q, math.MaxInt64))
	}
	if a < 0 {
		return -result
	}
	return result
}

// ticksToDuration converts ticks of base seconds to a Duration, rounded to the nearest nanosecond. Values beyond a
// Duration (292 years) saturate.
func ticksToDuration(ticks int64, base Rational) time.Duration {
	if !base.Known() {
		return 0
	}
	return time.Duration(MulDiv(ticks, base.Num*int64(time.Second), base.Den))
}

// parseSeconds parses ffmpeg's decimal seconds ("1.023021"). "N/A" and malformed text are 0. Values beyond a
// Duration saturate.
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
