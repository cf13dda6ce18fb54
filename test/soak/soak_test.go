// Package soak runs separations in real processes under random sequences of submissions, provider faults, crashes,
// stops and deletions. Then it checks the invariants of credits and provider charges, and that the clients' histories
// are linearizable.
//
//	CUTROOM_SOAK_SECONDS=n   how long (default 40)
//	CUTROOM_SOAK_KILLS=n     stop after n crashes instead
//	CUTROOM_SOAK_SEED=n      repeats the sequence of an earlier run
//
// The seed fixes the order of events, but not how they interleave with the service's work. See package apitest for the
// choice of the database and the bucket.
package soak

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"cutroom/internal/base/db"
	"cutroom/internal/sandbox/separator"
	"cutroom/internal/testkit/apitest"
	"cutroom/internal/testkit/mediatest"
	"cutroom/test/invariants"
)

func TestMain(m *testing.M) { os.Exit(apitest.Main(m)) }

// soak is one run.
type soak struct {
	t      *testing.T
	s      *apitest.Server
	direct []*apitest.Server // the replicas without the front
	db     *db.DB
	rng    *rand.Rand // for the main sequence of events
	source string
	began  time.Time

	mu       sync.Mutex
	up       []bool
	users    []*apitest.User
	accepted map[string]string // job -> user, from responses that arrived
	cutOff   int               // submissions without a response
	answers  map[int]int       // number of responses to submissions, by status

	credits int // of each user at the start
	history recorder
	restart time.Time // when dead replicas restart; zero: none is dead
	kills   int
	events  map[string]int
}

// log records an event, for the report of a failure.
func (k *soak) log(format string, args ...any) {
	k.t.Logf(time.Since(k.began).Round(time.Millisecond).String()+": "+format, args...)
}

func number(key string, fallback int64) int64 {
	if n, err := strconv.ParseInt(os.Getenv(key), 10, 64); err == nil {
		return n
	}
	return fallback
}

func TestSeparationsSurviveEverything(t *testing.T) {
	if testing.Short() {
		t.Skip("takes most of a minute")
	}
	t.Setenv("CUTROOM_TEST_S3", "") // a bucket of its own
	seed := number("CUTROOM_SOAK_SEED", time.Now().UnixNano()%1_000_000)
	t.Logf("CUTROOM_SOAK_SEED=%d", seed)
	k := start(t, uint64(seed))
	stop := k.work(uint64(seed))
	kills := int(number("CUTROOM_SOAK_KILLS", 0))
	end := k.began.Add(time.Duration(number("CUTROOM_SOAK_SECONDS", 40)) * time.Second)
	for !t.Failed() && (kills > 0 && k.kills < kills || kills == 0 && time.Now().Before(end)) {
		k.step()
	}
	stop()
	k.settle()
	k.judge()
	k.report()
}

func start(t *testing.T, seed uint64) *soak {
	replicas := 1
	if apitest.Postgres() {
		replicas = 2
	}
	k := &soak{t: t, rng: rand.New(rand.NewPCG(seed, 0)), accepted: map[string]string{}, answers: map[int]int{},
		events: map[string]int{}, up: make([]bool, replicas)}
	opts := []apitest.Option{apitest.Replicas(replicas)}
	for key, value := range map[string]string{
		"SEPARATION_MAX_PROVIDER_IN_FLIGHT": "2", "SEPARATION_STUCK_SUBMITTING_SEC": "60", "SEPARATION_BUSY_WAIT_MIN": "0",
		"SEPARATION_ABANDON_TTL_MS": "60000", "SEPARATION_URL_TTL_SEC": "60", "PROVIDER_MAX_POLL_MINUTES": "2",
		"HTTP_CONNECT_TIMEOUT_MS": "2000", "HTTP_REQUEST_TIMEOUT_MS": "4000", "HTTP_SOCKET_TIMEOUT_MS": "3000",
	} {
		opts = append(opts, apitest.Env(key, value))
	}
	k.s = apitest.Start(t, opts...)
	// Longer than it takes to crash a replica while the provider works.
	k.s.World.Separator.Configure(func(b *separator.Behaviour) { b.ProcessingMs = 800 })
	for i := range replicas {
		k.direct = append(k.direct, k.s.Replica(i))
		k.up[i] = true
	}
	k.db = k.s.Database(t)
	k.source = mediatest.Tone(t, 1200, 500*time.Millisecond)
	for range 8 {
		k.users = append(k.users, k.direct[0].SignIn(t, apitest.Credits(60)))
	}
	k.credits, k.began = k.users[0].Balance(t), time.Now()
	k.history.began = k.began
	k.watchClaims()
	return k
}

