package browsertest_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"cutroom/internal/browsertest"
)

// What other tests rest on: the browser's complaints are seen, and so is a
// page's policy, which would forbid the waiting were it done by code of text.
func TestProblemsAreSeen(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/":
			w.Header().Set("Content-Security-Policy", "default-src 'self'")
			fmt.Fprint(w, `<!doctype html><body><img src="/missing.png"><p style="color: red">text</p><script src="/page.js"></script>`)
		case "/page.js":
			w.Header().Set("Content-Type", "text/javascript")
			fmt.Fprint(w, `console.error("wrong", { a: 1 }); console.log("right"); document.body.append("ready"); nowhere();`)
		default:
			http.NotFound(w, r)
		}
	}))
	defer server.Close()
	p := browsertest.Open(t)
	p.Go(server.URL)
	p.See("ready")
	wanted := []string{"/missing.png", "Content Security Policy", "wrong", "nowhere is not defined"}
	var problems string
	unsaid := func(want string) bool { return !strings.Contains(problems, want) }
	// What is not loaded may be told of after the page is there.
	for end := time.Now().Add(20 * time.Second); slices.ContainsFunc(wanted, unsaid) && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		problems += strings.Join(p.Problems(), "\n")
	}
	for _, want := range wanted {
		if unsaid(want) {
			t.Errorf("nothing is said of %q: %s", want, problems)
		}
	}
	if strings.Contains(problems, "right") {
		t.Errorf("a mere message is a problem: %s", problems)
	}
}
