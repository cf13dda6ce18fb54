package test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"cutroom/internal/base/db"
	"cutroom/internal/sandbox/bucket"
	"cutroom/internal/sandbox/fake"
	"cutroom/internal/sandbox/separator"
	"cutroom/internal/testkit/apitest"
	"cutroom/internal/testkit/dbtest"
	"cutroom/internal/testkit/relaytest"
)

// unavailable sends the requests concurrently, and fails the test unless each gets 503 unavailable in time.
func unavailable(t *testing.T, s *apitest.Server, within time.Duration, requests ...apitest.Request) {
	t.Helper()
	var wg sync.WaitGroup
	for _, r := range requests {
		wg.Go(func() {
			started := time.Now()
			res := s.Do(t, r)
			name := r.Method + " " + r.Path
			if took := time.Since(started); took > within {
				t.Errorf("%s: answered after %v, want %v", name, took.Round(time.Millisecond), within)
			}
			if res.Status != http.StatusServiceUnavailable || strings.TrimSpace(string(res.Body)) != `{"error":"unavailable"}` || res.Header.Get("Retry-After") == "" {
				t.Errorf("%s: %d %s, Retry-After %q", name, res.Status, res.Body, res.Header.Get("Retry-After"))
			}
		})
	}
	wg.Wait()
}

// loggedOnceAMinute fails the test unless at least one process logs a line with these words, and no process logs it
// more than once a minute.
func loggedOnceAMinute(t *testing.T, s *apitest.Server, began time.Time, words ...string) {
	t.Helper()
	n := 0
	for l := range strings.Lines(s.Logs()) {
		if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(l, word) }) {
			n++
		}
	}
	if most := s.Processes() * (1 + int(time.Since(began)/time.Minute)); n < 1 || n > most {
		t.Errorf("%d log lines contain %q, want 1 to %d", n, words, most)
	}
}

func TestADatabaseThatHangsOrRefuses(t *testing.T) {
	if !apitest.Postgres() {
		t.Skip("the embedded database has no network")
	}
	t.Parallel()
	var l *relaytest.Relay
	s := apitest.Start(t, apitest.Replicas(1), apitest.Relay(&l, "DATABASE_URL"))
	who := s.SignIn(t)
	get := func(path string) apitest.Request { return apitest.Request{Path: path, Token: who.Token} }
	post := func(path, body string) apitest.Request {
		return apitest.Request{Method: "POST", Path: path, Token: who.Token, Raw: body}
	}
	requests := []apitest.Request{get("/api/v2/credits"), get("/api/v2/render/rnd-x/status"), get("/api/v2/separate/sep-x"),
		post("/api/v2/auth/provider_a", `{"idToken":"x"}`), post("/api/v2/render", `{}`), post("/api/v2/separate", `{}`)}
	for range 8 { // more than the connections in the pool
		requests = append(requests, get("/api/v2/credits/cost?durationMs=1"))
	}
	time.Sleep(time.Second) // until the service reads sign-outs again
	began := time.Now()
	l.Break(relaytest.Fault{HalfOpen: true})
	unavailable(t, s, 30*time.Second, requests...)
	s.Do(t, apitest.Request{Path: "/healthz"}).Expect(200)
	l.Cut()
	l.Heal()
	unavailable(t, s, 30*time.Second, requests...)
	loggedOnceAMinute(t, s, began, "a dependency does not answer", `"of":"database"`)
	loggedOnceAMinute(t, s, began, "database notifications interrupted")
	l.Connect()
	apitest.Eventually(t, time.Minute, func() bool { return s.Do(t, get("/api/v2/credits")).Status == 200 },
		func() string { return "no answer after the outage" })
	if b := who.Balance(t); b != 3 {
		t.Errorf("balance %d after the outage", b)
	}
}

// Work that a database outage interrupted restarts after the outage. The interrupted attempt does not count.
func TestAnOutageOfTheDatabaseCostsNoAttempt(t *testing.T) {
	if !apitest.Postgres() {
		t.Skip("the embedded database has no network")
	}
	t.Parallel()
	sameInEveryShape(t)
	address, user, password := dbtest.URL(t)
	direct, err := db.Open(t.Context(), db.Options{URL: address, User: user, Password: password, MaxPool: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer direct.Close()
	var l *relaytest.Relay
	s := apitest.Start(t, apitest.StandInBucket(), apitest.Replicas(2), apitest.Env("DATABASE_URL", address), apitest.Env("DB_USER", user),
		apitest.Env("DB_PASSWORD", password), apitest.Relay(&l, "DATABASE_URL"))
	s.World.Separator.Configure(func(b *separator.Behaviour) { b.HoldAtPercent = 50 })
	who := s.SignIn(t)
	separation := who.Separate(t, mixture(t))
	who.WaitSeparation(t, separation, "PROCESSING")
	s.World.FailBucket(t, fake.Rule{Step: bucket.StepGet, Path: "/uploads/", Kind: fake.KindStall})
	render := who.Render(t, M{"segments": []M{apitest.Segment("video", 0, time.Second)}}, apitest.File("video", redClip(t)))
	apitest.Eventually(t, time.Minute, func() bool { return who.Status(t, render).Status == "PROCESSING" }, func() string { return "not claimed" })

	l.Cut()
	expired := 0
	apitest.Eventually(t, time.Minute, func() bool {
		err := direct.QueryRow(t.Context(), `SELECT COUNT(*) FROM jobs WHERE lease_until < now_ms()`).Scan(&expired)
		return err == nil && expired == 2
	}, func() string { return fmt.Sprintf("%d leases have expired", expired) })
	l.Connect()
	apitest.Eventually(t, time.Minute, func() bool {
		return strings.Contains(s.Logs(), "render handed back") && strings.Contains(s.Logs(), "separation handed back")
	}, func() string { return "no job was handed back" })
	s.World.Heal()
	s.World.Separator.Configure(func(b *separator.Behaviour) { b.HoldAtPercent = 0 })
	who.WaitRendered(t, render)
	who.WaitReady(t, separation)
	for _, id := range []string{render, separation} {
		var job struct{ Attempts int }
		if command(t, s, &job, "job", "show", id); job.Attempts != 1 {
			t.Errorf("%s: %d attempts", id, job.Attempts)
		}
	}
}
