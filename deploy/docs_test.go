package deploy

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// operations returns the operators' pages as one text.
func operations(t testing.TB) string {
	return read(t, "../docs/operations.md") + read(t, "../docs/setup.md") + read(t, "../docs/privacy.md")
}

func TestOperationsExplainEveryMetricAndAlert(t *testing.T) {
	text := operations(t)
	for _, name := range metricNames(t) {
		if !strings.Contains(text, "`"+name+"`") {
			t.Errorf("the pages for operators do not explain %s", name)
		}
	}
	for _, a := range alerts(t) {
		if !strings.Contains(text, "\n### "+a.Alert+"\n") {
			t.Errorf("the pages for operators have no section %s", a.Alert)
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^### (Cutroom\w+)$`).FindAllStringSubmatch(text, -1) {
		if !slices.ContainsFunc(alerts(t), func(a alert) bool { return a.Alert == m[1] }) {
			t.Errorf("the pages for operators explain %s, which is no alert", m[1])
		}
	}
}

func TestOperationsNameWhatExists(t *testing.T) {
	text := operations(t)
	for _, m := range regexp.MustCompile("`([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)(?:=[^`]*)?`").FindAllStringSubmatch(text, -1) {
		set, _ := envExample(t)
		_, deployment := set[m[1]]
		if _, ok := key(m[1]); !ok && !deployment && !strings.HasPrefix(m[1], "OTEL_") { // the SDK's own
			t.Errorf("the pages for operators speak of %s, which is no key", m[1])
		}
	}
	usage := read(t, "../cmd/cutroom/main.go")
	for _, m := range regexp.MustCompile(`(?m)(?:^|[ /])cutroom (serve|migrate|doctor|version|admin \w+|[a-z]+)\b`).FindAllStringSubmatch(commands(text), -1) {
		if !strings.Contains(usage, "\n  "+m[1]) {
			t.Errorf("the pages for operators run cutroom %s, which is no command", m[1])
		}
	}
	for _, m := range regexp.MustCompile(`docker compose (?:exec|stop|start|logs|restart|run|kill)(?: --?[\w-]+(?:=\S+)?)* ([a-z][\w-]*)`).FindAllStringSubmatch(commands(text), -1) {
		if _, ok := compose(t).Services[m[1]]; !ok {
			t.Errorf("the pages for operators name service %s, which docker-compose.yml does not have", m[1])
		}
	}
}

// commands are the code blocks of a page.
func commands(text string) string {
	var b strings.Builder
	for _, m := range regexp.MustCompile("(?s)\n```sh\n(.*?)\n```").FindAllStringSubmatch(text, -1) {
		b.WriteString(m[1] + "\n")
	}
	return b.String()
}

// Every file that the pages link to exists, and the architecture names every table.
func TestPagesNameWhatExists(t *testing.T) {
	pages, err := filepath.Glob("../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	forApps, err := filepath.Glob("../docs/app/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range append(append(pages, forApps...), "../README.md", "../CONTRIBUTING.md", "../CHANGELOG.md") {
		for _, m := range regexp.MustCompile(`\]\(([^)#:]*)(?:#([^)]*))?\)`).FindAllStringSubmatch(read(t, page), -1) {
			target := page
			if m[1] != "" {
				target = filepath.Join(filepath.Dir(page), m[1])
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s: %v", page, m[1], err)
			} else if m[2] != "" && !slices.Contains(anchors(read(t, target)), m[2]) {
				t.Errorf("%s links to %s, which has no heading #%s", page, m[1], m[2])
			}
		}
		for _, m := range regexp.MustCompile("`(\\w+)`\\s+in\\s+\\[[^\\]]*\\]\\(([^)]+\\.go)\\)").FindAllStringSubmatch(read(t, page), -1) {
			if !regexp.MustCompile(`\b` + m[1] + `\b`).MatchString(read(t, filepath.Join(filepath.Dir(page), m[2]))) {
				t.Errorf("%s says that %s is in %s", page, m[1], m[2])
			}
		}
	}
	migrations, err := filepath.Glob("../internal/base/db/migrations/*.sql")
	if err != nil || len(migrations) == 0 {
		t.Fatal(err, "no migrations")
	}
	architecture, lives := read(t, "../docs/architecture.md"), operations(t)
	for _, file := range migrations {
		for _, m := range regexp.MustCompile(`(?m)^CREATE TABLE (\w+)`).FindAllStringSubmatch(read(t, file), -1) {
			if name := "`" + m[1] + "`"; !strings.Contains(architecture, name) || !strings.Contains(lives, name) {
				t.Errorf("table %s has no owner in docs/architecture.md or no life in docs/privacy.md", name)
			}
		}
	}
}

// anchors are the names of a page's headings in links.
func anchors(text string) (names []string) {
	for _, m := range regexp.MustCompile("(?m)^#+ (.*)$").FindAllStringSubmatch(text, -1) {
		name := regexp.MustCompile(`[^a-z0-9 _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		names = append(names, strings.ReplaceAll(name, " ", "-"))
	}
	return names
}

// TestSecurityNamesTestsThatExist holds docs/security.md to the tests that it gives as evidence.
func TestSecurityNamesTestsThatExist(t *testing.T) {
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	exist := map[string]bool{}
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, m := range declared.FindAllSubmatch(source, -1) {
			exist[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`((?:Test|Fuzz)\\w+)`").FindAllStringSubmatch(read(t, "../docs/security.md"), -1)
	if len(named) < 50 {
		t.Errorf("docs/security.md names %d tests", len(named))
	}
	for _, m := range named {
		if !exist[m[1]] {
			t.Errorf("docs/security.md names %s, which is no test", m[1])
		}
	}
}
