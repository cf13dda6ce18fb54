// Parts shared among replicas: one live maker for each, in order, across crashes and lost claims.

package render

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"cutroom/internal/base/db"
	"cutroom/internal/film/engine"
	"cutroom/internal/testkit/jobtest"
)

// A part has at most one live maker, even if makers crash, stop or report too late. Lost parts are made again; reported
// parts are not.
func TestEveryPartHasOneMaker(t *testing.T) {
	if err := flag.Set("rapid.checks", "20"); err != nil {
		t.Fatal(err)
	}
	eachDatabase(t, func(t *testing.T, r *harness) {
		rapid.Check(t, func(rt *rapid.T) {
			defer r.Exec(`DELETE FROM users`)
			ids := r.enqueue(1, r.User(0), nil)
			film := r.service(&jobtest.Engine{}, r.DB)
			if _, ok, err := film.claim(t.Context()); !ok || err != nil {
				rt.Fatal("no job: ", err)
			}
			keys := []string{"video-c", "video-a", "video-b", "video-e", "video-d"}
			m := &makers{rt: rt, r: r, job: ids[0], holder: map[string]int{}, over: map[string]bool{}}
			for range 3 {
				m.all = append(m.all, &maker{s: film})
				film = r.service(&jobtest.Engine{}, r.DB)
			}
			for i := range m.all {
				m.start(i)
			}
			if _, err := m.all[0].c.Announce(t.Context(), partsOf(keys...)); err != nil {
				rt.Fatal(err)
			}
			for range rapid.IntRange(5, 30).Draw(rt, "steps") {
				m.step(rapid.IntRange(0, 2).Draw(rt, "who"), rapid.SampledFrom([]string{"next", "next", "next", "give up", "stop", "die"}).Draw(rt, "what"))
			}
			for i := range m.all { // all but the renderer crash
				if i > 0 {
					m.step(i, "die")
				}
			}
			for m.all[0].has != "" || m.step(0, "next") {
				m.step(0, "next")
			}
			ended, err := m.all[0].c.Await(t.Context(), keys)
			if err != nil || len(ended) != len(keys) {
				rt.Fatalf("%v have ended, %v", ended, err)
			}
			for key, made := range ended {
				if made != m.over[key] {
					rt.Errorf("%s: made %v, reported %v", key, made, m.over[key])
				}
			}
			for _, one := range m.all {
				one.c.stop()
			}
		})
	})
}

// partsOf returns parts of one thread.
func partsOf(keys ...string) (parts []engine.Part) {
	for _, key := range keys {
		parts = append(parts, engine.Part{Key: key, Threads: 1})
	}
	return parts
}

// A part keeps the threads of its first announcement, whichever replica makes it and however late.
func TestPartsKeepTheirThreads(t *testing.T) {
	eachDatabase(t, func(t *testing.T, r *harness) {
		film := r.service(&jobtest.Engine{}, r.DB)
		r.enqueue(1, r.User(0), nil)
		id := r.claimed(film).ID
		first, next := film.newPartCoordinator(t.Context(), id), r.service(&jobtest.Engine{}, r.DB).newPartCoordinator(t.Context(), id)
		defer next.stop()
		one, six := engine.Part{Key: "video-a", Threads: 1}, engine.Part{Key: "video-b", Threads: 6}
		if got, err := first.Announce(t.Context(), []engine.Part{one, six}); err != nil || !slices.Equal(got, []engine.Part{one, six}) {
			t.Fatal(got, err)
		}
		if got, err := first.Next(t.Context()); err != nil || got != one {
			t.Fatal(got, err)
		}
		first.stop()
		added := engine.Part{Key: "video-c", Threads: 2}
		want := []engine.Part{six, added, one}
		got, err := next.Announce(t.Context(), []engine.Part{{Key: "video-b", Threads: 2}, added, {Key: "video-a", Threads: 2}})
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("announced %v, %v, want %v", got, err, want)
		}
		for _, part := range want {
			if got, err := next.Next(t.Context()); err != nil || got != part {
				t.Errorf("claimed %v, %v, want %v", got, err, part)
			}
		}
	})
}

