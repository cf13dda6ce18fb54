package demo

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	"cutroom/internal/sandbox/process"
)

// checkTools reports missing programs before anything starts. speech means that espeak-ng will be needed.
func checkTools(speech bool) error {
	var missing, packages []string
	for _, tool := range []struct{ program, debian string }{{"ffmpeg", "ffmpeg"}, {"ffprobe", "ffmpeg"}, {"espeak-ng", "espeak-ng"}} {
		if _, err := exec.LookPath(tool.program); err != nil && (speech || tool.program != "espeak-ng") {
			missing, packages = append(missing, tool.program), append(packages, tool.debian)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	hint := "make setup, or: apt-get install " + strings.Join(slices.Compact(packages), " ")
	if slices.Contains(missing, "espeak-ng") {
		hint += "; or bring a recording with --speech"
	}
	return fmt.Errorf("%s not found in PATH (%s)", strings.Join(missing, " and "), hint)
}

// ffmpeg runs ffmpeg to its end. what names the run in errors.
func ffmpeg(ctx context.Context, what string, args ...string) error {
	if err := process.FFmpeg(ctx, args...); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}
