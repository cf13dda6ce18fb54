package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Each case is a package whose test counts its earlier runs.
func TestRerun(t *testing.T) {
	for name, c := range map[string]struct {
		body   string // runs with n, the number of earlier runs
		on     bool   // RERUN_FAILED
		status int
		flaky  string // in the log
	}{
		"passes":                      {body: ``, on: true},
		"fails once":                  {body: `if n == 0 { t.Error("bad luck") }`, on: true, flaky: "FLAKY: example TestSometimes failed once"},
		"fails once, reruns are off":  {body: `if n == 0 { t.Error("bad luck") }`, status: 1},
		"fails always":                {body: `t.Error("a fault")`, on: true, status: 1},
		"fails the second rerun":      {body: `if n != 1 { t.Error("a rare fault") }`, on: true, status: 1},
		"panics once":                 {body: `if n == 0 { panic("bad luck") }`, on: true, flaky: "FLAKY: example failed once"},
		"does not build":              {body: `undefined()`, on: true, status: 1},
		"fails in a subtest once":     {body: `t.Run("x", func(t *testing.T) { if n == 0 { t.Error("bad luck") } })`, on: true, flaky: "example TestSometimes"},
		"fails too many tests to try": {body: `if n == 0 { t.Error("bad luck") } }` + manyTests, on: true, status: 1},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, filepath.Join(dir, "go.mod"), "module example\n\ngo 1.26\n")
			write(t, filepath.Join(dir, "x_test.go"), strings.Replace(source, "BODY", c.body, 1))
			t.Chdir(dir)
			log := filepath.Join(dir, "flaky.log")
			t.Setenv("FLAKY_LOG", log)
			t.Setenv("RERUN_FAILED", map[bool]string{true: "1"}[c.on])

			var out strings.Builder
			if got := run([]string{"-vet=off", "-timeout", "1m", "./..."}, &out); got != c.status {
				t.Errorf("status %d, want %d:\n%s", got, c.status, out.String())
			}
			told, _ := os.ReadFile(log) // absent if nothing was flaky
			if !strings.Contains(string(told), c.flaky) || c.flaky == "" && len(told) > 0 {
				t.Errorf("the log contains %q, want %q:\n%s", told, c.flaky, out.String())
			}
		})
	}
}

const manyTests = `
func TestA(t *testing.T) { TestSometimes(t) }
func TestB(t *testing.T) { TestSometimes(t) }
func TestC(t *testing.T) { t.Fail() }
func TestD(t *testing.T) { t.Fail() }
func TestE(t *testing.T) { t.Fail() }
func TestF(t *testing.T) { t.Fail() }
func TestG(t *testing.T) { t.Fail() }
func TestH(t *testing.T) { t.Fail()`

const source = `package example

import (
	"os"
	"testing"
)

func TestAlways(t *testing.T) {}

func TestSometimes(t *testing.T) {
	seen, _ := os.ReadFile("runs")
	if err := os.WriteFile("runs", append(seen, '.'), 0o600); err != nil {
		t.Fatal(err)
	}
	n := len(seen)
	_ = n
	BODY
}
`

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
