package media

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"time"
)

// progressMeter parses ffmpeg's -progress output: key=value lines, one block per half second, each closed by a
// `progress=` line.
type progressMeter struct {
	notify func(Progress) // may be nil
	lines  lineSplitter
	now    Progress
}

// Write never fails, because a bad progress report must not end a pass.
func (m *progressMeter) Write(p []byte) (int, error) {
	m.lines.split(p, 4096, m.take)
	return len(p), nil
}

func (m *progressMeter) take(line []byte) {
	key, value, _ := strings.Cut(strings.TrimSpace(string(line)), "=")
	n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
	switch {
	case key == "frame" && err == nil:
		m.now.Frames = n
	case key == "out_time_us" && err == nil && n >= 0:
		// "N/A" until the first packet. A stream that starts late counts up from a negative time.
		m.now.OutTime = time.Duration(n) * time.Microsecond
	case key == "progress" && m.notify != nil:
		m.notify(m.now)
	}
}

// tail keeps the last bytes written to it. It also counts the frames decoded with errors: ffmpeg reports each of them
// only by a line in the log.
type tail struct {
	corrupt int
	lines   lineSplitter

	limit int
	buf   []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.lines.split(p, t.limit, func(line []byte) {
		if bytes.Contains(line, []byte("corrupt decoded frame")) {
			t.corrupt++
		}
	})
	t.buf = append(t.buf, p...)
	t.buf = slices.Delete(t.buf, 0, max(0, len(t.buf)-t.limit))
	return len(p), nil
}

// String returns the kept bytes as text.
func (t *tail) String() string { return strings.ToValidUTF8(string(t.buf), "?") }

// lineSplitter splits its input into lines.
type lineSplitter struct{ rest []byte }

// split calls take for each line that p completes. It truncates lines of more than limit bytes and then returns false.
func (l *lineSplitter) split(p []byte, limit int, take func(line []byte)) (whole bool) {
	whole = true
	for {
		line, after, ended := bytes.Cut(p, []byte("\n"))
		if room := limit - len(l.rest); len(line) > room {
			line, whole = line[:room], false
		}
		l.rest = append(l.rest, line...)
		if !ended {
			return whole
		}
		take(l.rest)
		l.rest, p = l.rest[:0], after
	}
}
