// The world of a schedule: its replicas, their crashes and clocks, the requests of its users, and the plan that
// determines them.

package simulation

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"cutroom/internal/base/clock"
	"cutroom/internal/base/db"
	"cutroom/internal/domain/account"
	"cutroom/internal/domain/credit"
	"cutroom/internal/domain/render"
	"cutroom/internal/domain/separation"
	"cutroom/internal/film/media"
	"cutroom/internal/film/timeline"
	"cutroom/internal/storage/staging"
	"cutroom/internal/upstream/separator"
	"cutroom/internal/work/derived"
	"cutroom/internal/work/events"
	"cutroom/internal/work/idempotency"
	"cutroom/internal/work/job"
	"cutroom/internal/work/sweep"
)

// world is what the replicas of one schedule share.
type world struct {
	plan     plan
	db       *database
	dir      string
	sched    *scheduler
	bucket   *bucket
	provider *provider
	receiver *receiver
	ahead    time.Duration // of the database's clock
	down     int           // number of crashes and stops

	replicas []*replica // the current ones, dead or alive
	all      sync.WaitGroup
	waiting  atomic.Int64 // clients without an answer so far
	stopped  bool         // start no more replicas

	judge *judge
}

// replica is one process of the service.
type replica struct {
	world       *world
	number      int
	name        string
	dead        atomic.Bool
	ended       sync.WaitGroup
	frozenUntil time.Time
	cancel      context.CancelFunc

	db          *db.DB
	renewer     *job.Renewer
	sweeper     *sweep.Sweeper
	separations *separation.Service
	renders     *render.Service
	accounts    *account.Service
	credits     *credit.Ledger
	dispatcher  *events.Dispatcher
}

var quietLog = slog.New(slog.DiscardHandler)

const replicas = 2

// The simulated lifetimes. They are shorter than in production, so that a schedule reaches what happens at their end.
const (
	stuckAfter  = 30 * time.Second
	pollTimeout = 90 * time.Second
	busyWait    = time.Minute
	jobTimeout  = 2 * time.Minute
	sweepEvery  = 10 * time.Second
	inFlight    = 2 // separations at the provider
	longLife    = 30 * 24 * time.Hour
)

// start starts a replica, or starts it again.
func (w *world) start(number int) {
	life := 0
	if old := w.replicas[number]; old != nil {
		life = w.down
	}
	r := &replica{world: w, number: number, name: fmt.Sprintf("r%d/%d", number, life)}
	w.replicas[number] = r
	ctx, cancel := context.WithCancel(r.context(context.Background()))
	r.cancel = cancel
	if err := r.build(); err != nil {
		panic(err)
	}
	for _, run := range []func(context.Context){
		func(ctx context.Context) { _ = r.separations.Run(ctx) },
		func(ctx context.Context) { _ = r.renders.Run(ctx) },
		func(ctx context.Context) { r.renewer.RunExclusive(ctx, "events", r.dispatcher.Run) },
		func(ctx context.Context) { r.renewer.RunExclusive(ctx, "sweep", r.sweep) },
		func(ctx context.Context) {
			_ = job.Replica{ID: r.name, Offers: func(context.Context) (int, int64) { return 1, 1 << 40 }, Log: quietLog}.Run(ctx, r.db)
		},
	} {
		w.all.Add(1)
		r.ended.Go(func() { defer w.all.Done(); run(ctx) })
	}
}