// announce announces one part of a job that film has claimed.
func (r *harness) announce(film *Service, id string) *partCoordinator {
	r.T.Helper()
	c := film.newPartCoordinator(r.T.Context(), id)
	r.T.Cleanup(c.stop)
	if _, err := c.Announce(r.T.Context(), partsOf("video-a")); err != nil {
		r.T.Fatal(err)
	}
	return c
}

// assistant claims a part for s.
func (r *harness) assistant(s *Service) *assistant {
	r.T.Helper()
	a, err := s.claimPart(r.T.Context())
	if a == nil || err != nil {
		r.T.Fatal("no part: ", err)
	}
	return a
}

// If the engine panics, an assistant gives up only that part.
func TestAnAssistantOutlivesAPanic(t *testing.T) {
	eachDatabase(t, func(t *testing.T, r *harness) {
		film := r.service(&jobtest.Engine{}, r.DB)
		r.enqueue(1, r.User(0), nil)
		c := r.announce(film, r.claimed(film).ID)
		helper := r.service(&jobtest.Engine{Helps: func() { panic("boom") }}, r.DB)
		log := logged(helper)
		r.assistant(helper).assist()
		if made, err := c.Await(t.Context(), []string{"video-a"}); err != nil || len(made) != 1 || made["video-a"] {
			t.Errorf("the assistant keeps the part: %v, %v", made, err)
		}
		if !strings.Contains(log.String(), "panic: boom") || helper.assisting.Load() != nil {
			t.Errorf("still assisting %v, log: %s", helper.assisting.Load(), log)
		}
	})
}

