package main

import (
	"bytes"
	"errors"
	"flag"
	"strings"
	"testing"
)

func TestDispatch(t *testing.T) {
	for _, tt := range []struct {
		args           []string
		stdout, stderr string // what they contain
		fails          string
	}{
		{[]string{"help"}, "up", "", ""},
		{[]string{"nonsense"}, "", "usage: sandbox", `no command "nonsense"`},
		{[]string{"up", "-h"}, "", "-port", flag.ErrHelp.Error()},
		{[]string{"-h"}, "", "-port", flag.ErrHelp.Error()},
		{[]string{"--bogus"}, "", "bogus", "not defined"},
		{[]string{"up", "stray"}, "", "", `unexpected argument "stray"`},
		{[]string{"up", "--port", "0", "--data", t.TempDir(), "--cutroom", "/no/such/binary"}, "", "", "start /no/such/binary"},
	} {
		var stdout, stderr bytes.Buffer
		err := dispatch(t.Context(), tt.args, &stdout, &stderr)
		if tt.fails == "" && err != nil || tt.fails != "" && (err == nil || !strings.Contains(err.Error(), tt.fails)) {
			t.Errorf("%v: error %v, want %q", tt.args, err, tt.fails)
		}
		if !strings.Contains(stdout.String(), tt.stdout) || !strings.Contains(stderr.String(), tt.stderr) {
			t.Errorf("%v: printed %q and %q", tt.args, stdout.String(), stderr.String())
		}
		if strings.Contains(tt.fails, "help") && !errors.Is(err, flag.ErrHelp) {
			t.Errorf("%v: %v is not flag.ErrHelp", tt.args, err)
		}
	}
}