func (r *replica) build() error {
	w := r.world
	work := filepath.Join(w.dir, fmt.Sprintf("r%d", r.number))
	if err := os.MkdirAll(work, 0o700); err != nil {
		return err
	}
	r.db = w.db.DB
	r.renewer = job.NewRenewer(r.db, r.name, quietLog)
	s := store{r}
	r.sweeper = sweep.New(sweep.Options{DB: r.db, Store: s, Log: quietLog,
		Rules: append(separation.SweepRules(time.Hour), render.SweepRules(time.Hour, 24*time.Hour)...)})
	able := func(context.Context) (int64, error) { return 1 << 40, nil }
	onDemand := derived.New(derived.Options{AtOnce: 1, PerHolder: 1, MaxWait: 8 * time.Second, Space: derived.NewSpace(able), Log: quietLog})
	client, err := separator.New(separator.Config{BaseURL: "https://provider.test", StorageBaseURL: "https://storage.test", APIKey: "key", SpaceID: 1, Observe: func(http.RoundTripper) http.RoundTripper { return line{r} }})
	if err != nil {
		return err
	}
	r.separations = separation.New(separation.Options{DB: r.db, Renewer: r.renewer, Sweeper: r.sweeper, Store: s, Media: soundMeter{}, OnDemand: onDemand,
		Analyses: media.NewFairSlots(media.FairLimits{Slots: 2}), Provider: client, CanWork: able, WorkDir: work, PublicBaseURL: "https://api.test",
		SigningSecret: "a secret of at least thirty-two characters", URLLifetime: time.Hour, JobLifetime: longLife, AbandonAfter: longLife, InFlight: inFlight,
		StuckAfter: stuckAfter, PollEvery: 2 * time.Second, PollTimeout: pollTimeout, BusyWait: busyWait, Log: quietLog})
	r.renders = render.New(render.Options{DB: r.db, Renewer: r.renewer, Store: s, Separations: r.separations, Sweeper: r.sweeper, Engine: renderEngine{r},
		Slots: media.NewSlots(1), OnDemand: onDemand, CanWork: able, WorkDir: work, Timeout: jobTimeout, InputLifetime: longLife, JobLifetime: longLife,
		OutputLifetime: longLife, SignedURLLife: time.Minute, EraseCaches: func(context.Context, string) error { return nil }, Log: quietLog})
	r.credits = credit.New(credit.Options{DB: r.db, Catalog: map[string]int64{product: productCredits}, Stores: map[string]credit.Store{credit.PlatformA: appStore{r}},
		Log: quietLog})
	r.accounts = account.New(account.Options{DB: r.db, Tokens: account.NewTokens("a secret of at least thirty-two characters", time.Hour), Credits: r.credits,
		Erasers: []account.Eraser{r.separations.Erase, r.renders.Erase}, Session: time.Hour, MaxTokenLife: time.Hour, Log: quietLog})
	r.dispatcher = events.New(events.Options{DB: r.db, Log: quietLog, Observe: func(string, string) {},
		Webhook: &events.Webhook{URL: "https://hook.test", Secrets: [][]byte{[]byte("secret")}, HTTP: &http.Client{Transport: post{r}}}})
	return nil
}

// sweep runs the sweeps as package app does.
func (r *replica) sweep(ctx context.Context) {
	var rounds sync.WaitGroup
	round := func(interval time.Duration, tasks ...func(context.Context) error) {
		rounds.Go(func() {
			tick := time.NewTicker(interval)
			defer tick.Stop()
			for fresh := r.world.down == 0; ctx.Err() == nil; fresh = false {
				for _, task := range tasks {
					if !fresh { // a new replica has nothing to sweep
						_ = task(ctx)
					}
				}
				select {
				case <-tick.C:
				case <-ctx.Done():
				}
			}
		})
	}
	round(sweepEvery, r.separations.SweepJobs, r.renders.SweepJobs)
	round(time.Minute, r.accounts.FinishErasures, func(ctx context.Context) error { return idempotency.Sweep(ctx, r.db) })
	round(time.Hour, r.expire)
	rounds.Wait()
}

func (r *replica) expire(ctx context.Context) error {
	for _, task := range []func(context.Context) error{r.separations.Expire, r.renders.Expire, func(ctx context.Context) error { return r.sweeper.Sweep(ctx, false) }} {
		if err := task(ctx); err != nil {
			return err
		}
	}
	return nil
}

