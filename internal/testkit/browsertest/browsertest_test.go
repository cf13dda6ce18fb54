package browsertest_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"cutroom/internal/testkit/browsertest"
)

func TestMain(m *testing.M) {
	status := m.Run()
	browsertest.Close()
	os.Exit(status)
}

// Pages report the browser's errors and warnings, and work under a policy that forbids eval.
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
	missing := func(want string) bool { return !strings.Contains(problems, want) }
	// The browser may report a missing file after the page is ready.
	for end := time.Now().Add(20 * time.Second); slices.ContainsFunc(wanted, missing) && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		problems += strings.Join(p.Problems(), "\n")
	}
	for _, want := range wanted {
		if missing(want) {
			t.Errorf("%q is not reported: %s", want, problems)
		}
	}
	if strings.Contains(problems, "right") {
		t.Errorf("an ordinary message is a problem: %s", problems)
	}
}
