// Package network breaks the networks between the service and its database, bucket
// and separation provider: connections that stay open and carry nothing, connections
// that end in the middle of an answer, seconds of latency, a kilobyte a second. While a
// network is broken, every request is answered within its bound. Once it heals, the
// service takes requests again, every job ends, and the ledger agrees with the jobs.
//
// Which database, and whether there is a bucket, is decided as in package apitest.
package network

import (
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"cutroom/internal/apitest"
	"cutroom/internal/mediatest"
	"cutroom/internal/sandbox/separator"
)

func TestMain(m *testing.M) { os.Exit(apitest.Main(m)) }

const (
	separatePath = "/api/v2/separate"
	// answered is how long a request may wait for a dependency that does not answer:
	// two of the service's longest waits, and what a busy machine adds.
	answered = 75 * time.Second
	// healed is how soon after a network heals the service takes every kind of request,
	// which it should within 10 s; the rest is for a busy machine.
	healed = 30 * time.Second
	// broken is how long a network stays broken: longer than a job's lease.
	broken = 15 * time.Second
)

// toxics are the ways in which a network breaks.
var toxics = map[string][]string{
	"half-open": apitest.HalfOpen,
	"resets":    {`{"type":"limit_data","stream":"downstream","attributes":{"bytes":700}}`},
	"slow":      {`{"type":"latency","stream":"downstream","attributes":{"latency":3000}}`},
	"narrow":    {`{"type":"bandwidth","stream":"upstream","attributes":{"rate":1}}`, `{"type":"bandwidth","stream":"downstream","attributes":{"rate":1}}`},
}

// dependencies are what a network leads to, each with the settings that hold its address.
func dependencies() map[string][]string {
	out := map[string][]string{"provider": {"SEPARATION_PROVIDER_BASE_URL", "SEPARATION_PROVIDER_STORAGE_BASE_URL"}}
	if apitest.Postgres() {
		out["database"] = []string{"DATABASE_URL"}
	}
	if os.Getenv("CUTROOM_TEST_BUCKET") != "" {
		out["bucket"] = []string{"OBJECT_STORE_ENDPOINT"}
	}
	return out
}

func TestBrokenNetworks(t *testing.T) {
	if testing.Short() {
		t.Skip("takes minutes")
	}
	for dependency, keys := range dependencies() {
		for name, toxic := range toxics {
			t.Run(dependency+"/"+name, func(t *testing.T) {
				t.Parallel()
				b := start(t, keys)
				b.submit("before")
				for _, l := range b.lines {
					l.Poison(toxic...)
				}
				b.meanwhile()
				b.heal()
				b.submit("after")
				b.judge()
			})
		}
	}
}

// bench is a service whose network to one dependency can be broken.
type bench struct {
	t      *testing.T
	s      *apitest.Server
	users  map[string]*apitest.User // one a phase, because submissions of a user are limited
	source string
	clip   string
	lines  []*apitest.Line

	mu      sync.Mutex
	jobs    map[string]map[string]string // phase -> idempotency key -> job
	longest time.Duration                // that a request waited for its answer
}

// phases are the times at which requests are sent: before, while and after the network
// is broken, and as soon as it has healed.
var phases = []string{"before", "broken", "healed", "after"}

const credits = 53 // of each user: the bonus and one purchase

func start(t *testing.T, keys []string) *bench {
	b := &bench{t: t, jobs: map[string]map[string]string{}, users: map[string]*apitest.User{},
		source: mediatest.Tone(t, 1200, 500*time.Millisecond),
		clip:   mediatest.Clip(t, mediatest.Spec{Width: 160, Height: 90, Duration: time.Second})}
	b.s = apitest.Start(t, apitest.Env("SEPARATION_BUSY_WAIT_MIN", "0"), apitest.Env("HTTP_CONNECT_TIMEOUT_MS", "5000"),
		apitest.Env("HTTP_REQUEST_TIMEOUT_MS", "15000"), apitest.Env("HTTP_SOCKET_TIMEOUT_MS", "10000"))
	b.s.World.Separator.Configure(func(w *separator.Behaviour) { w.ProcessingMs = 3000 })
	for _, phase := range phases {
		b.jobs[phase], b.users[phase] = map[string]string{}, b.s.SignIn(t, apitest.Credits(credits))
	}
	b.s.Stop(t)
	for _, key := range keys {
		u, err := url.Parse(b.s.Config(key))
		if err != nil {
			t.Fatal(err)
		}
		l := apitest.NewLine(t, u.Host)
		u.Host = l.Addr
		b.s.SetEnv(key, u.String())
		b.lines = append(b.lines, l)
	}
	b.s.Restart(t)
	return b
}

