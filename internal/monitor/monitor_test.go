package monitor_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"cutroom/internal/monitor"
)

// collector is a server that speaks the envelope protocol: a header, and then pairs of an item's header and its
// payload, all JSON.
type collector struct {
	*httptest.Server
	mu    sync.Mutex
	raw   bytes.Buffer                // everything that arrived
	items map[string][]map[string]any // payloads by item type
	auth  []string
}

func startCollector(t *testing.T) *collector {
	c := &collector{items: map[string][]map[string]any{}}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := c.take(r); err != nil {
			t.Errorf("envelope: %v", err)
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		fmt.Fprint(w, `{}`)
	}))
	t.Cleanup(c.Close)
	return c
}

func (c *collector) take(r *http.Request) error {
	if r.Method != http.MethodPost || r.URL.Path != "/api/42/envelope/" {
		return fmt.Errorf("%s %s", r.Method, r.URL.Path)
	}
	var body io.Reader = r.Body
	if r.Header.Get("Content-Encoding") == "gzip" {
		zr, err := gzip.NewReader(r.Body)
		if err != nil {
			return err
		}
		body = zr
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.auth = append(c.auth, r.Header.Get("X-Sentry-Auth"))
	envelope := json.NewDecoder(io.TeeReader(body, &c.raw))
	var header map[string]any
	if err := envelope.Decode(&header); err != nil {
		return fmt.Errorf("header: %w", err)
	}
	for envelope.More() {
		var item struct{ Type string }
		var payload map[string]any
		if err := errors.Join(envelope.Decode(&item), envelope.Decode(&payload)); err != nil {
			return err
		}
		c.items[item.Type] = append(c.items[item.Type], payload)
	}
	return nil
}

// all returns what arrived of a type.
func (c *collector) all(kind string) []map[string]any {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.items[kind]
}

func (c *collector) text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.raw.String()
}

func (c *collector) dsn() string {
	u, _ := url.Parse(c.URL)
	u.User, u.Path = url.User("publickey"), "/42"
	return u.String()
}

func start(t *testing.T) (*collector, *monitor.Monitor, *slog.Logger, *bytes.Buffer) {
	t.Helper()
	c := startCollector(t)
	m, err := monitor.New(monitor.Options{DSN: c.dsn(), Environment: "staging", Release: "1.2.3"})
	if err != nil {
		t.Fatal(err)
	}
	var kept bytes.Buffer
	return c, m, slog.New(m.Handler(slog.NewJSONHandler(&kept, nil))), &kept
}

func TestErrorsAreReportedWithReleaseEnvironmentAndRequest(t *testing.T) {
	c, m, log, kept := start(t)
	log.With("request", "ab12cd34").Error("request failed", "route", "GET /api/v2/credits", "err", errors.New("read balance: broken pipe"))
	m.Flush(5 * time.Second)
	events := c.all("event")
	if len(events) != 1 {
		t.Fatalf("%d events, want 1", len(events))
	}
	e := events[0]
	for key, want := range map[string]string{"release": "1.2.3", "environment": "staging", "level": "error",
		"message": "request failed", "transaction": "GET /api/v2/credits", "server_name": "cutroom"} {
		if e[key] != want {
			t.Errorf("%s = %v, want %q", key, e[key], want)
		}
	}
	if tags, _ := e["tags"].(map[string]any); tags["request"] != "ab12cd34" {
		t.Errorf("tags = %v", e["tags"])
	}
	if text := fmt.Sprint(e["exception"]); !strings.Contains(text, "read balance: broken pipe") || !strings.Contains(text, "monitor_test") {
		t.Errorf("exception %s lacks the error or the stack", text)
	}
	if !strings.Contains(c.auth[0], "sentry_key=publickey") {
		t.Errorf("auth %q", c.auth[0])
	}
	if !strings.Contains(kept.String(), "read balance") {
		t.Error("the record did not reach the log")
	}
}

func TestNothingBelowErrorIsReported(t *testing.T) {
	c, m, log, kept := start(t)
	log.Info("request refused", "err", errors.New("client's"))
	log.Warn("provider slow", "err", errors.New("theirs"))
	m.Flush(time.Second)
	if n := len(c.all("event")); n != 0 {
		t.Errorf("%d events: %s", n, c.text())
	}
	if !strings.Contains(kept.String(), "request refused") {
		t.Error("the records did not reach the log")
	}
}