// crash ends a replica: none of its later calls takes effect.
func (r *replica) crash() {
	if !r.dead.Swap(true) {
		r.cancel()
		r.comeBack()
	}
}

// stop makes a replica hand back its work.
func (r *replica) stop() {
	r.cancel()
	w := r.world
	w.all.Go(func() { r.ended.Wait(); r.comeBack() })
}

// comeBack starts the replica again, sometimes before and sometimes after its leases expire.
func (r *replica) comeBack() {
	w := r.world
	w.down++
	if w.stopped {
		return
	}
	down := []time.Duration{2 * time.Second, 15 * time.Second}[w.down%2]
	w.sched.later(down, func() {
		if !w.stopped && w.replicas[r.number] == r {
			w.start(r.number)
		}
	})
}

// stopAll stops all replicas and waits for their goroutines.
func (w *world) stopAll() {
	w.stopped = true
	w.down++
	for _, r := range w.replicas {
		r.cancel()
	}
	ended := make(chan struct{})
	go func() { w.all.Wait(); close(ended) }()
	w.sched.run(10*time.Minute, func() bool {
		select {
		case <-ended:
			return true
		default:
			return false
		}
	})
}

// jump moves the database's clock ahead of the replicas' clocks.
func (w *world) jump(by time.Duration) {
	w.ahead += by
	clock.Advance(w.ahead)
}

// The product that users buy.
const (
	product        = "credits.10"
	productCredits = 10
	signupCredits  = 2
)

// The kinds of requests.
const (
	nothing = iota
	separate
	film
	buy
	deleteJob
	deleteAccount
)

var requestNames = []string{"nothing", "separate", "film", "buy", "delete job", "delete account"}

// request is what a user asks for.
type request struct {
	number, what, user int
	at                 time.Duration
	copies             int // sent at the same time
	of                 int // the number of the request whose job is deleted
}

func (q request) key() string { return fmt.Sprintf("key-%d", q.number) }

func userID(n int) string { return fmt.Sprintf("00000000-0000-0000-0000-%012d", n) }

// maxRequests bounds the requests of a schedule.
const maxRequests = 4

func drawRequests(rng *rand.Rand) (out []request) {
	users, within := 1+rng.IntN(2), []int{3_000, 6_000, 12_000}[rng.IntN(3)]
	for n := range 1 + rng.IntN(maxRequests) {
		q := request{number: n, user: rng.IntN(users), at: time.Duration(rng.IntN(within)) * time.Millisecond, copies: 1}
		switch k := rng.IntN(16); {
		case n == 0 && k < 10, k < 6:
			q.what = separate
		case n == 0, k < 10:
			q.what = film
		case k < 12:
			q.what = buy
		case k < 14:
			q.what, q.of = deleteJob, rng.IntN(n)
			q.user = out[q.of].user
		default:
			q.what = deleteAccount
		}
		if rng.IntN(4) == 0 {
			q.copies = 2
		}
		out = append(out, q)
	}
	return out
}

// send sends a request until it is answered, at most three times.
func (w *world) send(q request, copyNo int) {
	if q.what == nothing {
		return
	}
	w.waiting.Add(1)
	background := context.WithValue(context.Background(), clientKey{}, 1+q.number*10+copyNo)
	w.all.Go(func() {
		defer w.waiting.Add(-1)
		time.Sleep(q.at)
		for try := range 3 {
			r := w.replicas[(q.user+copyNo+try)%replicas]
			ctx, cancel := context.WithTimeout(db.WithLimit(background, 8*time.Second), 30*time.Second)
			answer, err := w.serve(r.context(ctx), r, q)
			cancel()
			if err == nil {
				w.judge.answered(q, answer)
				return
			}
			time.Sleep(time.Second)
		}
	})
}

