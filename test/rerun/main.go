// Command rerun runs `go test` with the given arguments and, if RERUN_FAILED is
// set, reruns what failed twice. A test that passes both times does not fail
// the run: it is reported as FLAKY, on standard output and in the file that
// FLAKY_LOG names. A test that fails either rerun fails the run.
//
//	RERUN_FAILED=1 go run ./test/rerun -count=1 -timeout 30m ./internal/...
//
// Each rerun covers the failed top-level tests of a package. If the package
// failed without naming one (a panic, a time-out, a leak found by TestMain),
// the rerun covers the whole package. A package that does not build is not rerun. If more than
// maxFailures tests failed, nothing is rerun, because so many failures are not flaky tests.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
)

const (
	reruns      = 2
	maxFailures = 6
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdout))
}

// run returns the exit status: 0 if every test passed, in the first run or in both reruns.
func run(args []string, out io.Writer) int {
	first, err := goTest(args, out)
	if err == nil {
		return 0
	}
	failed := first.failures()
	if os.Getenv("RERUN_FAILED") == "" || first.broken || len(failed) == 0 || len(failed) > maxFailures {
		return 1
	}
	flags := flagsOf(args)
	status := 0
	for _, f := range failed {
		if !f.passesAgain(flags, out) {
			status = 1
			continue
		}
		if err := report(f, out); err != nil {
			fmt.Fprintln(os.Stderr, "rerun:", err)
			status = 1
		}
	}
	return status
}

// failure is one failed test, or a whole package if test is empty.
type failure struct{ pkg, test string }

func (f failure) String() string {
	if f.test == "" {
		return f.pkg
	}
	return f.pkg + " " + f.test
}

// passesAgain reports whether every rerun of f passes.
func (f failure) passesAgain(flags []string, out io.Writer) bool {
	args := slices.Concat([]string{"-count=1"}, flags)
	if f.test != "" {
		args = append(args, "-run", "^"+regexp.QuoteMeta(f.test)+"$")
	}
	args = append(args, f.pkg)
	for i := range reruns {
		fmt.Fprintf(out, "== rerun %d of %d: %s ==\n", i+1, reruns, f)
		if _, err := goTest(args, out); err != nil {
			return false
		}
	}
	return true
}

func report(f failure, out io.Writer) error {
	line := fmt.Sprintf("FLAKY: %s failed once and passed %d reruns\n", f, reruns)
	fmt.Fprint(out, line)
	path := os.Getenv("FLAKY_LOG")
	if path == "" {
		return nil
	}
	log, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	if _, err := io.WriteString(log, line); err != nil {
		return err
	}
	return log.Close()
}

// flagsOf returns the arguments of `go test` that are not packages and do not
// choose tests. -run and -p take a value; every other flag carries its own
// after "=", except -timeout.
func flagsOf(args []string) []string {
	var flags []string
	for i := 0; i < len(args); i++ {
		switch arg := args[i]; {
		case arg == "-run" || arg == "-p":
			i++
		case arg == "-timeout":
			flags = append(flags, arg, args[i+1])
			i++
		case strings.HasPrefix(arg, "-") && !strings.HasPrefix(arg, "-run="):
			flags = append(flags, arg)
		}
	}
	return flags
}

// result is the result of one `go test`.
type result struct {
	packages map[string]bool // every package that ran, true if it failed
	tests    []failure       // failed top-level tests, in the order in which they ended
	ended    map[string]bool // packages that ran all their tests: a panic or a time-out stops the rest
	broken   bool            // a package did not build, or go test itself failed
}

// failures returns the tests and packages to rerun.
func (r result) failures() []failure {
	var list []failure
	for pkg, failed := range r.packages {
		if failed && r.cutShort(pkg) {
			list = append(list, failure{pkg: pkg})
		}
	}
	for _, t := range r.tests {
		if !r.cutShort(t.pkg) {
			list = append(list, t)
		}
	}
	slices.SortFunc(list, func(a, b failure) int { return strings.Compare(a.String(), b.String()) })
	return list
}

// cutShort reports whether tests of pkg may not have run, or the package failed
// although none of its tests did.
func (r result) cutShort(pkg string) bool {
	named := slices.ContainsFunc(r.tests, func(t failure) bool { return t.pkg == pkg })
	return !named || !r.ended[pkg]
}

// event is a line of `go test -json`.
type event struct {
	Action, Package, Test, Output, FailedBuild string
}

// goTest runs `go test -json` and prints the output of a plain `go test`.
func goTest(args []string, out io.Writer) (result, error) {
	cmd := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	cmd.Stderr = os.Stderr
	r := result{packages: map[string]bool{}, ended: map[string]bool{}}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return r, err
	}
	if err := cmd.Start(); err != nil {
		return r, err
	}
	output := map[failure]*strings.Builder{}
	lines := bufio.NewReader(stdout)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			r.note(line, output, out)
		}
		if err != nil {
			break
		}
	}
	err = cmd.Wait()
	if err != nil && len(r.failures()) == 0 {
		r.broken = true
	}
	return r, err
}

// note records one line. The output of a test is printed if the test fails.
func (r *result) note(line []byte, output map[failure]*strings.Builder, out io.Writer) {
	var e event
	if json.Unmarshal(line, &e) != nil {
		_, _ = out.Write(line) // go test prints plain text if it cannot load a package
		return
	}
	at := failure{e.Package, e.Test}
	top := e.Test != "" && !strings.Contains(e.Test, "/")
	switch e.Action {
	case "build-output":
		fmt.Fprint(out, e.Output)
	case "output":
		if e.Test == "" {
			r.ended[e.Package] = r.ended[e.Package] || e.Output == "FAIL\n"
			if e.Output != "PASS\n" {
				fmt.Fprint(out, e.Output)
			}
			return
		}
		if output[at] == nil {
			output[at] = &strings.Builder{}
		}
		output[at].WriteString(e.Output)
	case "pass", "skip":
		delete(output, at)
		if e.Test == "" {
			r.packages[e.Package] = false
		}
	case "fail":
		r.broken = r.broken || e.FailedBuild != ""
		if text := output[at]; text != nil {
			fmt.Fprint(out, text.String())
			delete(output, at)
		}
		switch {
		case top:
			r.tests = append(r.tests, at)
		case e.Test == "":
			r.packages[e.Package] = true
		}
	}
}
