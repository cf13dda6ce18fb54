package demo

import (
	"context"
	"fmt"
	"os/exec"
	"strings"

	"cutroom/internal/sandbox/process"
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

// ffmpeg runs ffmpeg to its end, for what an error names.
func ffmpeg(ctx context.Context, what string, args ...string) error {
	if err := process.FFmpeg(ctx, args...); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}
