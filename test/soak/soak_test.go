// Package soak tries separations against everything at once: random sequences
// of submissions, provider faults, crashes, stops, clock jumps and deletions
// against real processes, and then the invariants that money and the provider's
// limit rest on.
//
//	CUTROOM_SOAK_SECONDS=n   how long (default 40)
//	CUTROOM_SOAK_KILLS=n     until that many crashes instead
//	CUTROOM_SOAK_SEED=n      repeats the sequence of an earlier run
//
// The seed fixes what happens in which order; how it interleaves with the
// service's own work is up to the machine. Which database, and whether there is
// a bucket, is decided as in package apitest.
package soak

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"cutroom/internal/apitest"
	"cutroom/internal/db"
	"cutroom/internal/mediatest"
	"cutroom/internal/sandbox/fake"
	"cutroom/internal/sandbox/separator"
)

func TestMain(m *testing.M) { os.Exit(apitest.Main(m)) }

const (
	limit = 2 // jobs at the provider
	// noticed is how long after its worker's lease a job may lie still: 6 s, and as
	// long as a busy machine takes. Where nobody notices, it lies until it is stuck,
	// which is a minute.
	noticed = 30 * time.Second
)

// soak is one run.
type soak struct {
	t      *testing.T
	s      *apitest.Server
	direct []*apitest.Server // the replicas without the front
	db     *db.DB
	rng    *rand.Rand // of the main sequence
	source string
	began  time.Time

	mu       sync.Mutex
	up       []bool
	users    []*apitest.User
	accepted map[string]string // job -> user, of answers that arrived
	cutOff   int               // submissions without an answer
	answers  map[int]int       // to submissions, by status

	trace   trace
	watch   watch
	away    atomic.Bool // the database
	restart time.Time   // when dead replicas come back; zero: none is dead
	kills   int
	hit     map[string]int // what the killed replicas' jobs were doing
	events  map[string]int
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
	t.Setenv("CUTROOM_TEST_S3", "") // the stand-in's objects can be listed
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

func start(t *testing.T, seed uint64, more ...apitest.Option) *soak {
	replicas := 1
	if apitest.Postgres() {
		replicas = 2
	}
	k := &soak{t: t, rng: rand.New(rand.NewPCG(seed, 0)), began: time.Now(), accepted: map[string]string{}, answers: map[int]int{},
		hit: map[string]int{}, events: map[string]int{}, up: make([]bool, replicas)}
	opts := append(more, apitest.Replicas(replicas))
	for key, value := range map[string]string{
		"SEPARATION_MAX_PROVIDER_IN_FLIGHT": strconv.Itoa(limit), "SEPARATION_STUCK_SUBMITTING_SEC": "60",
		"SEPARATION_ABANDON_TTL_MS": "60000", "SEPARATION_URL_TTL_SEC": "60", "PROVIDER_MAX_POLL_MINUTES": "2",
		"HTTP_CONNECT_TIMEOUT_MS": "2000", "HTTP_REQUEST_TIMEOUT_MS": "4000", "HTTP_SOCKET_TIMEOUT_MS": "3000",
	} {
		opts = append(opts, apitest.Env(key, value))
	}
	k.s = apitest.Start(t, opts...)
	for i := range replicas {
		k.direct = append(k.direct, k.s.Replica(i))
		k.up[i] = true
	}
	var err error
	k.db, err = db.Open(t.Context(), db.Options{URL: k.s.Config("DATABASE_URL"), User: k.s.Config("DB_USER"),
		Password: k.s.Config("DB_PASSWORD"), MaxPool: 4})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { k.db.Close() })
	k.source = mediatest.Tone(t, 1200, 500*time.Millisecond)
	for range 8 {
		k.users = append(k.users, k.direct[0].SignIn(t, apitest.Credits(60)))
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("what happened:\n%s", k.trace.String())
		}
	})
	return k
}

// work starts the submitters and the sampler; stop waits for their end.
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
	all.Go(func() { k.sample(quit) })
	return func() { close(quit); all.Wait() }
}

