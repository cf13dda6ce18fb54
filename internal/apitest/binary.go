package apitest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"
)

// build holds the binary under test. Each test process builds it at most once.
var build struct {
	once sync.Once
	path string
	dir  string // Main removes it; "" if CUTROOM_BIN names the binary
	err  error
}

// Binary returns the path of the cutroom binary: CUTROOM_BIN, or a new build of this module. The sandbox's
// binary is in the same folder.
func Binary() (string, error) {
	build.once.Do(func() {
		if path := os.Getenv("CUTROOM_BIN"); path != "" {
			build.path, build.err = filepath.Abs(path)
			return
		}
		build.path, build.err = goBuild()
	})
	return build.path, build.err
}

func goBuild() (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "cutroom-bin-")
	if err != nil {
		return "", fmt.Errorf("make a folder for the binary: %w", err)
	}
	build.dir = dir
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "build", "-o", dir, "./cmd/cutroom", "./cmd/sandbox")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build: %w\n%s", err, out)
	}
	return filepath.Join(dir, "cutroom"), nil
}

// moduleRoot returns the folder that contains go.mod. It searches upwards from the working
// directory, which under `go test` is the package's folder.
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