// A job that no replica may claim, here because no disk has room for it, neither stops assistance nor takes the queue's
// lock.
func TestAJobThatNobodyMayClaimDelaysNobody(t *testing.T) {
	eachDatabase(t, func(t *testing.T, r *harness) {
		film := r.service(&jobtest.Engine{}, r.DB)
		r.enqueue(1, r.User(0), nil)
		r.announce(film, r.claimed(film).ID)
		other := r.User(0)
		r.enqueue(1, other, nil)
		r.Exec(`UPDATE renders SET needs_bytes = $1 WHERE job_id IN (SELECT id FROM jobs WHERE user_id = $2)`, int64(1)<<50, other)
		helper := r.service(&jobtest.Engine{}, r.DB)
		if err := r.DB.InTx(t.Context(), func(tx *db.Tx) error {
			if err := tx.Lock(t.Context(), queueLock); err != nil {
				return err
			}
			_, ok, err := helper.claim(t.Context())
			if ok {
				t.Error("it was claimed")
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		a := r.assistant(helper)
		defer a.stop()
		defer a.c.stop()
		stopped := func() bool {
			t.Helper()
			if err := helper.stopAssisting(t.Context()); err != nil {
				t.Fatal(err)
			}
			return a.ctx.Err() != nil
		}
		if stopped() {
			t.Error("the assistant stops for it")
		}
		r.enqueue(1, r.User(0), nil)
		if !stopped() {
			t.Error("the assistant does not stop for a job that it may claim")
		}
	})
}

// A worker whose claim was lost says so when it has made the part.
func TestALostClaimIsReported(t *testing.T) {
	eachDatabase(t, func(t *testing.T, r *harness) {
		film := r.service(&jobtest.Engine{}, r.DB)
		r.enqueue(1, r.User(0), nil)
		id := r.claimed(film).ID
		r.announce(film, id)
		slow, quick := r.service(&jobtest.Engine{}, r.DB), r.service(&jobtest.Engine{}, r.DB)
		slowLog, quickLog := logged(slow), logged(quick)
		a, b := slow.newPartCoordinator(t.Context(), id), quick.newPartCoordinator(t.Context(), id)
		a.Release() // it renews nothing any more
		defer b.stop()
		a.lease = -time.Millisecond // the answer to the claim comes too late
		for _, c := range []*partCoordinator{a, b} {
			if part, err := c.Next(t.Context()); part.Key != "video-a" || err != nil {
				t.Fatalf("claimed %v, %v", part, err)
			}
		}
		if err := errors.Join(b.End(t.Context(), "video-a", true), a.End(t.Context(), "video-a", true)); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(slowLog.String(), "the claim of a part was lost") || quickLog.String() != "" {
			t.Errorf("log of the slow worker: %q, of the other: %q", slowLog, quickLog)
		}
	})
}

// makers models which worker makes which part.
type makers struct {
	rt     *rapid.T
	r      *harness
	job    string
	all    []*maker
	holder map[string]int  // the live maker of each part
	over   map[string]bool // reported parts, and whether they were made
}

type maker struct {
	s    *Service
	c    *partCoordinator
	has  string
	lost bool // its leases have expired
}

// start restarts a maker. It runs no heartbeat, which would renew the claims of a crashed maker.
func (m *makers) start(i int) {
	c := m.all[i].s.newPartCoordinator(m.r.T.Context(), m.job)
	c.Release()
	m.all[i].c = c
}

// step performs one operation of a maker. next reports whether the maker got a part.
func (m *makers) step(i int, what string) bool {
	m.rt.Helper()
	one, ctx := m.all[i], m.r.T.Context()
	had := one.has
	// A worker's report has no effect after another worker has claimed the part.
	by, held := m.holder[had]
	counts := had != "" && (!one.lost || held && by == i)
	var err error
	switch what {
	case "die":
		m.r.Exec(`UPDATE render_parts SET lease_until = 0 WHERE job_id = $1 AND owner = $2 AND lease_until IS NOT NULL`, m.job, one.s.Renewer.Owner())
		one.lost = had != ""
		return false
	case "stop":
		one.c.stop()
		m.start(i)
	case "give up":
		if err = one.c.End(ctx, had, false); counts {
			m.over[had] = false
		}
	case "next":
		if counts {
			m.over[had] = true
		}
		if err = one.c.End(ctx, had, true); err == nil {
			var part engine.Part
			part, err = one.c.Next(ctx)
			one.has = part.Key
		}
	}
	if err != nil {
		m.rt.Fatal(err)
	}
	if what != "next" {
		one.has = ""
	}
	if counts {
		delete(m.holder, had)
	}
	one.lost = false
	key := one.has
	if key == "" {
		return false
	}
	if by, held := m.holder[key]; held && !m.all[by].lost {
		m.rt.Fatalf("%s has two makers", key)
	}
	if _, over := m.over[key]; over {
		m.rt.Fatalf("%s is made again", key)
	}
	m.holder[key] = i
	return true
}

// Workers that claim concurrently get different parts, each once, in the order of the announcement.
func TestPartsAreTakenInOrderAndOnce(t *testing.T) {
	eachDatabase(t, func(t *testing.T, r *harness) {
		const parts, helpers = 250, 6 // the announcement takes several statements
		ids := r.enqueue(1, r.User(0), nil)
		film := r.service(&jobtest.Engine{}, r.DB)
		r.claimed(film)
		c := film.newPartCoordinator(t.Context(), ids[0])
		defer c.stop()
		var keys []string
		for i := range parts {
			keys = append(keys, fmt.Sprintf("video-%d", parts-i))
		}
		if _, err := c.Announce(t.Context(), partsOf(keys...)); err != nil {
			t.Fatal(err)
		}
		got := make([][]string, helpers)
		var all sync.WaitGroup
		for i := range helpers {
			all.Go(func() {
				c := r.service(&jobtest.Engine{}, r.DB).newPartCoordinator(t.Context(), ids[0])
				defer c.stop()
				c.lease = time.Hour // however slow the machine is, no claim is lost
				for {
					part, err := c.Next(t.Context())
					if part.Key != "" {
						got[i] = append(got[i], part.Key)
						err = c.End(t.Context(), part.Key, true)
					}
					if err != nil {
						t.Error(err)
					}
					if part.Key == "" || err != nil {
						return
					}
				}
			})
		}
		all.Wait()
		place := func(key string) int { return slices.Index(keys, key) }
		for _, of := range got {
			if !slices.IsSortedFunc(of, func(a, b string) int { return place(a) - place(b) }) {
				t.Errorf("not in the order of the announcement: %v", of)
			}
		}
		if made := slices.Sorted(slices.Values(slices.Concat(got...))); len(made) != parts || len(slices.Compact(made)) != parts {
			t.Errorf("%d claims of %d parts", len(made), parts)
		}
		if n := r.Number(`SELECT COUNT(*) FROM render_parts WHERE state = 'MADE'`); n != parts {
			t.Errorf("%d parts are reported", n)
		}
	})
}
