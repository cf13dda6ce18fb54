// Compares docs/app with openapi.yaml: every path, every error code with its status, and every default.

package deploy

import (
	"cmp"
	"encoding/json"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
)

const openAPI = "../internal/api/httpapi/openapi.yaml"

// apiDocument is openapi.yaml.
func apiDocument(t *testing.T) *openapi3.T {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromFile(openAPI)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// appPages returns the pages for app developers as one text.
func appPages(t *testing.T) string {
	t.Helper()
	pages, err := filepath.Glob("../docs/app/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatal(err, "no pages in docs/app")
	}
	var all strings.Builder
	for _, page := range pages {
		all.WriteString(read(t, page) + "\n")
	}
	return all.String()
}

var (
	code = regexp.MustCompile(`^[a-z0-9_]+$`)
	// hole is a variable part of a path.
	hole = regexp.MustCompile(`\$\{?\w+\}?|\{\w+\}`)
)

// errorCodes collects the codes that a part of the document states as values of "error", in schemas and in examples.
func errorCodes(part any, codes map[string]bool) {
	switch part := part.(type) {
	case []any:
		for _, p := range part {
			errorCodes(p, codes)
		}
	case map[string]any:
		for name, p := range part {
			if name == "error" {
				values := []any{p}
				if schema, ok := p.(map[string]any); ok {
					enum, _ := schema["enum"].([]any)
					values = append(enum, schema["const"])
				}
				for _, v := range values {
					if s, ok := v.(string); ok && code.MatchString(s) {
						codes[s] = true
					}
				}
			}
			errorCodes(p, codes)
		}
	}
}

// statusesOf returns the statuses of the answers with each code.
func statusesOf(t *testing.T, doc *openapi3.T) map[string][]string {
	t.Helper()
	statuses := map[string][]string{}
	for _, item := range doc.Paths.Map() {
		for _, operation := range item.Operations() {
			for status, response := range operation.Responses.Map() {
				var parts any
				text, err := json.Marshal(response.Value)
				if err = cmp.Or(err, json.Unmarshal(text, &parts)); err != nil {
					t.Fatal(err)
				}
				codes := map[string]bool{}
				errorCodes(parts, codes)
				for c := range codes {
					if !slices.Contains(statuses[c], status) {
						statuses[c] = append(statuses[c], status)
					}
				}
			}
		}
	}
	return statuses
}

// Every code that a client may see has a row in a table of docs/app, with its status, and no other code has one.
func TestAppPagesExplainEveryErrorCode(t *testing.T) {
	doc := apiDocument(t)
	known, job := statusesOf(t, doc), doc.Components.Schemas["JobErrorCode"].Value.Enum
	if len(known) < 30 || len(job) < 10 {
		t.Fatalf("openapi.yaml has %d error codes and %d of jobs", len(known), len(job))
	}
	for _, c := range job {
		if s, ok := c.(string); ok {
			known[s] = append(known[s], "render", "separation", "both")
		}
	}
	explained := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| (`\\w+`(?:, `\\w+`)*) \\| (\\w+) \\|").FindAllStringSubmatch(read(t, "../docs/app/errors.md"), -1) {
		for c := range strings.SplitSeq(strings.ReplaceAll(row[1], "`", ""), ", ") {
			explained[c] = true
			if !slices.Contains(known[c], row[2]) {
				t.Errorf("docs/app/errors.md has %s with %s, openapi.yaml with %v", c, row[2], known[c])
			}
		}
	}
	for c := range known {
		if !explained[c] {
			t.Errorf("docs/app/errors.md has no row for %s", c)
		}
	}
}

// Every path that is an app's business is on a page.
func TestAppPagesNameEveryPath(t *testing.T) {
	paths := apiDocument(t).Paths.Map()
	pages := appPages(t)
	blank := hole.ReplaceAllString(pages, "{}")
	for path := range paths {
		if regexp.MustCompile(`^(/api/v2/(admin|testdata)/|/swagger)`).MatchString(path) {
			continue
		}
		short := hole.ReplaceAllString(strings.TrimPrefix(path, "/api/v2"), "{}")
		if !regexp.MustCompile(regexp.QuoteMeta(short) + `(?:[^\w/{]|$)`).MatchString(blank) {
			t.Errorf("docs/app says nothing of %s", path)
		}
	}
}

// A limit that is a setting is given with its default.
func TestAppPagesGiveDefaults(t *testing.T) {
	rows := regexp.MustCompile("(?m)^\\|.*\\| `([A-Z][A-Z0-9_]+)`.*\\|$").FindAllStringSubmatch(read(t, "../docs/app/limits.md"), -1)
	if len(rows) < 15 {
		t.Errorf("docs/app/limits.md has %d settings", len(rows))
	}
	for _, row := range rows {
		k, ok := key(row[1])
		if !ok {
			t.Errorf("docs/app/limits.md speaks of %s, which is no key", row[1])
		} else if !regexp.MustCompile(`(?:^|[ (])` + regexp.QuoteMeta(k.Default) + `(?:[ );]|$)`).MatchString(row[0]) {
			t.Errorf("docs/app/limits.md does not say that %s is %s by default", k.Name, k.Default)
		}
	}
}
