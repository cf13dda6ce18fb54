package media

import (
	"bytes"
	"strconv"
	"strings"
	"time"
)

// progressMeter is the writer behind ffmpeg's -progress: key=value lines, one
// block per half second, each closed by a `progress=` line.
type progressMeter struct {
	notify func(Progress) // may be nil
	lines  lineSplitter
	now    Progress
}

// Write never fails: progress is a courtesy and must not end a pass.
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
		// "N/A" until the first packet; a stream starting late counts from below zero.
		m.now.OutTime = time.Duration(n) * time.Microsecond
	case key == "progress" && m.notify != nil:
		m.notify(m.now)
	}
}

// tail keeps the last bytes written to it, and counts the frames that ffmpeg says
// it decoded with errors: a line for each, and no other sign of it.
type tail struct {
	corrupt int
	lines   lineSplitter

	limit int
	buf   []byte
}

func (t *tail) Write(p []byte) (int, error) {
	n := len(p)
	t.lines.split(p, t.limit, func(line []byte) {
		if bytes.Contains(line, []byte("corrupt decoded frame")) {
			t.corrupt++
		}
	})
	if len(p) >= t.limit {
		t.buf = append(t.buf[:0], p[len(p)-t.limit:]...)
		return n, nil
	}
	if over := len(t.buf) + len(p) - t.limit; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	t.buf = append(t.buf, p...)
	return n, nil
}

// String returns what is kept, as text.
func (t *tail) String() string { return strings.ToValidUTF8(string(t.buf), "?") }

// lineSplitter cuts what is written into lines.
type lineSplitter struct{ rest []byte }

// split calls take with each line that p ends. Of a line of more than limit bytes
// only the beginning is taken, and the answer is false.
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
