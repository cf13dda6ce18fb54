package deploy

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestSecurityNamesTestsThatExist holds docs/security.md to the tests that it
// gives as evidence.
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

// TestFrontKeepsSecretsAndShares: signed links are in queries, which no log may
// hold; nginx writes whole request lines at every level below crit.
func TestFrontKeepsSecretsAndShares(t *testing.T) {
	d := directives(t, "nginx/nginx.conf")
	if got := values(d, "error_log"); len(got) != 1 || !strings.HasSuffix(got[0], " crit") {
		t.Errorf("error_log is %v", got)
	}
	for _, format := range values(d, "log_format") {
		if m := regexp.MustCompile(`\$(request|request_uri|args|query_string|http_referer|http_authorization)\b`).FindString(format); m != "" {
			t.Errorf("the log holds %s", m)
		}
	}
	if got := values(d, "limit_conn"); len(got) != 1 {
		t.Errorf("limit_conn is %v", got)
	}
	if got := strings.Join(values(d, "add_header"), "\n"); !strings.Contains(got, "Strict-Transport-Security") {
		t.Errorf("headers are %q", got)
	}
}
