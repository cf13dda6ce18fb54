package app_test

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// allowed lists, for each package, what it imports of this module, and no arrow
// that nobody uses. The reason is the same for every line: knowledge flows
// downwards, so that a package can be read, tested and replaced without those
// above it. What is composition or test support may import anything.
var allowed = map[string][]string{
	"fault":                {},
	"disk":                 {},
	"diskcache":            {"disk", "rescue"},
	"config":               {"upstream/credentials"},
	"clock":                {},
	"rescue":               {},
	"db":                   {"clock", "fault", "tracing"},
	"media":                {"disk", "media/confine", "media/container", "rescue", "tracing"},
	"media/confine":        {},
	"media/container":      {},
	"objectstore":          {"disk", "httpcall", "rescue", "tracing"},
	"staging":              {"disk"},
	"monitor":              {},
	"httpcall":             {},
	"httpcall/calltest":    {},
	"upstream/credentials": {"httpcall"},
	"upstream/identity":    {"httpcall"},
	"upstream/push":        {"httpcall", "upstream/credentials"},
	"upstream/receipt":     {"httpcall", "upstream/credentials"},
	"upstream/separator":   {"fault", "httpcall", "media/container", "tracing"},
	"timeline":             {"fault"},
	"user":                 {"db", "fault"},
	"job":                  {"audit", "cursor", "db", "fault", "idempotency", "objectstore", "quota", "rescue", "tracing", "user"},
	"idempotency":          {"db", "fault"},
	"quota":                {"db", "fault"},
	"ratelimit":            {"db", "fault"},
	"audit":                {"db"},
	"events":               {"clock", "db", "fault", "httpcall", "job", "rescue", "upstream/push", "user"},
	"cursor":               {"db", "fault"},
	"derived":              {"fault", "media", "objectstore", "rescue"},
	"credit":               {"audit", "cursor", "db", "fault", "ratelimit", "tracing", "upstream/receipt", "user"},
	"asset":                {"cursor", "db", "derived", "disk", "diskcache", "fault", "job", "objectstore", "quota", "ratelimit", "user"},
	"analysis":             {"asset", "audio", "derived", "disk", "engine", "fault", "media", "media/container", "objectstore"},
	"installation":         {"audit", "db", "httpcall", "objectstore"},
	"sweep":                {"db", "objectstore"},
	"tracing":              {},
	"admin":                {"credit", "db", "fault", "job", "upstream/separator"},
	"audio":                {},
	"engine":               {"audio", "disk", "fault", "media", "media/container", "rescue", "timeline"},
	"separation":           {"analysis", "asset", "audio", "clock", "credit", "cursor", "db", "derived", "disk", "events", "fault", "httpcall", "idempotency", "job", "media", "media/container", "objectstore", "quota", "rescue", "separation/price", "staging", "sweep", "tracing", "upstream/separator", "user"},
	"separation/price":     {"credit", "fault", "media", "media/container", "staging"},
	"render":               {"asset", "clock", "cursor", "db", "derived", "disk", "diskcache", "engine", "events", "fault", "idempotency", "job", "media", "media/container", "objectstore", "quota", "rescue", "separation", "staging", "sweep", "timeline", "tracing", "user"},
	"account":              {"audit", "clock", "credit", "db", "events", "fault", "job", "upstream/identity", "user"},
	"httpapi":              {"account", "admin", "analysis", "asset", "audio", "credit", "cursor", "db", "disk", "events", "fault", "httpserve", "idempotency", "job", "objectstore", "quota", "ratelimit", "render", "separation", "staging", "timeline", "tracing", "user"},
	"httpserve":            {},
	"simulation":           {}, // tests alone
	"ops":                  {"admin", "clock", "db", "disk", "events", "fault", "httpcall", "job", "media", "objectstore", "staging", "upstream/separator"},
	"sandbox":              {"sandbox"},                    // nothing of the service: a misread wire format must not hide on both sides
	"mediatest":            {"sandbox"},                    // how programs are run
	"dbtest":               {"db", "relaytest", "sandbox"}, // as above
	"relaytest":            {},
	"dbtest/withpg":        {"dbtest"},
}

// free are composition and test support.
var free = []string{"app", "apitest", "benchtest", "browsertest", "jobtest", "logtest"}

func TestArrowsPointOneWay(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports", "cutroom/...")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	used := map[string]map[string]bool{}
	for dec := json.NewDecoder(out); ; {
		var p struct {
			ImportPath string
			Imports    []string
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		pkg, inside := strings.CutPrefix(p.ImportPath, "cutroom/internal/")
		for _, imp := range p.Imports {
			if imp == "cutroom/internal/browsertest" || strings.HasPrefix(imp, "github.com/chromedp/") && pkg != "browsertest" {
				t.Errorf("%s imports %s, which is for tests alone", p.ImportPath, imp)
			}
		}
		if !inside {
			continue
		}
		if strings.HasPrefix(pkg, "sandbox") {
			pkg = "sandbox"
		}
		may, ruled := allowed[pkg]
		if !ruled {
			if !slices.Contains(free, pkg) {
				t.Errorf("%s has no line that says what it may import", pkg)
			}
			continue
		}
		if used[pkg] == nil {
			used[pkg] = map[string]bool{}
		}
		for _, imp := range p.Imports {
			dep, ours := strings.CutPrefix(imp, "cutroom/internal/")
			if strings.HasPrefix(dep, "sandbox") {
				dep = "sandbox"
			}
			used[pkg][dep] = true
			if ours && !slices.Contains(may, dep) {
				t.Errorf("%s imports %s, which it may not know", pkg, dep)
			}
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	for pkg, deps := range allowed {
		if used[pkg] == nil {
			t.Errorf("there is no package %s", pkg)
			continue
		}
		for _, dep := range deps {
			if !used[pkg][dep] {
				t.Errorf("%s may import %s, and does not", pkg, dep)
			}
		}
	}
}

// A service whose clock an operator could move would hand out what never ends.
func TestOnlyTheSandboxMovesTheClock(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "grep", "-rlF", "--include=*.go", "--exclude=*_test.go", "clock.Advance(", "../../cmd", "../../internal").Output()
	if got := strings.TrimSpace(string(out)); err != nil || got != "../../cmd/sandbox/serve.go" {
		t.Errorf("clock.Advance is called in %q, %v", got, err)
	}
}
