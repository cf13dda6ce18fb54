// The dispatcher with recording channels: deleted receivers, retries, panics, devices, and the plans of its queries.

package events

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"cutroom/internal/base/db"
	"cutroom/internal/testkit/dbtest"
	"cutroom/internal/upstream/push"
	"cutroom/internal/work/user"
)

// world is a database with a dispatcher whose channels record the messages.
type world struct {
	t   *testing.T
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

// No event of a deleted job or account is sent, however far its delivery has come. The others are sent, even if the
// process of an attempt has died.
func TestNothingOfTheDeletedIsSent(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		fanOut := func(w *world) {
			_, err := w.fanOut(t.Context())
			w.check(err)
		}
		for stage, reach := range map[string]func(w *world){
			"new":        func(*world) {},
			"fanned out": fanOut,
			"claimed": func(w *world) {
				fanOut(w)
				for _, c := range w.channels {
					if ids, err := w.claim(t.Context(), c, 10); err != nil || len(ids) != 3 {
						t.Errorf("claimed %v, %v", ids, err)
					}
				}
			},
			"failed once": func(w *world) {
				w.fail = func(message) error { return &push.TemporaryError{Err: errors.New("busy")} }
				w.run()
				w.fail, w.sent = nil, nil
			},
		} {
			w := newWorld(t, d)
			stays, gone := w.user("stays "+stage), w.user("gone "+stage)
			for job, owner := range map[string]string{"kept": stays, "dropped": stays, "of the account": gone} {
				w.check(NewDevices(d, PlatformA).Register(t.Context(), owner, time.Now(), PlatformA, "token of "+owner))
				w.record(Event{Type: RenderFailed, JobID: job + stage, UserID: owner, ErrorCode: "internal"})
			}
			reach(w)
			w.check(d.InTx(t.Context(), func(tx *db.Tx) error {
				return errors.Join(Drop(t.Context(), tx, "dropped"+stage), user.BeginErasure(t.Context(), tx, gone), Forget(t.Context(), tx, gone))
			}))
			w.record(Event{Type: RenderFailed, JobID: "late" + stage, UserID: gone}) // before the account's row is deleted
			w.later()
			w.run()
			if len(w.sent) != 2 || w.sent[0].jobID != "kept"+stage || w.sent[1].jobID != "kept"+stage || w.sent[0].token == w.sent[1].token {
				t.Errorf("%s: sent %+v", stage, w.sent)
			}
			if n := w.count(`SELECT COUNT(*) FROM event_deliveries WHERE state = 'PENDING'`); n != 0 {
				t.Errorf("%s: %d deliveries are left", stage, n)
			}
		}
	})
}

func TestGivesUpAfterTheLastPauseAndSendsAgainOnRequest(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		owner := w.user("a")
		w.check(NewDevices(d, PlatformA).Register(t.Context(), owner, time.Now(), PlatformA, "token"))
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
		w.fail, w.sent = nil, nil
		w.check(Resend(t.Context(), d, failed[0].ID))
		w.run()
		if len(w.sent) != 1 || w.sent[0].eventID != failed[0].ID || w.sent[0].token != "" {
			t.Errorf("sent again: %+v", w.sent)
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
			w.check(s.Register(t.Context(), a, time.Now(), " Platform_A ", fmt.Sprint("t", i)))
		}
		w.check(s.Register(t.Context(), a, time.Now(), PlatformA, "t0")) // the app starts again
		w.check(s.Register(t.Context(), a, time.Now(), PlatformA, strings.Repeat("x", 4096)))
		if got := of(a); len(got) != maxDevices || got[0] != "t2" || got[maxDevices-2] != "t0" {
			t.Errorf("devices %v", got)
		}
		w.record(Event{Type: RenderCompleted, JobID: "rnd-1", UserID: a})
		_, err := w.fanOut(t.Context())
		w.check(err)
		w.check(s.Register(t.Context(), b, time.Now(), PlatformA, "t2"))
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
		// A token that a sign-out has ended registers nothing, although this replica may not know of the sign-out yet.
		var signedOut int64
		w.check(d.InTx(t.Context(), func(tx *db.Tx) error {
			_, err := user.SignOut(t.Context(), tx, b)
			return err
		}))
		w.check(d.QueryRow(t.Context(), `SELECT signed_out_at FROM users WHERE id = $1`, b).Scan(&signedOut))
		second := time.UnixMilli(signedOut).Truncate(time.Second)
		if err := s.Register(t.Context(), b, second, PlatformA, "late"); !errors.Is(err, user.ErrSignedOut) || len(of(b)) != 0 {
			t.Errorf("a token of before the sign-out: %v, devices %v", err, of(b))
		}
		if err := s.Register(t.Context(), b, second.Add(time.Second), PlatformA, "new"); err != nil || len(of(b)) != 1 {
			t.Errorf("a token of after the sign-out: %v, devices %v", err, of(b))
		}
		// A device that its app has registered again since the attempt stays.
		w.fail = func(message) error {
			w.exec(`UPDATE devices SET registered_at = registered_at + 1 WHERE user_id = $1`, b)
			return push.ErrUnregistered
		}
		w.record(Event{Type: RenderCompleted, JobID: "rnd-3", UserID: b})
		w.run()
		if got := of(b); len(got) != 1 {
			t.Errorf("devices %v, want the one that was registered again", got)
		}
		if err := s.Register(t.Context(), "nobody", time.Now(), PlatformA, "t"); !errors.Is(err, user.ErrDeleted) {
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
		if n := w.count(`SELECT COUNT(*) FROM events`); n != 0 {
			t.Errorf("%d old events are kept", n)
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
