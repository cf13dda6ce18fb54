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
	protocol
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

// lines formats the summary; ink colours a text or returns it as it is.
func (s summary) lines(ink func(code, text string) string) []string {
	var out []string
	wantColumns, nameColumns := 0, 0
	for _, c := range s.checks {
		wantColumns = max(wantColumns, utf8.RuneCountInString(c.want))
		nameColumns = max(nameColumns, utf8.RuneCountInString(c.name))
	}
	wantColumns = min(wantColumns, 44)
	out = append(out, ink(boldInk, "What was measured")+ink(dimInk, "  (expected, then measured)"))
	group := ""
	for _, c := range s.checks {
		if c.group != group {
			group = c.group
			out = append(out, "", ink(amberInk, "  "+group))
		}
		mark := ink(greenInk, "ok ")
		switch {
		case c.note:
			mark = ink(dimInk, "-- ")
		case !c.ok:
			mark = ink(redInk, "OFF")
		}
		out = append(out, strings.TrimRight(fmt.Sprintf("  %s %s  %s  %s", mark, pad(c.name, nameColumns), ink(dimInk, pad(c.want, wantColumns)), c.got), " "))
	}
	if len(s.loudness) > 0 {
		out = append(out, "", ink(amberInk, "  loudness where the voice is lifted"), fmt.Sprintf("      %-14s %14s %14s %9s", "", "original", "film", "change"))
		for _, r := range s.loudness {
			out = append(out, fmt.Sprintf("      %-14s %9.1f LUFS %9.1f LUFS %+6.1f dB", r.name, r.original, r.film, r.film-r.original))
		}
		if len(s.loudness) == 2 {
			v, b := s.loudness[0], s.loudness[1]
			out = append(out, fmt.Sprintf("      %-14s %11.1f dB %11.1f dB %+6.1f dB", "voice over it", v.original-b.original, v.film-b.film, v.film-b.film-v.original+b.original))
		}
	}
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
	if n := s.off(); n > 0 {
		return append(out, ink(redInk, fmt.Sprintf("%d of %d measurements are off.", n, s.count())))
	}
	return append(out, ink(greenInk, fmt.Sprintf("All %d measurements are as expected.", s.count())))
}

// write leaves the report in a file.
func (s summary) write(path string) error {
	plain := func(_, text string) string { return text }
	text := strings.Join(s.lines(plain), "\n") + "\n"
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}
