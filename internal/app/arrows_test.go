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

// allowed lists, for each package, what it may import of this module. The
// reason is the same for every line: knowledge flows downwards, so that a package
// can be read, tested and replaced without those above it.
var allowed = map[string][]string{
	"fault":              {},
	"disk":               {},
	"diskcache":          {"disk"},
	"config":             {},
	"db":                 {},
	"media":              {"media/confine", "media/container"},
	"media/confine":      {},
	"media/container":    {},
	"objectstore":        {"disk", "httpcall"},
	"staging":            {"disk", "fault"},
	"monitor":            {},
	"httpcall":           {},
	"upstream/identity":  {"httpcall"},
	"upstream/receipt":   {"httpcall"},
	"upstream/separator": {"httpcall"},
	"timeline":           {"fault"},
	"job":                {"db"},
	"idempotency":        {"db", "fault"},
	"ratelimit":          {"db", "fault"},
	"audit":              {"db"},
	"cursor":             {"fault"},
	"credit":             {"audit", "cursor", "db", "fault", "ratelimit", "upstream/receipt"},
	"asset":              {"disk", "diskcache", "fault", "objectstore"},
	"installation":       {"audit", "db", "httpcall", "objectstore"},
	"sweep":              {"db", "objectstore"},
	"admin":              {"db", "fault"},
	"admin/page":         {},
	"audio":              {},
	"engine":             {"audio", "disk", "fault", "media", "media/container", "timeline"},
	"separation":         {"credit", "db", "disk", "fault", "httpcall", "idempotency", "job", "media", "media/container", "objectstore", "staging", "sweep", "upstream/separator"},
	"render":             {"asset", "db", "disk", "diskcache", "engine", "fault", "idempotency", "job", "media", "media/container", "objectstore", "separation", "staging", "sweep", "timeline"},
	"account":            {"audit", "credit", "db", "fault", "render", "separation", "upstream/identity"},
	"httpapi":            {"account", "admin", "admin/page", "asset", "credit", "cursor", "db", "fault", "idempotency", "job", "objectstore", "ratelimit", "render", "separation", "staging", "timeline"},
	"sandbox":            {"sandbox"}, // nothing of the service: a misread wire format must not hide on both sides
	"mediatest":          {},
	"dbtest":             {"db"},
	"dbtest/withpg":      {"dbtest"},
}

func TestArrowsPointOneWay(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports", "cutroom/...")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	seen := 0
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
		room, inside := strings.CutPrefix(p.ImportPath, "cutroom/internal/")
		if !inside {
			continue
		}
		if strings.HasPrefix(room, "sandbox") {
			room = "sandbox"
		}
		may, ruled := allowed[room]
		if !ruled {
			continue // composition and test support may import anything
		}
		seen++
		for _, imp := range p.Imports {
			dep, ours := strings.CutPrefix(imp, "cutroom/internal/")
			if strings.HasPrefix(dep, "sandbox") {
				dep = "sandbox"
			}
			if ours && !slices.Contains(may, dep) {
				t.Errorf("%s imports %s, which it may not know", room, dep)
			}
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if seen < 15 {
		t.Errorf("only %d packages were looked at", seen)
	}
}
