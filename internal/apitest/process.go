package apitest

import (
	"context"
	"fmt"
	"os"
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
	p, err := process.Start(binary, dir, environ(env), log, args...)
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

// environ returns the environment of a child: env and the few variables that every program needs,
// so the developer's shell does not configure it.
func environ(env map[string]string) []string {
	var out []string
	for _, key := range []string{"PATH", "HOME", "TMPDIR", "GOCOVERDIR"} {
		if v, ok := os.LookupEnv(key); ok {
			out = append(out, key+"="+v)
		}
	}
	for k, v := range env {
		out = append(out, k+"="+v)
	}
	return out
}
