package events

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"cutroom/internal/db"
	"cutroom/internal/dbtest"
	"cutroom/internal/upstream/push"
	"cutroom/internal/user"
)

// world is a database with a dispatcher whose channels record the messages.
type world struct {
	t interface {
		Helper()
		Fatal(...any)
		Errorf(string, ...any)
	}
	ctx context.Context
	d   *db.DB
	*Dispatcher

	mu       sync.Mutex
	sent     []message
	fail     func(m message) error // result of a delivery; nil delivers all
	outcomes []string
}

func newWorld(t *testing.T, d *db.DB) *world {
	w := &world{t: t, ctx: t.Context(), d: d}
	w.Dispatcher = New(Options{DB: d, Log: slog.New(slog.DiscardHandler), Observe: w.note})
	w.add(webhookName, webhookPauses, w.receive)
	w.add(PlatformA, pushPauses, w.receive)
	return w
}

func (w *world) note(channel, outcome string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.outcomes = append(w.outcomes, channel+" "+outcome)
}

func (w *world) receive(_ context.Context, m message) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sent = append(w.sent, m)
	if w.fail != nil {
		return w.fail(m)
	}
	return nil
}

func (w *world) check(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) exec(query string, args ...any) {
	w.t.Helper()
	_, err := w.d.Exec(w.ctx, query, args...)
	w.check(err)
}

func (w *world) count(query string, args ...any) (n int) {
	w.t.Helper()
	w.check(w.d.QueryRow(w.ctx, query, args...).Scan(&n))
	return n
}

func (w *world) user(name string) string {
	w.t.Helper()
	u, err := user.Upsert(w.ctx, w.d, user.Identity{Provider: "provider_a", Subject: name}, "", "", "")
	w.check(err)
	return u.ID
}

func (w *world) record(e Event) {
	w.t.Helper()
	w.check(w.d.InTx(w.ctx, func(tx *db.Tx) error { return Record(w.ctx, tx, e) }))
}

// run runs the dispatcher once and waits for its attempts.
func (w *world) run() {
	w.t.Helper()
	var attempts sync.WaitGroup
	_, err := w.step(w.ctx, &attempts)
	attempts.Wait()
	w.check(err)
}

// later makes every pending delivery due.
func (w *world) later() {
	w.t.Helper()
	w.exec(`UPDATE event_deliveries SET due_at = 0 WHERE state = 'PENDING'`)
}

// Even if processes crash between any two steps, and jobs and accounts are deleted at any time, every recorded
// event is delivered or given up. No event of a deleted job is sent.
func TestNothingIsLostAndNothingOfTheDeletedIsSent(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		runs, most := 0, 40
		if d.Postgres() {
			most = 12
		}
		rapid.Check(t, func(rt *rapid.T) {
			if runs++; runs > most { // rapid may start more runs than needed
				return
			}
			w := newWorld(t, d)
			w.t = rt
			play(rt, w, runs)
		})
	})
}

type played struct {
	owner   string
	device  bool // the owner had a device when the job ended
	dropped bool
}

