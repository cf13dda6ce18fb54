package demo

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// account shows how the run changed the user's credits.
type account struct {
	before, price, after int64
}

// summary is the content of the last screen and of the report.
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

// lines formats the summary. ink colours a text or returns it unchanged.
func (s summary) lines(ink func(code, text string) string) []string {
	out := []string{ink(boldInk, "What was measured")}
	for _, c := range s.checks {
		mark := ink(greenInk, "ok ")
		if !c.ok {
			mark = ink(redInk, "OFF")
		}
		out = append(out, fmt.Sprintf("  %s %-28s  %s", mark, c.name, c.got),
			strings.Repeat(" ", 36)+ink(dimInk, "expected: "+c.want))
	}
	out = append(out, "", ink(amberInk, "  credits"),
		fmt.Sprintf("      %d at the start, %d for the separation, %d at the end", s.account.before, s.account.price,
			s.account.after))
	out = append(out, "", ink(amberInk, "  time"))
	for _, t := range append(s.took, stage{"together", s.total}) {
		out = append(out, fmt.Sprintf("      %-24s %6.1f s", t.name, t.took.Seconds()))
	}
	out = append(out, "", ink(amberInk, "  files in "+s.folder))
	for _, name := range s.files {
		size := ""
		if info, err := os.Stat(filepath.Join(s.folder, name)); err == nil {
			size = fmt.Sprintf("%7.1f kB", float64(info.Size())/1000)
		}
		out = append(out, fmt.Sprintf("      %-24s %s", name, size))
	}
	if err := s.off(); err != nil {
		return append(out, "", ink(redInk, err.Error()+"."))
	}
	return append(out, "", ink(greenInk, fmt.Sprintf("All %d measurements are as expected.", len(s.checks))))
}

// off returns an error if a measurement is out of tolerance.
func (s summary) off() error {
	off := 0
	for _, c := range s.checks {
		if !c.ok {
			off++
		}
	}
	if off > 0 {
		return fmt.Errorf("%d of %d measurements are off", off, len(s.checks))
	}
	return nil
}

// write writes the report to a file.
func (s summary) write(path string) error {
	plain := func(_, text string) string { return text }
	text := strings.Join(s.lines(plain), "\n") + "\n"
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}
