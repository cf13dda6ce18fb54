package media

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"
)

// ErrTimeout means that a pass ran longer than its Timeout and was stopped.
var ErrTimeout = errors.New("ffmpeg ran into its time-out")

// ErrNotMedia means that a file is not media of a kind the service opens:
// text, a playlist, an image, an empty or truncated file, an unknown container.
// It is the sender's fault, never the server's.
var ErrNotMedia = errors.New("not a media file")

// ExitError is an ffmpeg or ffprobe that ended by itself and not well.
type ExitError struct {
	Name   string         // the pass
	Code   int            // exit status, or -1 when a signal ended it
	Signal syscall.Signal // 0 unless a signal ended it
	Stderr string         // last 8 KiB; for the log, it may hold paths of the server
}

// Error names the pass, how it ended and the last line it wrote.
func (e *ExitError) Error() string {
	how := fmt.Sprintf("exit status %d", e.Code)
	if e.Signal != 0 {
		how = e.Signal.String()
	}
	last := strings.TrimSpace(e.Stderr)
	if i := strings.LastIndexByte(last, '\n'); i >= 0 {
		last = last[i+1:]
	}
	if last == "" {
		return fmt.Sprintf("%s: %s", e.Name, how)
	}
	return fmt.Sprintf("%s: %s: %s", e.Name, how, last)
}

// LimitError is a file that claims or holds more than the service accepts.
type LimitError struct {
	Name  string // "pixels", "duration" or "streams"
	Value string // what the file has, for people
	Max   string // what is accepted, for people
}

// Error says which limit was exceeded and by what.
func (e *LimitError) Error() string {
	return fmt.Sprintf("%s: %s exceeds the limit of %s", e.Name, e.Value, e.Max)
}

// Limits bounds what a source may be. A zero field is no limit.
type Limits struct {
	MaxPixels   int64         // coded width x height of the chosen video stream
	MaxDuration time.Duration // of the media found by Measure, not of the header's claim
	MaxStreams  int           // of all types
}

// DefaultLimits are generous for phones: 8192x4320 film, 12 hours, 32 streams.
func DefaultLimits() Limits {
	return Limits{MaxPixels: 8192 * 4320, MaxDuration: 12 * time.Hour, MaxStreams: 32}
}

// CheckProbe reports a *LimitError for what the header says about pictures and
// streams. The header's duration is not judged here, since honest files lie
// about it (a fragmented mp4 of one second may claim 40 hours).
func (l Limits) CheckProbe(p Probe) error {
	if l.MaxStreams > 0 && p.Streams > l.MaxStreams {
		return &LimitError{Name: "streams", Value: fmt.Sprint(p.Streams), Max: fmt.Sprint(l.MaxStreams)}
	}
	if v := p.Video; v != nil && l.MaxPixels > 0 && int64(v.Width)*int64(v.Height) > l.MaxPixels {
		return &LimitError{Name: "pixels", Value: fmt.Sprintf("%dx%d", v.Width, v.Height), Max: fmt.Sprintf("%d pixels", l.MaxPixels)}
	}
	return nil
}

// CheckDuration reports a *LimitError for a duration found by measuring.
func (l Limits) CheckDuration(d time.Duration) error {
	if l.MaxDuration > 0 && d > l.MaxDuration {
		return &LimitError{Name: "duration", Value: d.Round(time.Millisecond).String(), Max: l.MaxDuration.String()}
	}
	return nil
}
