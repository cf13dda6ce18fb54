package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
)

// checkTools says what has to be installed before anything is started.
// speech tells whether espeak-ng will be needed.
func checkTools(speech bool) error {
	need := []string{"ffmpeg", "ffprobe"}
	if speech {
		need = append(need, "espeak-ng")
	}
	var missing []string
	for _, program := range need {
		if _, err := exec.LookPath(program); err != nil {
			missing = append(missing, program)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	packages := strings.ReplaceAll(strings.Join(missing, " "), "ffprobe", "ffmpeg")
	packages = strings.Replace(packages, "ffmpeg ffmpeg", "ffmpeg", 1)
	hint := "make setup, or: apt-get install " + packages
	if speech && strings.Contains(packages, "espeak-ng") {
		hint += "; or bring a recording with --speech"
	}
	return fmt.Errorf("%s not found in PATH (%s)", strings.Join(missing, " and "), hint)
}

// ffmpeg runs ffmpeg to its end, feeding it stdin where that is not nil.
func ffmpeg(ctx context.Context, what string, stdin io.Reader, args ...string) error {
	cmd := exec.CommandContext(ctx, "ffmpeg", append([]string{"-hide_banner", "-loglevel", "error", "-y"}, args...)...)
	var complaint bytes.Buffer
	cmd.Stdin, cmd.Stderr = stdin, &complaint
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("%s: %w", what, ctx.Err())
		}
		text := strings.TrimSpace(complaint.String())
		return errors.Join(fmt.Errorf("%s: ffmpeg: %w", what, err), errors.New(text[max(len(text)-600, 0):]))
	}
	return nil
}
