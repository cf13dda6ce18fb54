// The host of a stand-in: each kind of fault, its order, and the control API.

package fake_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"cutroom/internal/sandbox/fake"
	"cutroom/internal/sandbox/process"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const answer = `{"hello":"0123456789012345678901234567890123456789"}`

// start runs a host with one route that counts the calls that take effect.
func start(t *testing.T) (*fake.Host, *int) {
	t.Helper()
	h := fake.NewHost(nil)
	effects := new(int)
	h.Handle("greet", "POST /greet", func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err == nil {
			*effects++
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", "52")
		_, _ = io.WriteString(w, answer)
	})
	if err := h.Listen(""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	return h, effects
}

// An unclean path reaches the service behind the host; the mux would redirect it.
func TestAnUncleanPathIsNotRedirected(t *testing.T) {
	h := fake.NewHost(nil)
	h.Handle("one", "GET /one", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusOK) })
	h.Handle("all", "/", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusTeapot) })
	bare := fake.NewHost(nil)
	for path, want := range map[string][2]int{"/one": {200, 404}, "/one/": {418, 404}, "//one": {418, 404}, "/x/../one": {418, 404}, "/./one": {418, 404}} {
		for i, host := range []*fake.Host{h, bare} {
			rec := httptest.NewRecorder()
			host.ServeHTTP(rec, &http.Request{Method: "GET", URL: &url.URL{Path: path}, Body: http.NoBody})
			if rec.Code != want[i] {
				t.Errorf("%s: %d, want %d", path, rec.Code, want[i])
			}
		}
	}
}

func client(t *testing.T, timeout time.Duration) *http.Client {
	transport := &http.Transport{DisableKeepAlives: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// greet returns the status, the body that arrived and the transport's error.
func greet(t *testing.T, h *fake.Host, timeout time.Duration) (int, string, error) {
	t.Helper()
	res, err := client(t, timeout).Post(h.URL()+"/greet", "text/plain", strings.NewReader(strings.Repeat("x", 4096)))
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	return res.StatusCode, string(body), err
}

func TestFaultKinds(t *testing.T) {
	tests := []struct {
		name    string
		rule    fake.Rule
		status  int
		body    string // prefix
		broken  bool
		effects int
	}{
		{"status", fake.Rule{Kind: fake.KindStatus, Status: 503}, 503, `{"message":"upstream`, false, 0},
		{"status after the effect", fake.Rule{Kind: fake.KindStatus, Status: 500, Effect: true}, 500, "{", false, 1},
		{"garbage", fake.Rule{Kind: fake.KindGarbage}, 200, "<html>", false, 0},
		{"close before", fake.Rule{Kind: fake.KindClose}, 0, "", true, 0},
		{"close after", fake.Rule{Kind: fake.KindClose, Effect: true}, 0, "", true, 1},
		{"cut", fake.Rule{Kind: fake.KindCut, SizeBytes: 10}, 200, answer[:10], true, 1},
		{"cut in half", fake.Rule{Kind: fake.KindCut}, 200, answer[:26], true, 1},
		{"cut upload", fake.Rule{Kind: fake.KindCutUpload}, 0, "", true, 0},
		{"stall", fake.Rule{Kind: fake.KindStall}, 0, "", true, 0},
		{"stall after the effect", fake.Rule{Kind: fake.KindStall, Effect: true}, 0, "", true, 1},
		{"slow", fake.Rule{Kind: fake.KindSlow, BytesPerSec: 400}, 200, answer, false, 1},
		{"too slow", fake.Rule{Kind: fake.KindSlow, BytesPerSec: 10}, 200, answer[:2], true, 1},
		{"delay", fake.Rule{Kind: fake.KindDelay, DelayMs: 30}, 200, answer, false, 1},
		{"huge", fake.Rule{Kind: fake.KindHuge, SizeBytes: 1 << 20}, 200, `{"result":"aaa`, false, 0},
		{"body shorter than announced", fake.Rule{Kind: fake.KindLength}, 200, answer, true, 1},
		{"body longer than announced", fake.Rule{Kind: fake.KindLength, LengthDelta: -12}, 200, answer[:40], false, 1},
		{"redirect", fake.Rule{Kind: fake.KindRedirect, Location: "http://10.0.0.1/"}, 302, "", false, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h, effects := start(t)
			tt.rule.Step = "greet"
			timeout := time.Minute
			if tt.rule.Kind == fake.KindStall || tt.name == "too slow" {
				timeout = 4 * time.Second // long enough for the call to arrive
			}
			if err := h.Faults.Add(tt.rule); err != nil {
				t.Fatal(err)
			}
			status, body, err := greet(t, h, timeout)
			_ = h.Close() // waits for the handler, so the count of effects is final
			if (err != nil) != tt.broken || status != tt.status || !strings.HasPrefix(body, tt.body) {
				t.Errorf("got %d %.60q, error %v", status, body, err)
			}
			if *effects != tt.effects {
				t.Errorf("took effect %d times, want %d", *effects, tt.effects)
			}
			calls := h.Faults.Calls()
			if len(calls) != 1 || calls[0].Fault != tt.rule.Kind || calls[0].Status != status {
				t.Errorf("logged %+v", calls)
			}
		})
	}
}

func TestNthCallFails(t *testing.T) {
	h, _ := start(t)
	err := h.Faults.Add(
		fake.Rule{Step: "greet", Nth: 2, Times: 1, Kind: fake.KindStatus, Status: 500},
		fake.Rule{Step: fake.AnyStep, Nth: 4, Kind: fake.KindStatus, Status: 503})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{200, 500, 200, 503, 503} {
		if got, _, err := greet(t, h, time.Minute); got != want || err != nil {
			t.Errorf("call %d: %d, %v; want %d", i+1, got, err, want)
		}
	}
	h.Faults.Clear()
	if got, _, _ := greet(t, h, time.Minute); got != 200 {
		t.Errorf("after Clear: %d", got)
	}
	if n := h.Faults.Count("greet"); n != 6 {
		t.Errorf("counted %d calls, want 6", n)
	}
}

func TestClearEndsAStall(t *testing.T) {
	h, _ := start(t)
	if err := h.Faults.Add(fake.Rule{Step: "greet", Kind: fake.KindStall}); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, _, err := greet(t, h, time.Minute)
		ended <- err
	}()
	for h.Faults.Count("greet") == 0 {
		time.Sleep(time.Millisecond)
	}
	h.Faults.Clear()
	var timeout interface{ Timeout() bool }
	if err := <-ended; err == nil || errors.As(err, &timeout) && timeout.Timeout() {
		t.Errorf("stalled call ended with %v, want a closed connection", err)
	}
}