func play(rt *rapid.T, w *world, run int) {
	defer w.exec(`DELETE FROM events`)
	jobs, gone, devices := map[string]*played{}, map[string]bool{}, map[string]bool{}
	var owners []string
	for i := range 3 {
		owners = append(owners, w.user(fmt.Sprint(run, "-", i)))
	}
	failing := 0
	refuse := false
	w.fail = func(m message) error {
		if j := jobs[m.jobID]; j.dropped || gone[m.userID] {
			rt.Errorf("%s of a deleted job or account was sent", m.jobID)
		}
		if failing > 0 {
			failing--
			if m.token != "" && refuse {
				return errors.New("refused")
			}
			return &push.TemporaryError{Err: errors.New("busy")}
		}
		return nil
	}
	register := NewDevices(w.d, PlatformA)
	owner := rapid.SampledFrom(owners)
	for i := range rapid.IntRange(5, 40).Draw(rt, "steps") {
		switch rapid.IntRange(0, 9).Draw(rt, "step") {
		case 0, 1, 2:
			o, id := owner.Draw(rt, "owner"), fmt.Sprintf("rnd-%d-%d", run, i)
			jobs[id] = &played{owner: o, device: devices[o]}
			w.record(Event{Type: RenderFailed, JobID: id, UserID: o, ErrorCode: "internal"})
		case 3:
			if o := owner.Draw(rt, "owner"); !gone[o] {
				devices[o] = true
				w.check(register.Register(w.ctx, o, PlatformA, "token of "+o))
			}
		case 4:
			if len(jobs) > 0 && rapid.Bool().Draw(rt, "delete job") {
				id := rapid.SampledFrom(slices.Sorted(maps.Keys(jobs))).Draw(rt, "job")
				jobs[id].dropped = true
				w.check(w.d.InTx(w.ctx, func(tx *db.Tx) error { return Drop(w.ctx, tx, id) }))
			} else if o := owner.Draw(rt, "owner"); !gone[o] && rapid.IntRange(0, 3).Draw(rt, "delete account") == 0 {
				// Its jobs may still end before its row is deleted.
				gone[o] = true
				w.check(w.d.InTx(w.ctx, func(tx *db.Tx) error {
					return errors.Join(user.BeginErasure(w.ctx, tx, o), Forget(w.ctx, tx, o))
				}))
			}
		case 5:
			_, err := w.fanOut(w.ctx)
			w.check(err)
		case 6: // the process crashes after the claim or after sending
			for _, c := range w.channels {
				ids, err := w.claim(w.ctx, c, rapid.IntRange(1, 5).Draw(rt, "claimed"))
				w.check(err)
				for _, id := range ids {
					if m, err := w.load(w.ctx, id); err == nil && rapid.Bool().Draw(rt, "sent") {
						_ = c.send(w.ctx, m)
					}
				}
			}
		case 7:
			failing, refuse = rapid.IntRange(0, 4).Draw(rt, "failing"), rapid.Bool().Draw(rt, "for good")
			w.run()
		default:
			w.later()
			w.run()
		}
	}
	failing = 0
	for range 3 {
		w.later()
		w.run()
	}
	if n := w.count(`SELECT COUNT(*) FROM event_deliveries d JOIN events e ON e.id = d.event_id WHERE d.state = 'PENDING' AND ` + user.Exists("e.user_id")); n != 0 {
		rt.Errorf("%d deliveries are left", n)
	}
	hooks, pushes := map[string]bool{}, map[string]bool{}
	for _, m := range w.sent {
		if m.token == "" {
			hooks[m.jobID] = true
		} else {
			pushes[m.jobID] = true
		}
	}
	for id, j := range jobs {
		if kept := !j.dropped && !gone[j.owner]; kept && (!hooks[id] || j.device && !pushes[id]) {
			rt.Errorf("%s was lost: web hook %v, push %v of %v", id, hooks[id], pushes[id], j.device)
		}
	}
}

func TestGivesUpAfterTheLastPauseAndSendsAgainOnRequest(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		owner := w.user("a")
		w.check(NewDevices(d, PlatformA).Register(t.Context(), owner, PlatformA, "token"))
		w.record(Event{Type: SeparationReady, JobID: "sep-1", UserID: owner})
		w.fail = func(message) error { return &push.TemporaryError{Err: errors.New("busy")} }
		for i := range 12 {
			w.run()
			listed, err := List(t.Context(), d, false, 10, 0)
			w.check(err)
			if e := listed[0]; e.Webhook == "PENDING" && (e.Attempts != i+1 || *e.LastError != "busy" || e.NextTry == nil) {
				t.Fatalf("after try %d: %+v", i+1, e)
			}
			w.later()
		}
		tries := map[string]int{}
		for _, o := range w.outcomes {
			tries[o]++
		}
		for o, want := range map[string]int{"webhook failed": 9, "webhook given_up": 1, "platform_a failed": 5, "platform_a given_up": 1} {
			if tries[o] != want {
				t.Errorf("%s %d times, want %d", o, tries[o], want)
			}
		}
		failed, err := List(t.Context(), d, true, 10, 0)
		w.check(err)
		if len(failed) != 1 || failed[0].Attempts != 10 || failed[0].Webhook != "FAILED" || w.count(`SELECT COUNT(*) FROM event_deliveries`) != 1 {
			t.Fatalf("given up: %+v", failed)
		}
		w.fail = nil
		for i, again := range []func() error{
			func() error { return Resend(t.Context(), d, failed[0].ID) },
			func() error { return Resend(t.Context(), d, failed[0].ID) }, // delivered or not
			func() error {
				n, err := ResendSince(t.Context(), d, failed[0].CreatedAt)
				if n != 1 {
					t.Errorf("%d events sent again, want 1", n)
				}
				return err
			},
		} {
			w.sent = nil
			w.check(again())
			w.run()
			if len(w.sent) != 1 || w.sent[0].eventID != failed[0].ID || w.sent[0].token != "" {
				t.Errorf("again %d: %+v", i, w.sent)
			}
		}
		if err := Resend(t.Context(), d, "evt-none"); !errors.Is(err, errUnknown) {
			t.Errorf("unknown event: %v", err)
		}
		if n, err := ResendSince(t.Context(), d, time.Now().Add(time.Hour)); n != 0 || err != nil {
			t.Errorf("since the future: %d, %v", n, err)
		}
	})
}

