package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rsc.io/qr"

	"cutroom/internal/config"
	"cutroom/internal/film/media/confine"
	"cutroom/internal/testkit/apitest"
	"cutroom/internal/testkit/logtest"
)

// TestMain also plays the sandbox's own service, which up starts as a child.
func TestMain(m *testing.M) {
	confine.Main()
	if len(os.Args) > 1 && os.Args[1] == "serve" {
		main()
		os.Exit(0)
	}
	os.Exit(apitest.Main(m))
}

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
		{[]string{"--public-host", "http://example.com"}, "", "", "neither a name nor an address"},
		{[]string{"--public-host", "example.com:80"}, "", "", "neither a name nor an address"},
		{[]string{"up", "stray"}, "", "", `unexpected argument "stray"`},
		{[]string{"up", "--port", "0", "--data", t.TempDir(), "--cutroom", "/no/such/binary"}, "", "", "/no/such/binary: no such file"},
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

// What is printed is the code: a reader sees two rows of it in each line.
func TestQRCode(t *testing.T) {
	const text = "http://192.168.178.123:8080"
	drawn, err := qrCode(text)
	if err != nil {
		t.Fatal(err)
	}
	code, err := qr.Encode(text, qr.M)
	if err != nil {
		t.Fatal(err)
	}
	dark := map[rune][2]bool{' ': {true, true}, '▄': {true, false}, '▀': {false, true}, '█': {}}
	for row, line := range strings.Split(strings.TrimSpace(drawn), "\n") {
		line = strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(line), "\x1b[40;97m"), "\x1b[0m")
		for column, r := range []rune(line) {
			for half, got := range dark[r] {
				x, y := column-quiet, 2*row+half-quiet
				if want := code.Black(x, y) || y >= code.Size+quiet; got != want {
					t.Fatalf("column %d, row %d is dark: %v, want %v", x, y, got, want)
				}
			}
		}
	}
}

// A service of the developer's own starts from what is printed.
func TestSettingsForAServiceOfOnesOwn(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	var stdout, stderr logtest.Buffer
	ended := make(chan error, 1)
	go func() {
		ended <- dispatch(ctx, []string{"--stand-ins-only", "--fast", "--public-host", "127.0.0.2", "--port", "0", "--data", t.TempDir()}, &stdout, &stderr)
	}()
	for !strings.Contains(stderr.String(), "Ctrl-C stops") {
		select {
		case err := <-ended:
			t.Fatal(err)
		case <-time.After(5 * time.Millisecond):
		}
	}
	file := filepath.Join(t.TempDir(), "settings")
	if err := os.WriteFile(file, []byte(stdout.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.LoadEnvironment(file)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(cfg.ObjectStore.Endpoint, "http://127.0.0.2:") || !strings.Contains(cfg.Database.URL, "cutroom.db") {
		t.Errorf("object store %q, database %q", cfg.ObjectStore.Endpoint, cfg.Database.URL)
	}
	// A shell understands it as well.
	out, err := exec.CommandContext(t.Context(), "bash", "-c", ". "+file+" && echo $IAP_PLATFORM_A_SERVICE_ACCOUNT_JSON | wc -l && echo $OBJECT_STORE_ENDPOINT").CombinedOutput()
	if err != nil || string(out) != "1\n"+cfg.ObjectStore.Endpoint+"\n" {
		t.Errorf("a shell reads %s, %v", out, err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
