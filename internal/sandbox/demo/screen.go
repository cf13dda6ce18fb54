package demo

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// screen shows the progress. On a terminal, each step is a line with a moving bar; elsewhere a line is printed when the
// step ends.
type screen struct {
	w     io.Writer
	tty   bool
	color bool
	mu    sync.Mutex
}

// newScreen detects whether w is a terminal. It respects NO_COLOR.
func newScreen(w io.Writer) *screen {
	s := &screen{w: w}
	if file, ok := w.(*os.File); ok {
		_, err := unix.IoctlGetTermios(int(file.Fd()), unix.TCGETS)
		s.tty = err == nil && os.Getenv("TERM") != "dumb"
	}
	s.color = s.tty && os.Getenv("NO_COLOR") == ""
	return s
}

// Colours of the terminal.
const (
	boldInk  = "1"
	dimInk   = "2"
	redInk   = "31"
	greenInk = "32"
	amberInk = "33"
)

func (s *screen) ink(code, text string) string {
	if !s.color {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// println writes a separate line.
func (s *screen) println(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintln(s.w, text)
}

// step is one line of work. Its methods may be called from any goroutine.
type step struct {
	screen  *screen
	name    string
	started time.Time
	drawn   time.Time
	share   float64
	over    bool
}

// begin starts a step. The previous one must have ended.
func (s *screen) begin(name string) *step {
	st := &step{screen: s, name: name, started: time.Now()}
	st.update(0, "")
	return st
}

// Columns of a step's line.
const (
	nameColumns = 24
	barColumns  = 26
	noteColumns = 40 // beside a bar, on a terminal of 106
)

// update shows the progress (0..1) and the current activity.
func (st *step) update(share float64, note string) {
	s := st.screen
	s.mu.Lock()
	defer s.mu.Unlock()
	share = min(max(share, 0), 1)
	if !s.tty || st.over || time.Since(st.drawn) < 80*time.Millisecond && share < 1 && share >= st.share {
		return
	}
	st.share, st.drawn = share, time.Now()
	line := fmt.Sprintf("  %s %s %s %3.0f %%  %s", s.ink(amberInk, "▸"), pad(st.name, nameColumns), s.bar(share), share*100,
		s.ink(dimInk, cut(note)))
	fmt.Fprintf(s.w, "\r\x1b[K%s", line)
}

// uploading is update for bytes sent to the service.
func (st *step) uploading(share float64) { st.update(share, "uploading") }

func (s *screen) bar(share float64) string {
	full := int(share*barColumns + 0.5)
	return s.ink(amberInk, strings.Repeat("━", full)) + s.ink(dimInk, strings.Repeat("─", barColumns-full))
}

// done ends the step successfully; note describes its result.
func (st *step) done(note string) { st.end("✓", greenInk, note) }

// skip ends a step that was not possible, which is not a failure.
func (st *step) skip(note string) { st.end("-", dimInk, note) }

// fail ends a step that failed. It does nothing if the step has already ended, so it may be deferred.
func (st *step) fail() { st.end("✗", redInk, "failed") }

func (st *step) end(mark, ink, note string) {
	s := st.screen
	s.mu.Lock()
	defer s.mu.Unlock()
	if st.over {
		return
	}
	st.over = true
	if s.tty {
		fmt.Fprint(s.w, "\r\x1b[K")
	}
	fmt.Fprintf(s.w, "  %s %s %6.1f s  %s\n", s.ink(ink, mark), pad(st.name, nameColumns), time.Since(st.started).Seconds(), note)
}

// pad fills a text up to a number of columns.
func pad(text string, columns int) string {
	return text + strings.Repeat(" ", max(columns-utf8.RuneCountInString(text), 0))
}

// cut shortens a note to its columns.
func cut(text string) string {
	runes := []rune(text)
	if len(runes) <= noteColumns {
		return text
	}
	return string(runes[:noteColumns-1]) + "…"
}
