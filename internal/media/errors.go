package media

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
)

// ErrTimeout means that a pass ran longer than its Timeout and was stopped.
var ErrTimeout = errors.New("ffmpeg ran into its time-out")

// ErrNotMedia means that a file is not media of a kind the service opens:
// text, a playlist, an image, an empty or truncated file, an unknown container.
// It is the sender's fault, never the server's.
var ErrNotMedia = errors.New("not a media file")

// ErrEncrypted means that a file's media is encrypted. What ffmpeg decodes of it is
// noise. It is a kind of ErrNotMedia.
var ErrEncrypted = fmt.Errorf("%w: encrypted", ErrNotMedia)

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
