// Runs schedules: many seeds in several processes, the shrinking of a failing plan, and the trace of its steps.

package simulation

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"cutroom/internal/base/clock"
	"cutroom/internal/testkit/jobtest"
)

var (
	seedFlag  = flag.Int64("seed", -1, "replay this seed alone, and tell every step")
	schedules = flag.Int("schedules", 500, "how many schedules TestSchedules runs")
	processes = flag.Int("processes", 1, "how many processes TestSchedules divides its schedules among")
	repeats   = flag.Int("repeats", 50, "how many seeds TestSeedsRepeat runs twice")
	firstSeed = flag.Uint64("first", 1, "the first seed of TestSchedules")
)

func TestMain(m *testing.M) {
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(1600) // there are few live objects
	clock.NoJitter()
	os.Exit(m.Run())
}

// outcome is the result of a schedule.
type outcome struct {
	why    string // what is wrong, or ""
	digest uint64 // of all steps
	steps  int
	trace  *trace
}

// simulate runs the schedule of a plan.
func simulate(t *testing.T, dir string, p plan, tr *trace) (out outcome) {
	d, err := openDatabase()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if e := recover(); e != nil {
			panic(fmt.Sprintf("seed %d: %v", p.order, e))
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		if err := d.reset(ctx); err != nil {
			panic(err)
		}
		w := &world{plan: p, db: d, dir: dir, sched: newScheduler(p.order, p.faults), bucket: &bucket{objects: map[string]stored{}}, provider: &provider{},
			receiver: &receiver{seen: map[string]int{}}}
		w.judge = newJudge(w)
		w.sched.after, w.sched.trace = w.judge.after, tr
		for n := range 2 {
			jobtest.User(t, d.DB, userID(n), signupCredits)
		}
		w.run()
		out = outcome{why: w.judge.why, digest: w.sched.digest, steps: w.sched.steps, trace: tr}
	})
	clock.Advance(0)
	return out
}

// scratch returns a folder with the uploads, in memory if possible.
func scratch(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "simulation-")
	if err != nil {
		dir = t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	for name, content := range sources {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestSchedules(t *testing.T) {
	dir := scratch(t)
	first, n := *firstSeed, uint64(*schedules)
	if *seedFlag >= 0 {
		first, n = uint64(*seedFlag), 1
	}
	if *processes > 1 {
		divide(t, first, n, uint64(*processes))
		return
	}
	began, steps := time.Now(), 0
	for seed := first; seed < first+n; seed++ {
		p := drawPlan(seed)
		out := simulate(t, dir, p, nil)
		steps += out.steps
		if out.why != "" {
			t.Errorf("seed %d: %s", seed, out.why)
			report(t, dir, p)
			return
		}
		if *seedFlag >= 0 {
			tr := newTrace()
			simulate(t, dir, p, tr)
			t.Logf("%v\n%s", p, tr)
		}
	}
	t.Logf("%d schedules from seed %d on, %d steps and %v each", n, first, steps/int(n), (time.Since(began) / time.Duration(n)).Round(10*time.Microsecond))
}

// divide runs the schedules in several processes, because one runs on one thread.
func divide(t *testing.T, first, n, parts uint64) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for part := range parts {
		from, to := first+n*part/parts, first+n*(part+1)/parts
		all.Go(func() {
			out, err := exec.CommandContext(t.Context(), program, "-test.run=^TestSchedules$", "-test.v", "-test.timeout=0",
				fmt.Sprintf("-first=%d", from), fmt.Sprintf("-schedules=%d", to-from)).CombinedOutput()
			if t.Logf("%s", out); err != nil {
				t.Errorf("seeds %d to %d: %v", from, to-1, err)
			}
		})
	}
	all.Wait()
}

// report shrinks a failing plan and prints its steps.
func report(t *testing.T, dir string, p plan) {
	t.Helper()
	p = shrink(t, dir, p)
	tr := newTrace()
	out := simulate(t, dir, p, tr)
	t.Logf("shrunk: %s\n%v\n%v", out.why, p, tr)
}

// orders is the number of other orders that shrink tries for a smaller plan. With one call fewer, the same seed of the
// order leads to different steps.
const orders = 25

// shrink removes requests and faults as long as the plan still fails.
func shrink(t *testing.T, dir string, p plan) plan {
	fails := func(q plan) (plan, bool) {
		for n := range uint64(orders) {
			q.order = p.order + n
			if simulate(t, dir, q, nil).why != "" {
				return q, true
			}
		}
		return q, false
	}
	for i := len(p.faults) - 1; i >= 0; i-- {
		q := p
		q.faults = slices.Delete(slices.Clone(p.faults), i, i+1)
		if q, still := fails(q); still {
			p = q
		}
	}
	for i, one := range p.requests {
		q := p
		q.requests = slices.Clone(p.requests)
		for _, smaller := range []request{{number: one.number}, {one.number, one.what, one.user, one.at, 1, one.of}} {
			q.requests[i] = smaller
			if q, still := fails(q); still {
				p = q
				break
			}
		}
	}
	return p
}

// The same seed must make the same steps, or a failure could not be replayed. If several cases of a select are ready,
// Go chooses at random, so one seed in thousands differs occasionally. A seed that always differs depends on something
// else.
func TestSeedsRepeat(t *testing.T) {
	dir := scratch(t)
	for seed := range uint64(*repeats) {
		p := drawPlan(seed)
		var a, b *trace
		for range 3 {
			a, b = newTrace(), newTrace()
			if simulate(t, dir, p, a).digest == simulate(t, dir, p, b).digest {
				a = nil
				break
			}
		}
		if a == nil {
			continue
		}
		i := 0
		for i < min(len(a.lines), len(b.lines))-1 && a.lines[i] == b.lines[i] {
			i++
		}
		t.Fatalf("seed %d: step %d is\n%s\nor\n%s\nafter\n%s", seed, i, a.lines[i], b.lines[i], strings.Join(a.lines[max(0, i-5):i], "\n"))
	}
}

// trace prints the steps of a schedule.
type trace struct {
	lines []string
	names map[string]string // names for ids
}

var ids = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

func (t *trace) step(c *call, k kind) {
	what := c.what
	if c.weight != paid {
		what = fmt.Sprintf("%s %v", what, c.args)
	}
	what = ids.ReplaceAllStringFunc(strings.Join(strings.Fields(what), " "), t.name)
	if runes := []rune(what); len(runes) > maxStep {
		what = string(runes[:maxStep]) + "…"
	}
	line := fmt.Sprintf("%s %-5s %-32s %s", time.Now().Format("04:05.000"), c.from.name, c.caller, what)
	if k != none {
		line += "   <<< " + k.String()
	}
	t.lines = append(t.lines, line)
}

// maxStep is the number of bytes of a statement that are printed.
const maxStep = 110

func (t *trace) name(id string) string {
	if t.names[id] == "" {
		t.names[id] = fmt.Sprint(len(t.names) + 1)
	}
	return t.names[id]
}

func newTrace() *trace { return &trace{names: map[string]string{}} }

func (t *trace) String() string { return strings.Join(t.lines, "\n") }
