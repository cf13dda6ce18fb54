package demo

import (
	"fmt"
	"math"
	"time"
)

// check is one thing that was measured.
type check struct {
	group     string // what was measured: a file, mostly
	name      string
	want, got string
	ok        bool
	note      bool // nothing was expected: got is for information
}

// protocol collects the checks of a run.
type protocol struct {
	checks   []check
	loudness []loudnessRow
	group    string
}

// loudnessRow compares a sound in the original with the film, in LUFS.
type loudnessRow struct {
	name           string
	original, film float64
}

func (p *protocol) add(name, want, got string, ok bool) {
	p.checks = append(p.checks, check{group: p.group, name: name, want: want, got: got, ok: ok})
}

// tell notes a measurement without an expectation.
func (p *protocol) tell(name, got string) {
	p.checks = append(p.checks, check{group: p.group, name: name, got: got, ok: true, note: true})
}

// equal checks two values that have to be the same as text.
func (p *protocol) equal(name, want, got string) { p.add(name, want, got, want == got) }

// within checks that a value is at most tolerance away from what is wanted.
func (p *protocol) within(name string, want, got, tolerance float64, format string) {
	p.add(name, fmt.Sprintf(format+" ± %s", want, trim(tolerance)), fmt.Sprintf(format, got), math.Abs(got-want) <= tolerance)
}

// span checks a length of time, in milliseconds.
func (p *protocol) span(name string, want, got, tolerance time.Duration) {
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	p.add(name, fmt.Sprintf("%.3f s ± %s ms", want.Seconds(), trim(ms(tolerance))), fmt.Sprintf("%.3f s", got.Seconds()), (got-want).Abs() <= tolerance)
}

// off counts the checks that failed.
func (p *protocol) off() int {
	n := 0
	for _, c := range p.checks {
		if !c.ok {
			n++
		}
	}
	return n
}

// count is the number of checks that could have failed.
func (p *protocol) count() int {
	n := 0
	for _, c := range p.checks {
		if !c.note {
			n++
		}
	}
	return n
}

// trim formats a tolerance without needless digits.
func trim(v float64) string {
	if v < 1 {
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

// decibels is a gain in dB.
func decibels(gain float64) float64 { return 20 * math.Log10(math.Abs(gain)) }
