// Reports as a server of the Sentry protocol receives them: their content, their rate, and what they may not contain.

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

	"cutroom/internal/base/monitor"
)

// collector is a server that speaks the envelope protocol: a header, and then pairs of an item's header and its
// payload, all JSON.
type collector struct {
	*httptest.Server
	mu     sync.Mutex
	raw    bytes.Buffer // everything that arrived
	events []map[string]any
}

func (c *collector) take(r *http.Request) error {
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
	envelope := json.NewDecoder(io.TeeReader(body, &c.raw))
	var header map[string]any
	err := envelope.Decode(&header)
	for err == nil && envelope.More() {
		var item struct{ Type string }
		var payload map[string]any
		if err = errors.Join(envelope.Decode(&item), envelope.Decode(&payload)); item.Type == "event" {
			c.events = append(c.events, payload)
		}
	}
	return err
}

// report logs, and returns the events that then arrive, their whole text, and the log.
func report(t *testing.T, write func(log *slog.Logger)) (events []map[string]any, all, kept string) {
	t.Helper()
	c := &collector{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := c.take(r); err != nil || r.URL.Path != "/api/42/envelope/" || !strings.Contains(r.Header.Get("X-Sentry-Auth"), "sentry_key=publickey") {
			t.Errorf("envelope to %s: %v", r.URL.Path, err)
		}
		fmt.Fprint(w, `{}`)
	}))
	defer c.Close()
	dsn := strings.Replace(c.URL, "://", "://publickey@", 1) + "/42"
	m, err := monitor.New(monitor.Options{DSN: dsn, Environment: "staging", Release: "1.2.3"})
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	write(slog.New(m.Handler(slog.NewJSONHandler(&log, nil))))
	m.Flush(5 * time.Second)
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.events, c.raw.String(), log.String()
}

func TestErrorsAreReportedWithReleaseEnvironmentAndRequest(t *testing.T) {
	events, _, kept := report(t, func(log *slog.Logger) {
		log.Warn("provider slow", "err", errors.New("theirs")) // below Error: not reported
		log.With("request", "ab12cd34").Error("request failed", "route", "GET /api/v2/credits", "err", errors.New("read balance: broken pipe"))
	})
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
	if !strings.Contains(kept, "read balance") || !strings.Contains(kept, "provider slow") {
		t.Errorf("the records did not reach the log: %s", kept)
	}
}

func TestTheSameFailureIsReportedTenTimesAMinute(t *testing.T) {
	events, _, _ := report(t, func(log *slog.Logger) {
		for i := range 50 {
			log.Error("request failed", "request", fmt.Sprint(i), "err", fmt.Errorf("job sep-0190b6f2-7e0a-7cc1-8f5e-%012d: lost", i))
		}
		log.Error("request failed", "err", errors.New("something else"))
	})
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
	const jwt = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbGljZSJ9.c2lnbmF0dXJlc2lnbmF0dXJl"
	failures := []error{
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
	}
	events, all, _ := report(t, func(log *slog.Logger) {
		for _, err := range failures {
			log.Error("request failed", "path", "/api/v2/separate/sep-0190b6f2-7e0a-7cc1-8f5e-0123456789ab", "ip", "203.0.113.77",
				"user", "Alice", "err", err)
		}
	})
	if len(events) != len(failures) {
		t.Errorf("%d events, want %d", len(events), len(failures))
	}
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

func TestABadDSNIsRefusedWithoutRepeatingIt(t *testing.T) {
	_, err := monitor.New(monitor.Options{DSN: "https://s3cr3t@"})
	if err == nil || strings.Contains(err.Error(), "s3cr3t") {
		t.Errorf("err = %v", err)
	}
}