// submit posts a job to a replica that is up, with an idempotency key; where
// the answer is lost, it is asked for again elsewhere, as a client would.
func (k *soak) submit(rng *rand.Rand) {
	if active, err := k.active(); err != nil || active > 8 {
		return // enough for now
	}
	k.mu.Lock()
	u := *k.users[rng.IntN(len(k.users))]
	k.mu.Unlock()
	key := fmt.Sprintf("soak-%d", rng.Uint64())
	first := ""
	for try := range 3 {
		i, ok := k.anyUp(rng)
		if !ok {
			return
		}
		u.Server = k.direct[i]
		res, err := u.TryDo(k.t, apitest.Request{Method: "POST", Path: "/api/v2/separate", Token: u.Token,
			Form: apitest.SeparationForm(k.source), Header: map[string][]string{"Idempotency-Key": {key}}})
		k.mu.Lock()
		if err != nil {
			k.cutOff++
		}
		k.mu.Unlock()
		if err != nil {
			time.Sleep(200 * time.Millisecond)
			continue
		}
		k.mu.Lock()
		k.answers[res.Status]++
		k.mu.Unlock()
		if res.Status != 202 {
			return // no credits left, too many requests, or the account is gone
		}
		var body struct{ JobID string }
		res.JSON(&body)
		if first != "" && first != body.JobID {
			k.t.Errorf("one idempotency key made %s and %s", first, body.JobID)
		}
		first = body.JobID
		k.mu.Lock()
		k.accepted[body.JobID] = u.Sub
		k.mu.Unlock()
		if try > 0 || rng.IntN(10) > 0 {
			return
		}
		// Now and then ask again although the answer came.
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

// event is one thing that may happen, this often in proportion.
type event struct {
	name   string
	weight int
	do     func()
}

// step lets one thing happen.
func (k *soak) step() {
	if !k.restart.IsZero() && time.Now().After(k.restart) {
		k.bringUp()
	}
	events := []event{
		{"fault", 24, k.fault},
		{"heal", 8, func() { k.s.World.Heal() }},
		{"behaviour", 10, k.behave},
		{"kill", 16, k.kill},
		{"stop", 3, k.stop},
		{"jump", 3, k.jump},
		{"look", 10, k.look},
		{"lull", 3, k.lull},
		{"delete account", 1, k.deleteAccount},
	}
	total := 0
	for _, e := range events {
		total += e.weight
	}
	pick := k.rng.IntN(total)
	for _, e := range events {
		if pick -= e.weight; pick < 0 {
			k.events[e.name]++
			e.do()
			break
		}
	}
	time.Sleep(time.Duration(k.rng.IntN(700)) * time.Millisecond)
}

// lull leaves the service in peace for a while, so that some jobs get to their
// end between the crashes.
func (k *soak) lull() {
	if !k.restart.IsZero() {
		return
	}
	k.s.World.Heal()
	k.s.World.Separator.Configure(func(b *separator.Behaviour) { b.HoldAtPercent, b.FailAtPercent = 0, 0 })
	time.Sleep(time.Duration(3000+k.rng.IntN(5000)) * time.Millisecond)
}

var steps = []string{separator.StepUploadToken, separator.StepUpload, separator.StepRegister, separator.StepSubmit,
	separator.StepProgress, separator.StepProject, separator.StepDownload}

// fault spoils one or two of the next calls of a step. Delays are the most
// frequent: they hold a job in one place long enough to be killed there.
func (k *soak) fault() {
	rule := fake.Rule{Step: steps[k.rng.IntN(len(steps))], Times: 1 + k.rng.IntN(2), Nth: 1 + k.rng.IntN(2)}
	switch n := k.rng.IntN(20); {
	case n < 11:
		rule.Kind, rule.DelayMs = fake.KindDelay, 200+k.rng.IntN(1800)
	case n < 13:
		rule.Kind, rule.Status = fake.KindStatus, []int{401, 402, 404, 429, 500, 503}[k.rng.IntN(6)]
	case n < 15:
		rule.Kind, rule.Effect = fake.KindClose, k.rng.IntN(2) == 0
	case n < 16:
		rule.Kind = fake.KindGarbage
	case n < 17:
		rule.Kind = fake.KindCut
	case n < 18:
		rule.Kind, rule.DelayMs = fake.KindStall, 5000
	case n < 19:
		rule.Kind = fake.KindLength
	default:
		rule.Kind = fake.KindCutUpload
	}
	k.trace.add("fault %+v", rule)
	k.s.World.FailSeparator(k.t, rule)
}

func (k *soak) behave() {
	k.s.World.Separator.Configure(func(b *separator.Behaviour) {
		b.ProcessingMs = 50 + k.rng.IntN(1500)
		b.FailAtPercent, b.HoldAtPercent = 0, 0
		switch k.rng.IntN(16) {
		case 0:
			b.FailAtPercent = 1 + k.rng.IntN(99)
		case 1:
			b.HoldAtPercent = 1 + k.rng.IntN(99)
		}
		k.trace.add("behaviour: %d ms, hold at %d, fail at %d", b.ProcessingMs, b.HoldAtPercent, b.FailAtPercent)
	})
}

// kill crashes a replica, or all of them. They come back after a while; where
// another goes on, sometimes only after it has taken over.
func (k *soak) kill() {
	victims := k.running()
	if len(victims) == 0 {
		return
	}
	if len(victims) > 1 && k.rng.IntN(4) > 0 {
		victims = victims[k.rng.IntN(len(victims)):][:1]
	}
	if k.rng.IntN(3) > 0 {
		k.lieInWait()
	}
	down := time.Duration(100+k.rng.IntN(1500)) * time.Millisecond
	if len(victims) < len(k.up) && k.rng.IntN(6) == 0 {
		down = 13 * time.Second
	}
	for state, n := range k.states() {
		k.hit[state] += n
	}
	k.setUp(false, victims...)
	for _, i := range victims {
		k.s.KillReplica(k.t, i)
		k.kills++
	}
	k.trace.add("kill %v, back in %v", victims, down)
	k.restart = time.Now().Add(down)
}

// lieInWait waits, not for long, until a job is in a state that passes quickly,
// and then for a part of it.
func (k *soak) lieInWait() {
	for _, prey := range []string{"SUBMITTING", asking} {
		if k.rng.IntN(2) == 0 {
			continue
		}
		for deadline := time.Now().Add(2 * time.Second); k.states()[prey] == 0 && time.Now().Before(deadline); {
			time.Sleep(5 * time.Millisecond)
		}
		time.Sleep(time.Duration(k.rng.IntN(60)) * time.Millisecond)
		return
	}
	time.Sleep(time.Duration(k.rng.IntN(300)) * time.Millisecond)
}

// stop ends a replica with SIGTERM and waits until it has handed back its jobs.
func (k *soak) stop() {
	victims := k.running()
	if len(victims) == 0 {
		return
	}
	i := victims[k.rng.IntN(len(victims))]
	k.setUp(false, i)
	pid := k.s.PID(i)
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		k.t.Errorf("SIGTERM: %v", err)
	}
	k.trace.add("stop %d", i)
	apitest.Eventually(k.t, 2*time.Minute, func() bool { return syscall.Kill(pid, 0) != nil }, func() string { return "a replica does not stop" })
	k.restart = time.Now().Add(time.Duration(k.rng.IntN(1000)) * time.Millisecond)
}

func (k *soak) bringUp() {
	k.s.Restart(k.t)
	k.restart = time.Time{}
	all := make([]int, len(k.up))
	for i := range all {
		all[i] = i
	}
	k.setUp(true, all...)
	k.trace.add("all up")
}

func (k *soak) setUp(up bool, replicas ...int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, i := range replicas {
		k.up[i] = up
	}
}

func (k *soak) running() []int {
	k.mu.Lock()
	defer k.mu.Unlock()
	var out []int
	for i, up := range k.up {
		if up {
			out = append(out, i)
		}
	}
	return out
}

// jump moves every time in the database into the past, as if all clocks had
// jumped ahead: not quite over a lease, over a lease, over the threshold of
// SUBMITTING, over that of polling, or over all of them.
func (k *soak) jump() {
	by := []time.Duration{5 * time.Second, 12 * time.Second, 12 * time.Second, 70 * time.Second, 130 * time.Second}[k.rng.IntN(5)]
	if k.rng.IntN(12) == 0 {
		by = 31 * time.Minute
	}
	k.trace.add("jump %v", by)
	k.watch.pause()
	err := k.db.InTx(k.t.Context(), func(tx *db.Tx) error {
		for table, columns := range map[string][]string{
			"separation_jobs": {"created_at", "submitting_at", "submit_intent_at", "processing_at", "ready_at", "collected_at", "finished_at", "lease_until"},
			"nodes":           {"seen_at"}, "users": {"erasing_at"}, "idempotency_keys": {"created_at"},
		} {
			set := ""
			for i, c := range columns {
				if i > 0 {
					set += ", "
				}
				set += c + " = " + c + " - $1"
			}
			if _, err := tx.Exec(k.t.Context(), "UPDATE "+table+" SET "+set, by.Milliseconds()); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		k.t.Errorf("jump: %v", err)
	}
}

// look reads a job as its owner does, and collects a stem if there is one.
func (k *soak) look() {
	k.mu.Lock()
	var id, owner string
	for id, owner = range k.accepted {
		break
	}
	k.mu.Unlock()
	i, ok := k.anyUp(k.rng)
	for _, u := range k.users {
		if !ok || u.Sub != owner {
			continue
		}
		at := *u
		at.Server = k.direct[i]
		for _, stem := range at.Separation(k.t, id).Stems {
			// 404: disposed of in between.
			res := at.Do(k.t, apitest.Request{Path: stem.URL[len(k.s.Config("PUBLIC_BASE_URL")):]})
			if res.Status != 200 && res.Status != 404 {
				k.t.Errorf("stem: %d", res.Status)
			}
			break
		}
	}
}

func (k *soak) deleteAccount() {
	i, ok := k.anyUp(k.rng)
	if !ok {
		return
	}
	fresh := k.direct[i].SignIn(k.t, apitest.Credits(60))
	k.mu.Lock()
	n := k.rng.IntN(len(k.users))
	gone := *k.users[n]
	k.users[n] = fresh
	k.mu.Unlock()
	k.trace.add("delete account %s", gone.Sub)
	gone.Server = k.direct[i]
	gone.Send(k.t, apitest.Request{Method: "DELETE", Path: "/api/v2/auth/account"}).Expect(204)
}

// settle ends all trouble and waits until every job has ended, and the sweeps
// have been over the files.
func (k *soak) settle() {
	if k.t.Failed() {
		return
	}
	k.s.World.Heal()
	k.s.World.Separator.Configure(func(b *separator.Behaviour) { b.ProcessingMs, b.HoldAtPercent, b.FailAtPercent = 100, 0, 0 })
	k.bringUp()
	left := 0
	apitest.Eventually(k.t, 3*time.Minute, func() bool {
		var err error
		left, err = k.active()
		return err == nil && left == 0
	}, func() string { return fmt.Sprintf("%d jobs have not ended", left) })
	// The sweeps of files run when a process starts. Uploads without a job are
	// kept for hours, so they are made older.
	k.s.Stop(k.t)
	old := time.Now().Add(-7 * time.Hour)
	dir := filepath.Join(k.s.Storage, "objects", "uploads")
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil || path == dir {
			return nil // with a bucket, the folder is missing
		}
		return os.Chtimes(path, old, old)
	})
	if err != nil {
		k.t.Error(err)
	}
	k.s.Restart(k.t)
}
