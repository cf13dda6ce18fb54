package media

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// progressMeter is the writer behind ffmpeg's -progress: key=value lines, one
// block per half second, each closed by a `progress=` line. It also looks at the
// process's memory once per block, because the rusage a parent gets at the end
// starts from the parent's own memory (the child is cloned from it) and would
// charge the server's size to every pass.
type progressMeter struct {
	notify func(Progress)

	lines lineSplitter

	mu  sync.Mutex
	pid int
	now Progress
	rss int64
}

// watch names the process whose memory is sampled.
func (m *progressMeter) watch(pid int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pid = pid
}

func (m *progressMeter) result() (Progress, int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now, m.rss
}

// Write never fails: progress is a courtesy and must not end a pass.
func (m *progressMeter) Write(p []byte) (int, error) {
	m.lines.split(p, 4096, m.take)
	return len(p), nil
}

func (m *progressMeter) take(line []byte) {
	key, value, _ := strings.Cut(strings.TrimSpace(string(line)), "=")
	value = strings.TrimSpace(value)
	m.mu.Lock()
	switch key {
	case "frame":
		if n, err := strconv.ParseInt(value, 10, 64); err == nil {
			m.now.Frames = n
		}
	case "out_time_us":
		// "N/A" until the first packet; a stream starting late counts from below zero.
		if us, err := strconv.ParseInt(value, 10, 64); err == nil && us >= 0 {
			m.now.OutTime = time.Duration(us) * time.Microsecond
		}
	case "progress":
		m.rss = max(m.rss, peakMemory(m.pid))
	}
	now := m.now
	m.mu.Unlock()
	if key == "progress" && m.notify != nil {
		m.notify(now)
	}
}

// peakMemory reads the high-water mark of a process's resident memory in bytes,
// 0 when it is not there.
func peakMemory(pid int) int64 {
	if pid == 0 {
		return 0
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
			n, err := strconv.ParseInt(kb, 10, 64)
			if err != nil {
				return 0
			}
			return n << 10
		}
	}
	return 0
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
