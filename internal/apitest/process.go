package apitest

import (
	"context"
	"fmt"
	"os"
	"strings"

	"cutroom/internal/logtest"
	"cutroom/internal/sandbox/process"
)

// Run runs the binary to its end with the given environment (only that, plus
// PATH, HOME and TMPDIR), and returns its exit status and everything it
// printed. It is killed when ctx ends.
//
// dir is the working directory.
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

// environ is the environment of a child: the given keys and the few that any
// program needs, so that nothing of the developer's shell configures it.
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
