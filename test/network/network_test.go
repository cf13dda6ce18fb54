// Package network breaks the network between the service and its database, bucket or separation provider: connections
// hang, end in the middle of a response, have seconds of latency, or carry a kilobyte a second. During a fault, the
// service responds to every request in time. After it, the service accepts requests again, every job ends, and the
// ledger matches the jobs.
//
// See package apitest for the choice of the database and the bucket.
package network

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"cutroom/internal/sandbox/separator"
	"cutroom/internal/testkit/apitest"
	"cutroom/internal/testkit/mediatest"
	"cutroom/internal/testkit/relaytest"
	"cutroom/test/invariants"
)

func TestMain(m *testing.M) { os.Exit(apitest.Main(m)) }

const (
	separatePath = "/api/v2/separate"
	// maxResponse is how long a response may take while a dependency hangs: two of the service's longest time-outs,
	// plus delays of a busy machine.
	maxResponse = 75 * time.Second
	// maxRecovery is the time after a fault within which the service must accept all kinds of requests. A healthy
	// service on an idle machine needs 10 s.
	maxRecovery = 30 * time.Second
	// outage is the duration of a fault. It is longer than a job's lease.
	outage = 15 * time.Second
)

// faults are the ways in which a network breaks.
var faults = map[string]relaytest.Fault{
	"half-open": {HalfOpen: true},
	"resets":    {MaxAnswer: 700},
	"slow":      {Latency: 3 * time.Second},
	"narrow":    {Rate: 1000},
}

// dependencies returns the service's dependencies, each with the settings that hold its address.
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
		for name, fault := range faults {
			t.Run(dependency+"/"+name, func(t *testing.T) {
				t.Parallel()
				b := start(t, keys)
				b.submit("before")
				for _, r := range b.relays {
					r.Break(fault)
				}
				b.meanwhile()
				b.heal()
				b.submit("after")
				b.judge()
			})
		}
	}
}

// testbed is a service with a network to one dependency that the test can break.
type testbed struct {
	t      *testing.T
	s      *apitest.Server
	users  map[string]*apitest.User // one for each phase, because a user's submissions are limited
	source string
	clip   string
	relays []*relaytest.Relay

	mu      sync.Mutex
	jobs    map[string]map[string]string // phase -> idempotency key -> job
	longest time.Duration                // longest response time
}

// phases are the phases in which the test sends requests: before and during the fault, right after it, and later.
var phases = []string{"before", "broken", "healed", "after"}

const credits = 53 // each user's: the bonus and one purchase

func start(t *testing.T, keys []string) *testbed {
	b := &testbed{t: t, jobs: map[string]map[string]string{}, users: map[string]*apitest.User{},
		relays: make([]*relaytest.Relay, len(keys)),
		source: mediatest.Tone(t, 1200, 500*time.Millisecond),
		clip:   mediatest.Clip(t, mediatest.Spec{Width: 160, Height: 90, Duration: time.Second})}
	opts := []apitest.Option{apitest.Env("SEPARATION_BUSY_WAIT_MIN", "0"), apitest.Env("HTTP_CONNECT_TIMEOUT_MS", "5000"),
		apitest.Env("HTTP_REQUEST_TIMEOUT_MS", "15000"), apitest.Env("HTTP_SOCKET_TIMEOUT_MS", "10000")}
	for i, key := range keys {
		opts = append(opts, apitest.Relay(&b.relays[i], key))
	}
	b.s = apitest.Start(t, opts...)
	b.s.World.Separator.Configure(func(w *separator.Behaviour) { w.ProcessingMs = 3000 })
	for _, phase := range phases {
		b.jobs[phase], b.users[phase] = map[string]string{}, b.s.SignIn(t, apitest.Credits(credits))
	}
	return b
}

// heal repairs the network and waits until every kind of request succeeds.
func (b *testbed) heal() {
	for _, r := range b.relays {
		r.Heal()
	}
	began := time.Now()
	for name, r := range b.requests("healed") {
		status := 0
		apitest.Eventually(b.t, maxRecovery, func() bool { status = b.send("healed", r); return status == 200 || status == 202 }, func() string {
			return fmt.Sprintf("%s is still answered with %d %v after the network has healed", name, status, maxRecovery)
		})
	}
	b.t.Logf("the longest response took %v; every request succeeds %v after the network has healed",
		b.longest.Round(100*time.Millisecond), time.Since(began).Round(100*time.Millisecond))
}

// requests returns one request of each kind that needs a dependency, with the phase's idempotency keys.
func (b *testbed) requests(phase string) map[string]apitest.Request {
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

// send sends a request as the phase's user and returns its status, or 0 if the connection ended without a response.
func (b *testbed) send(phase string, r apitest.Request) int {
	r.Token = b.users[phase].Token
	began := time.Now()
	res, err := b.s.TryDo(b.t, r)
	took := time.Since(began)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.longest = max(b.longest, took)
	if took > maxResponse {
		b.t.Errorf("%s: response after %v, want at most %v", r.Path, took.Round(time.Second), maxResponse)
	}
	if err != nil {
		b.t.Errorf("%s: no response: %v", r.Path, err)
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

// submit sends one request of each kind. All must succeed.
func (b *testbed) submit(phase string) {
	for name, r := range b.requests(phase) {
		if status := b.send(phase, r); status != 200 && status != 202 {
			b.t.Errorf("%s %s: status %d", name, phase, status)
		}
	}
}

// meanwhile sends requests of all kinds concurrently during the fault, and repeats them with the same idempotency keys,
// as a client without a response would.
func (b *testbed) meanwhile() {
	for end := time.Now().Add(outage); time.Now().Before(end); {
		var wg sync.WaitGroup
		for _, r := range b.requests("broken") {
			wg.Go(func() { b.send("broken", r) })
		}
		wg.Wait()
		time.Sleep(4 * time.Second) // a client's pause before a retry
	}
}

// judge waits until all jobs have ended, including those whose answer was lost. It compares them with the ledger and
// the provider's projects.
func (b *testbed) judge() {
	rows := b.s.Database(b.t)
	invariants.Wait(b.t, rows, 5*time.Minute)
	invariants.Check(b.t, rows)
	invariants.PaidOnce(b.t, b.s.World.Separator.Titles())
	for phase, jobs := range b.jobs {
		for key, job := range jobs { // a read of an unknown job fails the test
			state, code := "", ""
			if strings.HasPrefix(key, separatePath) {
				s := b.users[phase].Separation(b.t, job)
				state, code = s.Status, s.ErrorCode
			} else {
				s := b.users[phase].Status(b.t, job)
				state, code = s.Status, s.ErrorCode
			}
			b.t.Logf("%s: %s %s", key, state, code)
		}
	}
}
