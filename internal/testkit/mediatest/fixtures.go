package mediatest

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// fixturesEnv names a folder that keeps the files that ffmpeg makes for tests, under a hash of its program, its
// arguments and its inputs. Without it, every test makes its own.
const fixturesEnv = "CUTROOM_TEST_FIXTURES"

// recall copies the files that an earlier run of ffmpeg wrote. If there was no such run, it calls run and keeps the
// files that run wrote.
func recall(t testing.TB, args []string, run func()) {
	t.Helper()
	kept, outputs := identify(t, args)
	if len(outputs) == 0 {
		run()
		return
	}
	if _, err := os.Stat(kept); err == nil {
		for i, path := range outputs {
			copyFile(t, filepath.Join(kept, strconv.Itoa(i)), path)
		}
		return
	}
	run()
	draft, err := os.MkdirTemp(filepath.Dir(kept), "draft-")
	if err != nil {
		t.Fatal(err)
	}
	for i, path := range outputs {
		copyFile(t, path, filepath.Join(draft, strconv.Itoa(i)))
	}
	if os.Rename(draft, kept) != nil { // another test was faster
		_ = os.RemoveAll(draft)
	}
}

// identify returns the folder for a run of ffmpeg, and the files that it writes: every absolute path that is not an
// input. It returns no files if nothing is to be kept, or if the run also reads or writes other files or writes to
// standard output.
func identify(t testing.TB, args []string) (kept string, outputs []string) {
	t.Helper()
	folder := os.Getenv(fixturesEnv)
	if folder == "" {
		return "", nil
	}
	program, err := exec.LookPath("ffmpeg")
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(program)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.New()
	fmt.Fprintln(sum, program, info.Size(), info.ModTime().UnixNano())
	for i, arg := range args {
		path := strings.TrimPrefix(arg, "file:")
		switch {
		case i > 0 && args[i-1] == "-i" && filepath.IsAbs(path):
			fmt.Fprintf(sum, "input %x\n", sha256.Sum256(content(t, path)))
		case filepath.IsAbs(path):
			fmt.Fprintf(sum, "output %s\n", filepath.Ext(path))
			outputs = append(outputs, path)
		case arg == "-" || strings.HasPrefix(arg, "pipe:") || strings.Contains(arg, os.TempDir()):
			return "", nil
		default:
			fmt.Fprintf(sum, "%q\n", arg)
		}
	}
	return filepath.Join(folder, fmt.Sprintf("%x", sum.Sum(nil))), outputs
}

func content(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func copyFile(t testing.TB, from, to string) {
	t.Helper()
	if err := os.WriteFile(to, content(t, from), 0o600); err != nil {
		t.Fatal(err)
	}
}
