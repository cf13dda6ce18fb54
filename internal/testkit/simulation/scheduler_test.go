// The scheduler: it lets calls pass one at a time, in an order that the seed determines, and strikes some with faults.

package simulation

import (
	"cmp"
	"context"
	"database/sql/driver"
	"fmt"
	"hash/maphash"
	"io"
	"math/rand/v2"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// scheduler lets calls pass one at a time: calls to the database, the store, the provider, the app store and the
// receiver of web hooks. Between two calls a goroutine touches nothing that it shares with another replica, so the
// order of the calls is the schedule. All its methods are called in the bubble of one schedule.
type scheduler struct {
	order  *rand.Rand // which call goes next
	faults []fault    // sorted by position; faults that struck are removed
	quiet  bool       // no more faults and delays

	mu      sync.Mutex
	parked  []*call
	arrived chan struct{} // a call arrived, or may be ready

	events []event // sorted by time

	steps, strikable int
	digest           uint64 // of all steps; another run of the seed has the same
	trace            *trace // nil unless the steps are printed
	after            func(c *call)
	touched          tables  // by the current step
	tx               txFault // of the current transaction
}

// event is something that the scheduler does at a set time. A separate timer would race with those of the service.
type event struct {
	at time.Time
	do func()
}

// later schedules an event.
func (s *scheduler) later(after time.Duration, do func()) {
	s.events = append(s.events, event{time.Now().Add(after), do})
	slices.SortStableFunc(s.events, func(a, b event) int { return a.at.Compare(b.at) })
}

// call is one call that waits for its turn.
type call struct {
	from    *replica
	what    string
	args    []any
	weight  weight
	ctx     context.Context
	resume  chan fault
	until   time.Time   // held back until then
	frozen  bool        // a deadline does not end the wait
	way     [32]uintptr // the stack that led to the call, to tell apart equal calls
	caller  string      // for the trace
	strikes bool        // a fault was chosen for it
}

// weight determines which faults suit a call.
type weight int

const (
	read        weight = iota // without effect: few faults
	write                     // one statement, or one request of the store
	transaction               // with a statement in which it can fail
	paid                      // to the provider
	other                     // to the app store, or of a web hook
)

// The errors of simulated faults.
var (
	errCrashed = fmt.Errorf("simulated: the replica crashed: %w", io.ErrUnexpectedEOF)
	errLost    = fmt.Errorf("simulated: connection lost: %w", io.ErrUnexpectedEOF)
)

func newScheduler(order uint64, faults []fault) *scheduler {
	return &scheduler{order: rand.New(rand.NewPCG(order, 1)), faults: slices.Clone(faults), arrived: make(chan struct{}, 1)}
}

// pass waits for the turn of a call and returns the fault that strikes it.
func (s *scheduler) pass(ctx context.Context, from *replica, w weight, what string, args ...any) (fault, error) {
	if from.dead.Load() {
		return fault{}, errCrashed
	}
	c := &call{from: from, what: what, args: args, weight: w, ctx: ctx, resume: make(chan fault, 1)}
	runtime.Callers(3, c.way[:])
	if s.trace != nil {
		c.caller = caller()
	}
	if from.frozenUntil.After(time.Now()) {
		c.until, c.frozen = from.frozenUntil, true
	}
	s.mu.Lock()
	s.parked = append(s.parked, c)
	s.mu.Unlock()
	s.wake()
	f := s.await(c)
	switch {
	case from.dead.Load():
		return fault{}, errCrashed
	case ctx.Err() != nil:
		return fault{}, context.Cause(ctx)
	}
	return f, nil
}

// await waits for the turn of a call, or for the end of its context unless its replica is frozen. The end of a context
// is not a step, because a goroutine may or may not make another call after it.
func (s *scheduler) await(c *call) fault {
	select {
	case f := <-c.resume:
		return f
	case <-c.ctx.Done():
	}
	s.mu.Lock()
	frozen := c.frozen && !s.quiet && c.until.After(time.Now())
	if !frozen {
		s.parked = slices.DeleteFunc(s.parked, func(p *call) bool { return p == c })
	}
	s.mu.Unlock()
	if frozen {
		return <-c.resume
	}
	return fault{}
}

func (s *scheduler) wake() {
	select {
	case s.arrived <- struct{}{}:
	default:
	}
}

// run makes steps until done returns true or the time limit passes.
func (s *scheduler) run(limit time.Duration, done func() bool) {
	end := time.Now().Add(limit)
	for {
		synctest.Wait()
		if s.refuseDead() {
			continue
		}
		if len(s.events) > 0 && !s.events[0].at.After(time.Now()) {
			do := s.events[0].do
			s.events = s.events[1:]
			do()
			continue
		}
		if c := s.next(); c != nil {
			s.step(c)
			continue
		}
		if done() || !time.Now().Before(end) {
			return
		}
		s.idle(end)
	}
}

// idle lets time pass until a call is ready.
func (s *scheduler) idle(end time.Time) {
	if len(s.events) > 0 && s.events[0].at.Before(end) {
		end = s.events[0].at
	}
	for _, c := range s.parked {
		if c.until.Before(end) {
			end = c.until
		}
	}
	timer := time.NewTimer(max(time.Millisecond, time.Until(end)))
	defer timer.Stop()
	select {
	case <-s.arrived:
	case <-timer.C:
	}
}

// refuseDead ends the calls of dead replicas. That is not a step either.
func (s *scheduler) refuseDead() (any bool) {
	var over []*call
	s.mu.Lock()
	s.parked = slices.DeleteFunc(s.parked, func(c *call) bool {
		dead := c.from.dead.Load()
		if dead {
			over = append(over, c)
		}
		return dead
	})
	s.mu.Unlock()
	for _, c := range over {
		c.resume <- fault{}
	}
	return len(over) > 0
}

// next chooses one of the ready calls.
func (s *scheduler) next() *call {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	var ready []*call
	for _, c := range s.parked {
		if s.quiet || !c.until.After(now) {
			ready = append(ready, c)
		}
	}
	if len(ready) == 0 {
		return nil
	}
	c := ready[0]
	if len(ready) > 1 {
		slices.SortStableFunc(ready, compareCalls)
		c = ready[s.order.IntN(len(ready))]
	}
	s.parked = slices.DeleteFunc(s.parked, func(p *call) bool { return p == c })
	return c
}

func compareCalls(a, b *call) int {
	if n := cmp.Or(cmp.Compare(a.from.number, b.from.number), strings.Compare(a.what, b.what)); n != 0 {
		return n
	}
	return cmp.Or(strings.Compare(fmt.Sprint(a.args...), fmt.Sprint(b.args...)), slices.Compare(a.way[:], b.way[:]), cmp.Compare(client(a.ctx), client(b.ctx)))
}

// client is the number of the request that the call serves, or 0.
func client(ctx context.Context) int {
	n, _ := ctx.Value(clientKey{}).(int)
	return n
}

type clientKey struct{}

// step lets a call pass, with the fault that strikes it, and waits until all goroutines block.
func (s *scheduler) step(c *call) {
	var f fault
	if !s.quiet {
		f = s.strike(c)
	}
	if f.kind == stall || f.kind == freeze {
		s.tell(c, f.kind)
		s.mu.Lock()
		s.parked = append(s.parked, c)
		s.mu.Unlock()
		return
	}
	s.steps++
	s.tell(c, f.kind)
	s.touched = tables{}
	c.resume <- f
	if c.weight != read {
		time.Sleep(time.Millisecond) // so that no two rows have the same time
	}
	synctest.Wait()
	if s.touched != (tables{}) {
		s.after(c)
	}
}

// tables are the ones that the judge has to check.
type tables struct{ jobs, money bool }

func (t *tables) note(query string) {
	t.jobs = t.jobs || strings.Contains(query, " jobs ")
	t.money = t.money || strings.Contains(query, "credit_")
}

// strike returns the fault for a call.
func (s *scheduler) strike(c *call) fault {
	if c.from.dead.Load() || c.strikes {
		return fault{}
	}
	if c.weight != read {
		s.strikable++
	}
	for i, f := range s.faults {
		if f.at > s.strikable {
			break
		}
		if !f.suits(c) {
			continue
		}
		s.faults = slices.Delete(s.faults, i, i+1)
		c.strikes = true
		switch f.kind {
		case stall:
			c.until = time.Now().Add(f.long())
		case freeze:
			c.from.frozenUntil = time.Now().Add(f.long())
			c.until, c.frozen = c.from.frozenUntil, true
			s.freeze(c.from)
		case crashBefore:
			c.from.crash()
		case jump:
			c.from.world.jump(f.long())
		case stop:
			c.from.stop()
		}
		return f
	}
	return fault{}
}

// freeze holds back all calls of the replica.
func (s *scheduler) freeze(r *replica) {
	for _, c := range s.parked {
		if c.from == r {
			c.until, c.frozen = r.frozenUntil, true
		}
	}
}

// hashSeed is the seed of digests, which are only compared within one process.
var hashSeed = maphash.MakeSeed()

func (s *scheduler) tell(c *call, k kind) {
	for _, n := range []uint64{uint64(c.from.number), uint64(k), uint64(time.Now().UnixMilli()), maphash.String(hashSeed, c.what)} {
		s.digest = (s.digest ^ n) * 1099511628211 // like FNV
	}
	if s.trace != nil {
		s.trace.step(c, k)
	}
}

// txFault is a fault within a transaction.
type txFault struct {
	kind kind
	at   int // which statement, from 0
	seen int
}

// pass waits for the turn of a statement of its own, or of the begin of a transaction. The returned function maps the
// call's error.
func (r *replica) pass(ctx context.Context, query string, args []driver.NamedValue) (after func(error) error, err error) {
	s := r.world.sched
	values := make([]any, len(args))
	for i, a := range args {
		values[i] = a.Value
	}
	w := weigh(query)
	f, err := s.pass(ctx, r, w, query, values...)
	if w == write {
		s.touched.note(query)
	}
	switch {
	case err != nil:
		return nil, err
	case f.kind == failBefore:
		return nil, errLost
	case query == begin:
		s.tx = txFault{kind: f.kind, at: f.arg % 4}
		return same, nil
	case f.kind == loseAnswer:
		return func(error) error { return errLost }, nil
	case f.kind == crashAfter:
		return func(error) error { r.crash(); return errCrashed }, nil
	}
	return same, nil
}

// passInTx lets the statements of a transaction pass; together they are one step.
func (r *replica) passInTx(query string) (after func(error) error, err error) {
	r.world.sched.touched.note(query)
	f := &r.world.sched.tx
	here := f.seen == f.at
	f.seen++
	commit := query == "COMMIT"
	switch {
	case r.dead.Load():
		return nil, errCrashed
	case f.kind == deadlock && (here || commit):
		f.kind = none
		return nil, &pgconn.PgError{Code: "40P01", Message: "simulated: deadlock"}
	case f.kind == failInside && (here || commit):
		f.kind = none
		return nil, errLost
	case f.kind == crashInside && (here || commit):
		r.crash()
		return nil, errCrashed
	case commit && f.kind == loseAnswer:
		return func(error) error { return errLost }, nil
	case commit && f.kind == crashAfter:
		return func(error) error { r.crash(); return errCrashed }, nil
	}
	return same, nil
}

// begin stands for the begin of a transaction.
const begin = "BEGIN"

func weigh(query string) weight {
	switch {
	case query == begin:
		return transaction
	case strings.HasPrefix(strings.TrimSpace(query), "SELECT"), strings.HasPrefix(query, "DELETE FROM replicas"):
		return read
	}
	return write
}

func same(err error) error { return err }

// do makes a call to anything but the database. effect happens unless the call fails before it.
func (r *replica) do(ctx context.Context, w weight, what, about string, effect func() error) error {
	f, err := r.world.sched.pass(ctx, r, w, what, about)
	switch {
	case err != nil:
		return err
	case f.kind == failBefore:
		return errLost
	}
	err = effect()
	switch f.kind {
	case loseAnswer:
		return errLost
	case crashAfter:
		r.crash()
		return errCrashed
	}
	return err
}

// caller is the function of the service that makes a call.
func caller() string {
	pcs := make([]uintptr, 48)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs)])
	for {
		f, more := frames.Next()
		pkg, name, _ := strings.Cut(path.Base(f.Function), ".")
		if strings.HasPrefix(f.Function, "cutroom/") && !slices.Contains([]string{"db", "simulation", "cursor", "idempotency", "user", "credit"}, pkg) &&
			!strings.Contains(name, "Retry") && !strings.Contains(name, "(*DB)") { // a closure of DB may be inlined in its caller
			name = strings.TrimSuffix(strings.NewReplacer("(*", "", ")", "").Replace(name), ".func1")
			return pkg + "." + name
		}
		if !more {
			return "client"
		}
	}
}
