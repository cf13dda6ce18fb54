package sandbox_test

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"cutroom/internal/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestWorldStartsWhatItsEnvironmentNames(t *testing.T) {
	dir := t.TempDir()
	w, err := sandbox.Start(sandbox.Options{DataDir: dir, Bucket: true, Fast: true})
	if err != nil {
		t.Fatal(err)
	}
	env := w.Env()
	for key, value := range env {
		if strings.TrimSpace(value) == "" {
			t.Errorf("%s is blank", key)
		}
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	taken, _ := strconv.Atoi(strings.TrimPrefix(w.PlatformA.Addr(), "127.0.0.1:"))
	if _, err := sandbox.Start(sandbox.Options{DataDir: t.TempDir(), Fast: true, Port: taken}); err == nil ||
		!strings.Contains(err.Error(), fmt.Sprintf("provider_a: port %d is taken, choose others with --port", taken)) {
		t.Errorf("started on a taken port: %v", err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for name, address := range w.Servers() {
		if res, err := client.Get(address + "/__control/calls"); err == nil {
			_ = res.Body.Close()
			t.Errorf("%s answers after Close", name)
		}
	}

	again, err := sandbox.Start(sandbox.Options{DataDir: dir, Fast: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = again.Close() }()
	second := again.Env()
	if second["AUTH_JWT_SECRET"] != env["AUTH_JWT_SECRET"] || second["SEPARATION_SIGNING_SECRET"] != env["SEPARATION_SIGNING_SECRET"] {
		t.Error("secrets changed with a restart")
	}
	if bucket, set := second["OBJECT_STORE_BUCKET"]; set {
		t.Errorf("the bucket %q is set without one", bucket)
	}
	info, err := os.Stat(filepath.Join(dir, "secrets.json"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("secrets file: %v, %v", info, err)
	}
}

func TestNothingOfTheServiceIsImported(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, dep := range strings.Fields(string(out)) {
		if strings.HasPrefix(dep, "cutroom/") && !strings.HasPrefix(dep, "cutroom/internal/sandbox") {
			t.Errorf("imports %s", dep)
		}
	}
}