// heal removes the toxics and waits until every kind of request succeeds.
func (b *bench) heal() {
	for _, l := range b.lines {
		l.Heal()
	}
	began := time.Now()
	for name, r := range b.requests("healed") {
		status := 0
		apitest.Eventually(b.t, healed, func() bool { status = b.send("healed", r); return status == 200 || status == 202 }, func() string {
			return fmt.Sprintf("%s is still answered with %d %v after the network has healed", name, status, healed)
		})
	}
	b.t.Logf("the longest answer took %v; every request succeeds %v after the network has healed",
		b.longest.Round(100*time.Millisecond), time.Since(began).Round(100*time.Millisecond))
}

// requests are one of each kind that a dependency may hold up, with idempotency keys of
// the phase.
func (b *bench) requests(phase string) map[string]apitest.Request {
	job := func(path string, form []apitest.Part) apitest.Request {
		return apitest.Request{Method: "POST", Path: path, Form: form, Header: map[string][]string{"Idempotency-Key": {path + " " + phase}}}
	}
	film := apitest.M{"segments": []apitest.M{apitest.Segment("video_0", 0, time.Second)}}
	return map[string]apitest.Request{
		"balance":    {Path: "/api/v2/credits"},
		"history":    {Path: "/api/v2/credits/history"},
		"separation": job(separatePath, apitest.SeparationForm(b.source)),
		"render":     job("/api/v2/render", apitest.RenderForm(b.t, film, apitest.File("video_0", b.clip))),
	}
}

// send makes a request as the user of a phase and returns its status, 0 where the
// connection ended without an answer.
func (b *bench) send(phase string, r apitest.Request) int {
	r.Token = b.users[phase].Token
	began := time.Now()
	res, err := b.s.TryDo(b.t, r)
	took := time.Since(began)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.longest = max(b.longest, took)
	if took > answered {
		b.t.Errorf("%s was answered after %v, want at most %v", r.Path, took.Round(time.Second), answered)
	}
	if err != nil {
		b.t.Errorf("%s was not answered: %v", r.Path, err)
		return 0
	}
	if key := r.Header.Get("Idempotency-Key"); key != "" && res.Status == 202 {
		job := res.Job(202)
		if had, ok := b.jobs[phase][key]; ok && had != job {
			b.t.Errorf("idempotency key %q made %s and then %s", key, had, job)
		}
		b.jobs[phase][key] = job
	}
	return res.Status
}

// submit sends one request of each kind, all of which must succeed.
func (b *bench) submit(phase string) {
	for name, r := range b.requests(phase) {
		if status := b.send(phase, r); status != 200 && status != 202 {
			b.t.Errorf("%s %s: status %d", name, phase, status)
		}
	}
}

// meanwhile sends requests of all kinds side by side while the network is broken, and
// repeats them with the same idempotency keys, as a client would that got no answer.
func (b *bench) meanwhile() {
	for end := time.Now().Add(broken); time.Now().Before(end); {
		var wg sync.WaitGroup
		for _, r := range b.requests("broken") {
			wg.Go(func() { b.send("broken", r) })
		}
		wg.Wait()
		time.Sleep(4 * time.Second) // a client's pause before it tries again
	}
}

// judge waits until all accepted jobs have ended, and compares them with the ledger and
// with the provider's projects.
func (b *bench) judge() {
	for _, phase := range phases {
		u, paid := b.users[phase], 0
		for key, job := range b.jobs[phase] {
			status, code := "", ""
			if strings.HasPrefix(key, separatePath) {
				apitest.Eventually(b.t, 3*time.Minute, func() bool {
					s := u.Separation(b.t, job)
					status, code = s.Status, s.ErrorCode
					return status == "READY" || status == "FAILED"
				}, func() string { return job + " is " + status })
				if status == "READY" {
					paid++
				}
			} else {
				s := u.WaitFinished(b.t, job)
				status, code = s.Status, s.ErrorCode
			}
			if status == "FAILED" {
				b.t.Logf("%s failed: %s", key, code)
			}
		}
		if got, want := u.Balance(b.t), credits-paid; got != want {
			b.t.Errorf("%s: the balance is %d, want %d", phase, got, want)
		}
	}
	projects := map[string]int{}
	for _, title := range b.s.World.Separator.Titles() {
		if projects[title]++; projects[title] > 1 {
			b.t.Errorf("the provider was paid %d times for %s", projects[title], title)
		}
	}
}
