package media

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"syscall"
)

// ErrTimeout means that a pass ran longer than its Timeout and was stopped.
var ErrTimeout = errors.New("ffmpeg timed out")

// ErrTooMuchOutput means that a pass filled its folder beyond what it may write.
var ErrTooMuchOutput = errors.New("ffmpeg wrote too much")

// ErrNotMedia means that the service cannot open the file: it is text, a playlist, an image, an empty or truncated
// file, or an unknown container. The sender is to blame, never the server.
var ErrNotMedia = errors.New("not a media file")

// ErrEncrypted means that the media in a file is encrypted: ffmpeg would decode it to noise. It is a kind of
// ErrNotMedia.
var ErrEncrypted = fmt.Errorf("%w: encrypted", ErrNotMedia)

// SoundError is the error for a file whose sound ffmpeg would decode to something other than what the file contains. It
// is a kind of ErrNotMedia.
type SoundError struct {
	Reason string // completes "The file ..."
}

// Error names the reason.
func (e *SoundError) Error() string { return fmt.Sprintf("%v: it %s", ErrNotMedia, e.Reason) }

// Unwrap returns ErrNotMedia.
func (e *SoundError) Unwrap() error { return ErrNotMedia }

// PictureError is the error for a file whose pictures exceed [Config.MaxPixels] by so much that ffprobe refuses to open
// it. It is a kind of ErrNotMedia.
type PictureError struct{ Width, Height int }

// Error names the size.
func (e *PictureError) Error() string {
	return fmt.Sprintf("%v: the picture of %dx%d is too large", ErrNotMedia, e.Width, e.Height)
}

// Unwrap returns ErrNotMedia.
func (e *PictureError) Unwrap() error { return ErrNotMedia }

// tooLarge matches ffmpeg's message about a picture beyond -max_pixels.
var tooLarge = regexp.MustCompile(`Picture size (\d+)x(\d+) exceeds specified max pixel count`)

// tooLargePicture returns a PictureError if a process reported such a picture, else nil.
func tooLargePicture(stderr string) error {
	m := tooLarge.FindStringSubmatch(stderr)
	if m == nil {
		return nil
	}
	w, _ := strconv.Atoi(m[1]) // only digits; a number that overflows becomes the largest int
	h, _ := strconv.Atoi(m[2])
	return &PictureError{w, h}
}

// ExitError is the error of an ffmpeg or ffprobe process that failed or was killed.
type ExitError struct {
	Name   string         // the pass
	Code   int            // exit status, or -1 when a signal ended it
	Signal syscall.Signal // 0 unless a signal ended it
	Stderr string         // last 8 KiB; for the log only, because it may contain paths of the server
}

// stoppedFromOutside reports whether an operator ended the process, or the kernel because memory ran out.
func (e *ExitError) stoppedFromOutside() bool {
	return e.Signal == syscall.SIGKILL || e.Signal == syscall.SIGTERM
}

// Blame is the cause of an incomplete read of a file.
type Blame int

// The causes that BlameFor distinguishes.
const (
	BlameUnknown Blame = iota
	BlameMachine       // an operator, or the kernel without memory, ended the process
	BlameCost          // the file takes more time, memory or packets than allowed
	BlameFile          // the file is not readable media
)

// BlameFor returns the cause of a failed probe or pass.
func BlameFor(err error) Blame {
	exit, exited := errors.AsType[*ExitError](err)
	switch {
	case exited && exit.stoppedFromOutside():
		return BlameMachine
	case errors.Is(err, ErrTimeout), errors.Is(err, ErrTooManyPackets),
		// ffmpeg has no exit status for ENOMEM.
		exited && (exit.Signal != 0 || strings.Contains(exit.Stderr, "Cannot allocate memory")):
		return BlameCost
	case errors.Is(err, ErrNotMedia), exited:
		return BlameFile
	}
	return BlameUnknown
}

// Error names the pass, how it ended and the last line it wrote.
func (e *ExitError) Error() string {
	how := fmt.Sprintf("exit status %d", e.Code)
	if e.Signal != 0 {
		how = e.Signal.String()
	}
	last := strings.TrimSpace(e.Stderr)
	last = last[strings.LastIndexByte(last, '\n')+1:]
	if last == "" {
		return fmt.Sprintf("%s: %s", e.Name, how)
	}
	return fmt.Sprintf("%s: %s: %s", e.Name, how, last)
}