func TestTheSameFailureIsReportedTenTimesAMinute(t *testing.T) {
	c, m, log, _ := start(t)
	for i := range 50 {
		log.Error("request failed", "request", fmt.Sprint(i), "err", fmt.Errorf("job sep-0190b6f2-7e0a-7cc1-8f5e-%012d: lost", i))
	}
	log.Error("request failed", "err", errors.New("something else"))
	m.Flush(5 * time.Second)
	events := c.all("event")
	if n := len(events); n != 10+1 {
		t.Errorf("%d events, want %d of one failure and one of the other", n, 10)
	}
	traces := map[string]bool{}
	for _, e := range events {
		contexts, _ := e["contexts"].(map[string]any)
		traces[fmt.Sprint(contexts["trace"])] = true
	}
	if len(traces) != len(events) {
		t.Errorf("%d events look like %d traces", len(events), len(traces))
	}
}

// secrets are what errors can carry and no report may.
var secrets = []string{"alice@example.com", "eyJhbGciOiJIUzI1NiJ9", "hunter2hunter2", "0190b6f2-7e0a-7cc1-8f5e-0123456789ab",
	"/var/lib/cutroom", "Alice", "203.0.113.77", "2001:db8::77", "4111111111111111", "db.internal", "id_token", "s3cr3t"}

func TestReportsHoldNoPersonalData(t *testing.T) {
	c, m, log, _ := start(t)
	const jwt = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbGljZSJ9.c2lnbmF0dXJlc2lnbmF0dXJl"
	for _, err := range []error{
		fmt.Errorf("upsert user: %w", &pgconn.PgError{Code: "23505", Message: `duplicate key (email)=(alice@example.com)`, Detail: "Alice"}),
		fmt.Errorf("open stem: %w", &fs.PathError{Op: "open", Path: "/var/lib/cutroom/objects/separation/sep-1", Err: fs.ErrPermission}),
		fmt.Errorf("token-info: %w", &url.Error{Op: "Get", URL: "https://db.internal/tokeninfo?id_token=" + jwt, Err: io.EOF}),
		fmt.Errorf("job sep-0190b6f2-7e0a-7cc1-8f5e-0123456789ab of user 0190b6f2-7e0a-7cc1-8f5e-0123456789ab"),
		fmt.Errorf(`invalid input syntax for type bigint: "hunter2hunter2"`),
		fmt.Errorf("name 'Alice' of alice@example.com at 203.0.113.77:5432 and [2001:db8::77]:443"),
		fmt.Errorf("dial postgres://alice:s3cr3t@db.internal/cutroom?sslmode=require"),
		fmt.Errorf("bearer %s was 4111111111111111", jwt),
		errors.Join(errors.New("first"), &fs.PathError{Op: "unlink", Path: "/var/lib/cutroom/x", Err: fs.ErrExist}),
		fmt.Errorf("panic: %v", map[string]string{"email": "alice@example.com"}),
	} {
		log.Error("request failed", "path", "/api/v2/separate/sep-0190b6f2-7e0a-7cc1-8f5e-0123456789ab", "ip", "203.0.113.77",
			"user", "Alice", "err", err)
	}
	m.Flush(5 * time.Second)
	if n := len(c.all("event")); n != 10 {
		t.Errorf("%d events, want 10", n)
	}
	all := c.text()
	for _, s := range secrets {
		if i := strings.Index(all, s); i >= 0 {
			t.Errorf("%q leaves the house: …%s…", s, all[max(0, i-120):min(len(all), i+120)])
		}
	}
	for _, want := range []string{"SQLSTATE 23505", "open: permission denied", "Get: EOF", "upsert user"} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is missing: the report must still say what failed", want)
		}
	}
}

func TestOffDoesNothing(t *testing.T) {
	m, err := monitor.New(monitor.Options{})
	if err != nil {
		t.Fatal(err)
	}
	next := slog.NewTextHandler(io.Discard, nil)
	if m.Handler(next) != slog.Handler(next) {
		t.Error("a monitor that is off stands in the way of the log")
	}
	m.Flush(time.Second)
}

func TestABadDSNIsRefusedWithoutRepeatingIt(t *testing.T) {
	_, err := monitor.New(monitor.Options{DSN: "https://s3cr3t@"})
	if err == nil || strings.Contains(err.Error(), "s3cr3t") {
		t.Errorf("err = %v", err)
	}
}

func TestADeadCollectorDelaysNoRequest(t *testing.T) {
	c := startCollector(t)
	dsn := c.dsn()
	c.Close()
	m, err := monitor.New(monitor.Options{DSN: dsn})
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(m.Handler(slog.DiscardHandler))
	began := time.Now()
	for i := range 2000 {
		log.Error("request failed", "err", fmt.Errorf("case %c%c", 'a'+i%26, 'a'+i/26%26))
	}
	if took := time.Since(began); took > time.Minute {
		t.Errorf("2000 reports took %v", took)
	}
}
