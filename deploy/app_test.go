package deploy

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

const openAPI = "../internal/httpapi/openapi.yaml"

// node is a mapping of the OpenAPI document.
type node = map[string]any

// apiDocument is openapi.yaml as it stands, references not resolved.
func apiDocument(t *testing.T) node {
	t.Helper()
	var doc node
	if err := yaml.Unmarshal([]byte(read(t, openAPI)), &doc); err != nil {
		t.Fatal(err)
	}
	return doc
}

// appPages are the pages for those who write the app, one after the other.
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
	// hole is a part of a path that differs from call to call.
	hole = regexp.MustCompile(`\$\{?\w+\}?|\{\w+\}`)
)

// errorCodes collects the codes that a part of the document gives as values of
// "error", in schemas and in examples.
func errorCodes(part any, codes map[string]bool) {
	switch part := part.(type) {
	case []any:
		for _, p := range part {
			errorCodes(p, codes)
		}
	case node:
		for name, p := range part {
			if name == "error" {
				values := []any{p}
				if schema, ok := p.(node); ok {
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

// statusesOf finds the statuses with which each code is answered.
func statusesOf(doc node) map[string][]string {
	statuses := map[string][]string{}
	shared := doc["components"].(node)["responses"].(node)
	for _, item := range doc["paths"].(node) {
		for _, operation := range item.(node) {
			op, _ := operation.(node) // parameters of all methods are a list
			responses, _ := op["responses"].(node)
			for status, response := range responses {
				if ref, ok := response.(node)["$ref"].(string); ok {
					response = shared[ref[strings.LastIndex(ref, "/")+1:]]
				}
				codes := map[string]bool{}
				errorCodes(response, codes)
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

// Every code that a client may meet has its row in a table of docs/app, with its
// status, and no row is of anything else.
func TestAppPagesExplainEveryErrorCode(t *testing.T) {
	doc := apiDocument(t)
	known := statusesOf(doc)
	job, _ := doc["components"].(node)["schemas"].(node)["JobErrorCode"].(node)["enum"].([]any)
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

// Every path that is an app's business is on a page, and every curl of a page
// calls a method of a path that exists.
func TestAppPagesNameEveryPath(t *testing.T) {
	paths := apiDocument(t)["paths"].(node)
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
	calls := 0
	for call := range strings.SplitSeq(commands(pages), "curl ") {
		address := regexp.MustCompile(`\$BASE(/[^\s"'?]*)`).FindStringSubmatch(call)
		if address == nil {
			continue // to the object store, or to a stand-in
		}
		calls++
		verb := "get"
		if m := regexp.MustCompile(`-X (\w+)`).FindStringSubmatch(call); m != nil {
			verb = strings.ToLower(m[1])
		} else if regexp.MustCompile(` -[dF] `).MatchString(call) {
			verb = "post"
		}
		found := false
		for path, item := range paths {
			_, has := item.(node)[verb]
			found = found || has && hole.ReplaceAllString(path, "{}") == hole.ReplaceAllString(address[1], "{}")
		}
		if !found {
			t.Errorf("docs/app calls %s %s, which is not in openapi.yaml", strings.ToUpper(verb), address[1])
		}
	}
	if calls < 15 {
		t.Errorf("docs/app has %d calls in curl", calls)
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