// work starts the submitters and the readers. stop stops them.
func (k *soak) work(seed uint64) (stop func()) {
	quit := make(chan struct{})
	var all sync.WaitGroup
	for n := range 2 {
		rng := rand.New(rand.NewPCG(seed, uint64(n)+1))
		all.Go(func() {
			for {
				select {
				case <-quit:
					return
				case <-time.After(time.Duration(rng.IntN(900)) * time.Millisecond):
					k.submit(rng)
				}
			}
		})
	}
	for n := range 2 {
		rng := rand.New(rand.NewPCG(seed, uint64(n)+100))
		all.Go(func() { k.client(rng, quit) })
	}
	stop = sync.OnceFunc(func() { close(quit); all.Wait() })
	k.t.Cleanup(stop) // if the test ends early
	return stop
}

// submit posts a job with an idempotency key to a running replica. If the response is lost, it repeats the request at
// another replica, as a client would.
func (k *soak) submit(rng *rand.Rand) {
	if active, err := invariants.Active(k.t.Context(), k.db); err != nil || active > 8 {
		return // enough jobs are open
	}
	k.mu.Lock()
	u := *k.users[rng.IntN(len(k.users))]
	k.mu.Unlock()
	key := fmt.Sprintf("soak-%d", rng.Uint64())
	for try := range 3 {
		i, ok := k.anyUp(rng)
		if !ok {
			return
		}
		u.Server = k.direct[i]
		var res *apitest.Response
		var body struct{ JobID string }
		k.history.ask(request{user: u.Sub, kind: "submit", key: key}, func() answer {
			var err error
			if res, err = u.TryDo(k.t, apitest.Request{Method: "POST", Path: "/api/v2/separate", Token: u.Token,
				Form: apitest.SeparationForm(k.source), Header: map[string][]string{"Idempotency-Key": {key}}}); err != nil {
				return answer{}
			}
			if res.Status == http.StatusAccepted {
				res.JSON(&body)
			}
			return answer{known: body.JobID != "" || res.Status == http.StatusPaymentRequired, result: body.JobID,
				refused: res.Status == http.StatusPaymentRequired}
		})
		k.mu.Lock()
		if res == nil {
			k.cutOff++
		} else {
			k.answers[res.Status]++
		}
		k.mu.Unlock()
		if res == nil {
			time.Sleep(200 * time.Millisecond)
			continue
		}
		if res.Status != 202 {
			return // no credits, too many requests, or a deleted account
		}
		k.mu.Lock()
		k.accepted[body.JobID] = u.Sub
		k.mu.Unlock()
		if try > 0 || rng.IntN(10) > 0 {
			return
		}
		// Sometimes repeat the request although the response arrived.
	}
}

func (k *soak) anyUp(rng *rand.Rand) (int, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	at := rng.IntN(len(k.up))
	for n := range k.up {
		if i := (at + n) % len(k.up); k.up[i] {
			return i, true
		}
	}
	return 0, false
}

// settle removes all faults, and waits until every job has ended and the file sweeps have run.
func (k *soak) settle() {
	if k.t.Failed() {
		return
	}
	k.s.World.Heal()
	k.restartAll()
	invariants.Wait(k.t, k.db, 3*time.Minute)
	// The file sweeps run when a process starts. They keep uploads without a job for hours, so make these older.
	k.s.Stop(k.t)
	old := time.Now().Add(-7 * time.Hour)
	dir := filepath.Join(k.s.Storage, "objects", "uploads")
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil || path == dir {
			return nil // the folder does not exist if there is a bucket
		}
		return os.Chtimes(path, old, old)
	})
	if err != nil {
		k.t.Error(err)
	}
	k.s.Restart(k.t)
}
