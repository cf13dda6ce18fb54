package deploy

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// instructions are the lines of the Dockerfile, continued lines joined.
func instructions(t testing.TB) []string {
	t.Helper()
	var out []string
	open := false
	for line := range strings.Lines(read(t, "Dockerfile")) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		text, more := strings.CutSuffix(line, "\\")
		if open {
			out[len(out)-1] += text
		} else {
			out = append(out, text)
		}
		open = more
	}
	return out
}

// last is the last instruction of a kind, which is the one that counts.
func last(t testing.TB, kind string) string {
	t.Helper()
	found := ""
	for _, in := range instructions(t) {
		if rest, ok := strings.CutPrefix(in, kind+" "); ok {
			found = rest
		}
	}
	if found == "" {
		t.Fatalf("the Dockerfile has no %s", kind)
	}
	return found
}

func TestImageIsBuiltWithAGoThatIsNewEnough(t *testing.T) {
	need := strings.Split(one(t, "../go.mod", `(?m)^go (\d+\.\d+)`), ".")
	have := strings.Split(one(t, "Dockerfile", `(?m)^FROM golang:(\d+\.\d+)`), ".")
	for i := range 2 {
		n, err1 := strconv.Atoi(need[i])
		h, err2 := strconv.Atoi(have[i])
		if err1 != nil || err2 != nil || h < n {
			t.Fatalf("golang:%s builds, go.mod wants %s", strings.Join(have, "."), strings.Join(need, "."))
		}
		if h > n {
			return
		}
	}
}

func TestImageRunsTheServiceSafely(t *testing.T) {
	if user := last(t, "USER"); !regexp.MustCompile(`^[1-9]\d*:[1-9]\d*$`).MatchString(user) {
		t.Errorf("USER %s: want numbers other than 0, which orchestrators can check", user)
	}
	// The exec form: a shell in between would swallow SIGTERM.
	for kind, want := range map[string]string{"ENTRYPOINT": `["/usr/local/bin/cutroom"]`, "CMD": `["serve"]`, "STOPSIGNAL": "SIGTERM"} {
		if got := last(t, kind); got != want {
			t.Errorf("%s %s, want %s", kind, got, want)
		}
	}
	if h := last(t, "HEALTHCHECK"); !strings.Contains(h, `CMD ["/usr/local/bin/cutroom-healthcheck"]`) {
		t.Errorf("HEALTHCHECK %s", h)
	}
	env := map[string]string{}
	for _, pair := range strings.Fields(last(t, "ENV")) {
		k, v, _ := strings.Cut(pair, "=")
		if _, ok := key(k); !ok {
			t.Errorf("ENV %s is not a key of the service", k)
		}
		env[k] = v
	}
	if last(t, "EXPOSE") != env["PORT"] {
		t.Errorf("EXPOSE %s, PORT is %s", last(t, "EXPOSE"), env["PORT"])
	}
	if last(t, "VOLUME") != env["STORAGE_PATH"] || !strings.Contains(read(t, "Dockerfile"), "install -d -o cutroom -g cutroom -m 0700 "+env["STORAGE_PATH"]) {
		t.Errorf("VOLUME %s, STORAGE_PATH is %s", last(t, "VOLUME"), env["STORAGE_PATH"])
	}
	for name, s := range compose(t).replicas() {
		for _, k := range []string{"PORT", "STORAGE_PATH"} {
			if s.Environment[k] != env[k] {
				t.Errorf("%s has %s %s, the image %s", name, k, s.Environment[k], env[k])
			}
		}
	}
	for _, word := range []string{"ffmpeg", "ca-certificates"} {
		if !strings.Contains(read(t, "Dockerfile"), " "+word) {
			t.Errorf("the image lacks %s", word)
		}
	}
}

func TestWhatTheImageCopiesIsThereAndSent(t *testing.T) {
	sent := map[string]bool{}
	for line := range strings.Lines(read(t, "Dockerfile.dockerignore")) {
		if p, ok := strings.CutPrefix(strings.TrimSpace(line), "!"); ok {
			sent[p] = true
		}
	}
	copied := 0
	for _, in := range instructions(t) {
		rest, ok := strings.CutPrefix(in, "COPY ")
		if !ok || strings.Contains(rest, "--from=") {
			continue
		}
		words := strings.Fields(rest)
		for _, w := range words[:len(words)-1] {
			if strings.HasPrefix(w, "--") {
				continue
			}
			copied++
			if _, err := os.Stat(path.Join("..", w)); err != nil {
				t.Error(err)
			}
			if !sent[w] {
				t.Errorf("Dockerfile.dockerignore keeps %s from the builder", w)
			}
		}
	}
	if copied < 4 {
		t.Errorf("the Dockerfile copies %d things", copied)
	}
	for _, name := range []string{"release", "commit"} {
		if !strings.Contains(read(t, "Dockerfile"), "-X main."+name+"=") || !strings.Contains(read(t, "../cmd/cutroom/version.go"), "var "+name+" =") {
			t.Errorf("main.%s is not what the linker sets", name)
		}
	}
}

func TestHealthcheckTellsHealthyFromNot(t *testing.T) {
	status := http.StatusOK
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/healthz" {
			t.Errorf("asked for %s", r.URL.Path)
		}
		w.WriteHeader(status)
	}))
	defer srv.Close()
	u, err := url.Parse(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	run := func() error {
		cmd := exec.CommandContext(t.Context(), "bash", "healthcheck.sh")
		cmd.Env = append(os.Environ(), "PORT="+u.Port())
		return cmd.Run()
	}
	if err := run(); err != nil {
		t.Errorf("healthy: %v", err)
	}
	status = http.StatusServiceUnavailable
	if run() == nil {
		t.Error("503 counts as healthy")
	}
	srv.Close()
	if run() == nil {
		t.Error("nobody there counts as healthy")
	}
}
