package apitest

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"cutroom/internal/logtest"
	"cutroom/internal/sandbox/process"
)

// Run runs the binary in the folder dir until it exits, and returns its exit status and output.
// The environment is env plus PATH, HOME and TMPDIR. Run kills the binary when ctx ends.
func Run(ctx context.Context, dir string, env map[string]string, args ...string) (status int, output string, err error) {
	binary, err := Binary()
	if err != nil {
		return -1, "", err
	}
	log := &logtest.Buffer{}
	p, err := process.Start(binary, dir, process.Environ(env, needed), log, args...)
	if err != nil {
		return -1, "", err
	}
	select {
	case <-p.Ended():
		return p.Status(), log.String(), nil
	case <-ctx.Done():
		p.Kill()
		return -1, log.String(), fmt.Errorf("cutroom %s: %w", strings.Join(args, " "), ctx.Err())
	}
}

// needed matches the few variables that every program needs. The developer's shell does not configure it.
var needed = regexp.MustCompile(`^(PATH|HOME|TMPDIR|GOCOVERDIR)$`)
