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

// floors lists, for each folder of internal/, the other folders that its packages may import. Knowledge flows
// downwards, so a package can be read, tested and replaced without those above it. The compiler refuses circles within
// a folder.
var floors = map[string][]string{
	"app":      {"api", "base", "config", "domain", "film", "ops", "storage", "upstream", "work"},
	"ops":      {"base", "domain", "film", "storage", "upstream", "work"},
	"config":   {"upstream"},
	"api":      {"base", "domain", "film", "storage", "work"},
	"domain":   {"base", "film", "storage", "upstream", "work"},
	"work":     {"base", "film", "storage", "upstream"},
	"upstream": {"base", "film"}, // of film, container: it names what a separation brings
	"film":     {"base", "storage"},
	"storage":  {"base"},
	"base":     {},
	"sandbox":  {}, // nothing of the service: otherwise a misread wire format could hide on both sides
}

// testkit may import anything, and only tests and benchmarks import it.
const testkit = "testkit"

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
		floor := floorOf(p.ImportPath)
		for _, imp := range p.Imports {
			below := floorOf(imp)
			forTests := below == testkit || strings.HasPrefix(imp, "github.com/chromedp/")
			if forTests && floor != testkit && !strings.HasPrefix(p.ImportPath, "cutroom/test") {
				t.Errorf("%s imports %s, which is for tests alone", p.ImportPath, imp)
			}
			if floor == "" || floor == testkit || below == "" || below == floor {
				continue
			}
			if used[floor] == nil {
				used[floor] = map[string]bool{}
			}
			used[floor][below] = true
			if !slices.Contains(floors[floor], below) {
				t.Errorf("%s imports %s, which %s may not know", p.ImportPath, imp, floor)
			}
		}
		if _, ruled := floors[floor]; floor != "" && floor != testkit && !ruled {
			t.Errorf("no line says what the packages of internal/%s may import", floor)
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	for floor, below := range floors {
		for _, f := range below {
			if !used[floor][f] {
				t.Errorf("the packages of %s may import those of %s, and do not", floor, f)
			}
		}
	}
}

// floorOf returns the folder of internal/ that holds a package, or "" for a package from elsewhere.
func floorOf(path string) string {
	inside, ours := strings.CutPrefix(path, "cutroom/internal/")
	if !ours {
		return ""
	}
	floor, _, _ := strings.Cut(inside, "/")
	return floor
}

// A service whose clock an operator could move would hand out what never ends.
func TestOnlyTheSandboxMovesTheClock(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "grep", "-rlF", "--include=*.go", "--exclude=*_test.go", "clock.Advance(", "../../cmd", "../../internal").Output()
	if got := strings.TrimSpace(string(out)); err != nil || got != "../../cmd/sandbox/serve.go" {
		t.Errorf("clock.Advance is called in %q, %v", got, err)
	}
}