// serve handles a request on a replica.
func (w *world) serve(ctx context.Context, r *replica, q request) (answer string, err error) {
	owner := userID(q.user)
	key := idempotency.Key{UserID: owner, Value: q.key(), Fingerprint: "same"}
	switch q.what {
	case separate:
		return r.separations.Submit(ctx, owner, sourceFile(w.dir, "sound.wav"), "auto", key)
	case film:
		return r.renders.Submit(ctx, owner, render.Submission{Timeline: timeline.Legacy("video", time.Second),
			Files: map[string]staging.File{"video": sourceFile(w.dir, "film.mp4")}}, key)
	case buy:
		_, err := r.credits.Purchase(ctx, owner, credit.PurchaseRequest{Platform: credit.PlatformA, TransactionID: q.key(), Receipt: "receipt", ProductID: product})
		return "", err
	case deleteAccount:
		return "", r.accounts.Delete(ctx, owner, "test")
	}
	switch of := w.plan.requests[q.of]; of.what {
	case separate:
		return "", r.separations.Delete(ctx, owner, w.judge.answers[of.number])
	case film:
		return "", r.renders.Delete(ctx, owner, w.judge.answers[of.number])
	}
	return "", nil
}

// sources are the uploads of all schedules.
var sources = map[string]string{
	"sound.wav": "RIFF\x24\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00\x80\x3e\x00\x00\x00\x7d\x00\x00\x02\x00\x10\x00data\x00\x00\x00\x00",
	"film.mp4":  "\x00\x00\x00\x18ftypmp42\x00\x00\x00\x00mp42isom\x00\x00\x00\x08moov",
}

func sourceFile(dir, name string) staging.File {
	return staging.File{Name: name, FileName: name, Path: filepath.Join(dir, name), SizeBytes: int64(len(sources[name])), SHA256: fmt.Sprintf("%064d", len(name))}
}

// plan is everything that determines a schedule.
type plan struct {
	order    uint64 // the seed of the order of calls
	requests []request
	faults   []fault
}

func (p plan) String() string {
	told := []string{fmt.Sprintf("order %d", p.order)}
	for _, q := range p.requests {
		told = append(told, fmt.Sprintf("request %d: %s by user %d after %v, %d at once, of request %d", q.number, requestNames[q.what], q.user, q.at, q.copies, q.of))
	}
	for _, f := range p.faults {
		told = append(told, fmt.Sprintf("fault: %v, from call %d on (%d)", f.kind, f.at, f.arg))
	}
	return strings.Join(told, "\n")
}

func drawPlan(seed uint64) plan {
	rng := rand.New(rand.NewPCG(seed, 0))
	return plan{order: seed, requests: drawRequests(rng), faults: drawFaults(rng)}
}

// disturbed is how long faults may strike.
const disturbed = 40 * time.Second

// run runs a schedule in a bubble, and returns what is wrong.
func (w *world) run() {
	uuid.SetRand(rand.NewChaCha8([32]byte{byte(w.plan.order), byte(w.plan.order >> 8), byte(w.plan.order >> 16), byte(w.plan.order >> 24)}))
	w.jump(0)
	w.replicas = make([]*replica, replicas)
	for n := range w.replicas {
		w.start(n)
	}
	for _, q := range w.plan.requests {
		for n := range q.copies {
			w.send(q, n)
		}
	}
	over := func() bool { return w.judge.failed() || w.settled() }
	w.sched.run(disturbed, over)
	w.sched.quiet = true
	w.sched.run(12*time.Second, over)
	w.stopAll()
	for restarts := 0; restarts < 30 && !over(); restarts++ {
		time.Sleep(time.Minute)
		w.stopped = false
		w.start(0)
		w.sched.run(12*time.Second, over)
		w.stopAll()
	}
	if !w.judge.failed() {
		w.judge.end()
	}
}

// settled reports whether nothing is left to do.
func (w *world) settled() bool { return w.waiting.Load() == 0 && w.judge.open() == 0 }