func TestControlAPI(t *testing.T) {
	h, _ := start(t)
	control := func(method, path, body string) (int, string) {
		t.Helper()
		req, _ := http.NewRequestWithContext(t.Context(), method, h.URL()+fake.ControlPrefix+path, strings.NewReader(body))
		res, err := client(t, time.Minute).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		got, _ := io.ReadAll(res.Body)
		return res.StatusCode, string(got)
	}
	if status, _ := control("POST", "faults", `{"step":"greet","kind":"status","status":418,"times":1}`); status != 200 {
		t.Fatalf("add rule: %d", status)
	}
	for _, bad := range []string{`{"step":"grete","kind":"close"}`, `{"step":"greet","kind":"shut"}`, `{"step":"greet","kind":"status"}`, `{`} {
		if status, _ := control("POST", "faults", bad); status != 400 {
			t.Errorf("rule %s: %d, want 400", bad, status)
		}
	}
	if status, _, _ := greet(t, h, time.Minute); status != 418 {
		t.Errorf("greet: %d, want 418", status)
	}
	res, err := client(t, time.Minute).Get(h.URL() + "/no/such/path")
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != 404 {
		t.Errorf("unknown path: %d", res.StatusCode)
	}
	_, body := control("GET", "calls", "")
	var calls struct {
		Counts map[string]int
		Calls  []fake.Call
	}
	if err := json.NewDecoder(bytes.NewBufferString(body)).Decode(&calls); err != nil {
		t.Fatal(err)
	}
	if calls.Counts["greet"] != 1 || calls.Counts[fake.StepUnknown] != 1 || len(calls.Calls) != 2 {
		t.Errorf("calls: %s", body)
	}
}

func TestOutageAndReturnOnTheSameAddress(t *testing.T) {
	h, _ := start(t)
	port, err := process.FreePort() // which no other test gets in the meantime
	if err != nil {
		t.Fatal(err)
	}
	addr := "127.0.0.1:" + port
	if err := errors.Join(h.Close(), h.Listen(addr), h.Close()); err != nil {
		t.Fatal(err)
	}
	if _, _, err := greet(t, h, time.Minute); err == nil {
		t.Error("a closed host still answers")
	}
	if err := h.Listen(addr); err != nil {
		t.Fatal(err)
	}
	if status, _, err := greet(t, h, time.Minute); status != 200 || err != nil {
		t.Errorf("after the outage: %d, %v", status, err)
	}
}
