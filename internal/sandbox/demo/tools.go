package demo

import (
	"context"
	"errors"
	"fmt"
	"os/exec"

	"cutroom/internal/sandbox/process"
)

// checkTools reports missing programs before anything starts. speech means that espeak-ng will be needed.
func checkTools(speech bool) error {
	var errs []error
	for _, program := range []string{"ffmpeg", "ffprobe"} {
		if _, err := exec.LookPath(program); err != nil {
			errs = append(errs, fmt.Errorf("%s not found in PATH (make setup, or: apt-get install ffmpeg)", program))
		}
	}
	if _, err := exec.LookPath("espeak-ng"); err != nil && speech {
		errs = append(errs, errors.New(
			"espeak-ng not found in PATH (make setup, or: apt-get install espeak-ng; or bring a recording with --speech)"))
	}
	return errors.Join(errs...)
}

// ffmpeg runs ffmpeg to its end. what names the run in errors.
func ffmpeg(ctx context.Context, what string, args ...string) error {
	if err := process.FFmpeg(ctx, args...); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}
