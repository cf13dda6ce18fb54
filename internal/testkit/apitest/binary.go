package apitest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"cutroom/internal/sandbox/process"
	"cutroom/internal/testkit/logtest"
)

// buildDir is the folder of the binary that this process built, which Main removes, or "".
var buildDir string

// Binary returns the path of the cutroom binary: CUTROOM_BIN, or a new build of this module. The sandbox's binary is in
// the same folder. Each test process builds them at most once.
var Binary = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("CUTROOM_BIN"); path != "" {
		return filepath.Abs(path)
	}
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	if buildDir, err = os.MkdirTemp("", "cutroom-bin-"); err != nil {
		return "", fmt.Errorf("make a folder for the binary: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "build", "-o", buildDir, "./cmd/cutroom", "./cmd/sandbox")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build: %w\n%s", err, out)
	}
	return filepath.Join(buildDir, "cutroom"), nil
})

// moduleRoot returns the folder that contains go.mod. It searches upwards from the working directory, which under `go
// test` is the package's folder.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("no go.mod above the working directory")
		}
		dir = parent
	}
}

// Run runs the binary in the folder dir until it exits, and returns its exit status and output. The environment is env
// plus PATH, HOME and TMPDIR. Run kills the binary when ctx ends.
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

// needed matches the few variables that every program needs. The developer's shell must not configure the service.
var needed = regexp.MustCompile(`^(PATH|HOME|TMPDIR|GOCOVERDIR)$`)
