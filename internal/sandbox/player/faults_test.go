package player_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"cutroom/internal/testkit/browsertest"
)

// ids are the parts of a path that differ between two requests of a kind.
var ids = regexp.MustCompile(`(rnd|sep)-[0-9a-f-]{36}|[0-9a-f]{64}\.[0-9a-z]+|(voice|speaker|background)[a-z0-9_]*`)

// Every kind of request fails once, and the film is made.
func TestEveryRequestMayFail(t *testing.T) {
	long(t)
	t.Parallel()
	for name, fail := range map[string]http.HandlerFunc{
		"lost": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"busy": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprint(w, `{"error":"unavailable"}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			service, err := url.Parse(studio(t))
			if err != nil {
				t.Fatal(err)
			}
			forward := httputil.NewSingleHostReverseProxy(service)
			var mu sync.Mutex
			failed := map[string]bool{}
			proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if strings.HasPrefix(r.URL.Path, "/api/") {
					kind := r.Method + " " + ids.ReplaceAllString(strings.TrimPrefix(r.URL.Path, "/api/v2"), "*")
					mu.Lock()
					first := !failed[kind]
					failed[kind] = true
					mu.Unlock()
					if first {
						fail(w, r)
						return
					}
				}
				forward.ServeHTTP(w, r)
			}))
			t.Cleanup(proxy.Close)

			p := browsertest.Open(t)
			p.Go(proxy.URL + "/player/")
			p.Fill("input[type=text]", "Dora Stable")
			insist(p, "form button[type=submit]", `document.body.innerText.includes('3 credits')`)
			insist(p, ".material header .primary", `document.querySelectorAll('.piece').length === 2 && document.body.innerText.includes('Separate for 1 credit')`)
			insist(p, ".player .note button", `document.querySelector('.stage canvas')?.dataset.sources === '0:0'`)
			insist(p, ".ask .primary:not([aria-disabled])", `document.querySelectorAll('.stems canvas').length >= 2`)
			insist(p, ".film .primary:not([aria-disabled])", `document.querySelector('.film video')?.readyState >= 2`)
			insist(p, ".menu summary", `document.body.innerText.includes('Welcome credits')`)
			p.Problems() // the browser reports each request that failed

			mu.Lock()
			defer mu.Unlock()
			got := slices.Sorted(maps.Keys(failed))
			for _, want := range []string{"POST /auth/provider_a", "GET /credits", "POST /assets/upload-url", "POST /assets/analysis",
				"POST /separate/v3", "GET /separate/*", "POST /render/v3", "GET /render/*/status", "GET /render/*/download"} {
				if !failed[want] {
					t.Errorf("%s was not asked; these failed once: %q", want, got)
				}
			}
			t.Logf("failed once: %q", got)
		})
	}
}

// insist waits until a condition holds, and clicks like a patient person: again when there is a button after the page
// has said that something failed.
func insist(p *browsertest.Page, selector, condition string) {
	p.Until(fmt.Sprintf(`(() => {
		if (%s) return true;
		const button = document.querySelector(%q);
		if (button && !button.disabled && Date.now() - (window.clicked ?? 0) > 3000) {
			window.clicked = Date.now();
			button.click();
		}
		return false;
	})()`, condition, selector))
	p.Eval("window.clicked = 0")
}
