package demo

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"
)

// account is what the run did to the user's credits.
type account struct {
	before, price, after int64
}

// summary is everything the last screen and the report tell.
type summary struct {
	checks  []check
	account account
	took    []stage
	total   time.Duration
	folder  string
	files   []string // relative to folder
}

// stage is how long a part of the run took.
type stage struct {
	name string
	took time.Duration
}

// lines formats the summary for a page of width columns; ink colours a text or
// returns it as it is.
func (s summary) lines(width int, ink func(code, text string) string) []string {
	out := append([]string{ink(boldInk, "What was measured")}, s.table(width, ink)...)
	out = append(out, "", ink(amberInk, "  credits"), fmt.Sprintf("      %d at the start, %d for the separation, %d at the end", s.account.before, s.account.price, s.account.after))
	out = append(out, "", ink(amberInk, "  time"))
	for _, t := range s.took {
		out = append(out, fmt.Sprintf("      %-24s %6.1f s", t.name, t.took.Seconds()))
	}
	out = append(out, fmt.Sprintf("      %-24s %6.1f s", "together", s.total.Seconds()), "", ink(amberInk, "  files in "+s.folder))
	for _, name := range s.files {
		size := ""
		if info, err := os.Stat(filepath.Join(s.folder, name)); err == nil {
			size = fmt.Sprintf("%7.1f kB", float64(info.Size())/1000)
		}
		out = append(out, fmt.Sprintf("      %-24s %s", name, size))
	}
	out = append(out, "")
	off, all := s.count()
	if off > 0 {
		return append(out, ink(redInk, fmt.Sprintf("%d of %d measurements are off.", off, all)))
	}
	return append(out, ink(greenInk, fmt.Sprintf("All %d measurements are as expected.", all)))
}

// table lists the checks: what was measured, and what was expected.
func (s summary) table(width int, ink func(code, text string) string) []string {
	var out []string
	nameColumns, gotColumns := 0, 0
	for _, c := range s.checks {
		nameColumns = max(nameColumns, utf8.RuneCountInString(c.name))
		if n := utf8.RuneCountInString(c.got); n <= 46 {
			gotColumns = max(gotColumns, n)
		}
	}
	for _, c := range s.checks {
		mark := ink(greenInk, "ok ")
		switch {
		case c.skipped:
			mark = ink(dimInk, "-- ")
		case !c.ok:
			mark = ink(redInk, "OFF")
		}
		line := fmt.Sprintf("  %s %s  %s", mark, pad(c.name, nameColumns), c.got)
		used := 2 + 3 + 1 + nameColumns + 2
		want := ink(dimInk, "expected: "+c.want)
		switch {
		case c.skipped:
			out = append(out, line)
		case used+max(gotColumns, utf8.RuneCountInString(c.got))+2+10+utf8.RuneCountInString(c.want) <= width:
			out = append(out, line+strings.Repeat(" ", max(gotColumns-utf8.RuneCountInString(c.got), 0))+"  "+want)
		default:
			out = append(out, line, strings.Repeat(" ", used)+want)
		}
	}
	return out
}

// count counts the checks that failed, and those that could have.
func (s summary) count() (off, all int) {
	for _, c := range s.checks {
		if c.skipped {
			continue
		}
		all++
		if !c.ok {
			off++
		}
	}
	return off, all
}

// reportColumns is the width of the report file.
const reportColumns = 150

// write leaves the report in a file.
func (s summary) write(path string) error {
	plain := func(_, text string) string { return text }
	text := strings.Join(s.lines(reportColumns, plain), "\n") + "\n"
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}