func TestPauses(t *testing.T) {
	w := newWorld(t, dbtest.SQLite(t))
	hook, phone := w.channels[0], w.channels[1]
	busy, refused := &push.TemporaryError{Err: errors.New("busy")}, errors.New("refused")
	for _, c := range []struct {
		channel  *channel
		attempts int
		failure  error
		outcome  string
		atLeast  time.Duration
	}{
		{hook, 0, refused, retried, 5 * time.Second},
		{hook, 1, refused, retried, 5 * time.Minute},
		{hook, 8, refused, retried, 24 * time.Hour},
		{hook, 9, refused, givenUp, 0},
		{phone, 0, refused, givenUp, 0},
		{phone, 0, push.ErrUnregistered, removed, 0},
		{phone, 0, busy, retried, 5 * time.Second},
		{phone, 4, busy, retried, 30 * time.Minute},
		{phone, 5, busy, givenUp, 0},
		{phone, 0, &push.TemporaryError{After: time.Minute, Err: refused}, retried, time.Minute},
		{phone, 4, &push.TemporaryError{After: time.Minute, Err: refused}, retried, 30 * time.Minute},
		{phone, 0, nil, delivered, 0},
	} {
		for range 20 {
			outcome, after := w.judge(c.channel, message{attempts: c.attempts}, c.failure)
			if outcome != c.outcome || after < c.atLeast || after > c.atLeast+c.atLeast/10 {
				t.Errorf("%s, attempt %d, %v: %s after %v, want %s after %v and up to a tenth more",
					c.channel.name, c.attempts+1, c.failure, outcome, after, c.outcome, c.atLeast)
			}
		}
	}
}

func TestAPanicIsAFailedAttempt(t *testing.T) {
	w := newWorld(t, dbtest.SQLite(t))
	w.record(Event{Type: RenderCompleted, JobID: "j", UserID: w.user("a")})
	w.channels[0].send = func(context.Context, message) error { panic("boom") }
	w.run()
	if n := w.count(`SELECT COUNT(*) FROM event_deliveries WHERE state = 'PENDING' AND attempts = 1 AND last_error LIKE '%panic: boom%'`); n != 1 {
		t.Error("the attempt does not count as failed")
	}
}

// A hanging receiver delays no other channel and, while slots are free, no other event of its own channel.
func TestASlowReceiverDelaysNoOtherEvent(t *testing.T) {
	w := newWorld(t, dbtest.SQLite(t))
	owner := w.user("a")
	w.check(NewDevices(w.d, PlatformA).Register(t.Context(), owner, PlatformA, "token"))
	release, others := make(chan struct{}), make(chan string, 3)
	for _, c := range w.channels {
		c.send = func(_ context.Context, m message) error {
			if m.jobID == "slow" && m.token == "" {
				<-release
			} else {
				others <- m.jobID + m.token
			}
			return nil
		}
	}
	var attempts sync.WaitGroup
	for _, id := range []string{"slow", "quick"} {
		w.record(Event{Type: RenderCompleted, JobID: id, UserID: owner})
		_, err := w.step(t.Context(), &attempts)
		w.check(err)
	}
	got := []string{<-others, <-others, <-others}
	slices.Sort(got)
	close(release)
	attempts.Wait()
	if !slices.Equal(got, []string{"quick", "quicktoken", "slowtoken"}) {
		t.Errorf("sent meanwhile: %v", got)
	}
}

func TestDevices(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w, s := newWorld(t, d), NewDevices(d, PlatformA)
		a, b := w.user("a"), w.user("b")
		of := func(owner string) []string {
			tokens, err := db.Texts(d.Query(t.Context(), `SELECT token FROM devices WHERE user_id = $1 ORDER BY turn`, owner))
			w.check(err)
			return tokens
		}
		for i := range maxDevices {
			w.check(s.Register(t.Context(), a, " Platform_A ", fmt.Sprint("t", i)))
		}
		w.check(s.Register(t.Context(), a, PlatformA, "t0")) // the app starts again
		w.check(s.Register(t.Context(), a, PlatformA, strings.Repeat("x", 4096)))
		if got := of(a); len(got) != maxDevices || got[0] != "t2" || got[maxDevices-2] != "t0" {
			t.Errorf("devices %v", got)
		}
		w.record(Event{Type: RenderCompleted, JobID: "rnd-1", UserID: a})
		_, err := w.fanOut(t.Context())
		w.check(err)
		w.check(s.Register(t.Context(), b, PlatformA, "t2"))
		w.check(s.Unregister(t.Context(), a, PlatformA, "t2"))
		w.check(s.Unregister(t.Context(), a, PlatformA, "t3"))
		if got := of(b); !slices.Equal(got, []string{"t2"}) || len(of(a)) != maxDevices-2 {
			t.Errorf("b has %v, a %v", got, of(a))
		}
		w.run()
		for _, m := range w.sent {
			if m.token == "t2" || m.token == "t3" {
				t.Errorf("%s got a message about a job of its former owner", m.token)
			}
		}
		w.fail = func(m message) error { return push.ErrUnregistered }
		w.record(Event{Type: RenderCompleted, JobID: "rnd-2", UserID: b})
		w.run()
		if got := of(b); len(got) != 0 {
			t.Errorf("devices unknown to the platform are kept: %v", got)
		}
		if err := s.Register(t.Context(), "nobody", PlatformA, "t"); !errors.Is(err, user.ErrDeleted) {
			t.Errorf("unknown user: %v", err)
		}
	})
}

func TestNothingIsKeptWithoutReceivers(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		w.record(Event{Type: RenderCompleted, JobID: "rnd-1", UserID: w.user("a")})
		w.fail = func(message) error { return errors.New("busy") }
		w.run()
		w.channels = w.channels[1:] // the web hook is switched off
		w.check(w.forgetUnconfigured(t.Context()))
		if n := w.count(`SELECT COUNT(*) FROM event_deliveries`); n != 0 {
			t.Errorf("%d deliveries of the web hook are kept", n)
		}
		w.check(Sweep(t.Context(), d))
		if n := w.count(`SELECT COUNT(*) FROM events`); n != 1 {
			t.Errorf("%d events after the sweep", n)
		}
		w.exec(`UPDATE events SET created_at = created_at - $1`, lifetime.Milliseconds())
		w.check(Sweep(t.Context(), d))
		w.record(Event{Type: RenderCompleted, JobID: "rnd-2", UserID: w.user("a")})
		if n := w.count(`SELECT COUNT(*) FROM events`); n != 1 {
			t.Errorf("%d events, want the new one", n)
		}
		w.channels = nil
		w.run()
		if n := w.count(`SELECT COUNT(*) FROM events`); n != 0 {
			t.Errorf("%d events are kept", n)
		}
	})
}

// The dispatcher queries its queues every second, however long they are.
func TestQueriesFollowIndexes(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		for query, index := range map[string]string{
			dueSQL: "event_deliveries_due",
			`SELECT id FROM events WHERE fanned_out_at IS NULL ORDER BY created_at, id LIMIT $1`: "events_new",
		} {
			args := []any{webhookName, 1}
			if index == "events_new" {
				args = []any{1}
			}
			if steps := strings.Join(dbtest.Plan(t, d, `SET enable_seqscan = off`, query, args...), "\n"); !strings.Contains(steps, index) {
				t.Errorf("%s does not follow %s:\n%s", query, index, steps)
			}
		}
	})
}
