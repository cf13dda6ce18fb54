package render

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"cutroom/internal/db"
	"cutroom/internal/dbtest"
)

// owners makes n claims, and returns the owners of the claimed jobs.
func (r *harness) owners(s *Service, n int) (names []string) {
	r.t.Helper()
	for range n {
		j, ok, err := s.claim(r.t.Context())
		waiting, waitErr := s.hasWaitingJob(r.t.Context())
		switch {
		case err != nil || waitErr != nil:
			r.t.Fatal(err, waitErr)
		case ok:
			names = append(names, j.UserID)
			r.exec(`UPDATE render_jobs SET lease_until = now_ms() + 3600000 WHERE id = $1`, j.ID) // nobody renews it
		case waiting:
			names = append(names, "refused")
		default:
			names = append(names, "none")
		}
	}
	return names
}

// replicas registers other replicas with that many slots in total.
func (r *harness) replicas(slots int) {
	r.exec(`INSERT INTO replicas (id, slots, free_bytes, seen_at) VALUES ('others', $1, 0, now_ms())
		ON CONFLICT (id) DO UPDATE SET slots = excluded.slots`, slots)
}

func TestSlotsGoToTheOwnerWithTheFewest(t *testing.T) {
	eachDatabase(t, func(t *testing.T, r *harness) {
		r.replicas(100)
		a, b, c := r.user(), r.user(), r.user()
		s := r.service(&simulated{}, r.db)
		r.enqueue(6, a, nil)
		if got := r.owners(s, 2); !slices.Equal(got, []string{a, a}) {
			t.Fatalf("alone in the queue: %v", got)
		}
		r.enqueue(2, b, nil)
		r.enqueue(4, c, nil)
		// B and C have nothing running and never started a job: B's is older.
		// At two each, A started longest ago.
		want := []string{b, c, b, c, a, c, a, c, a, a, "none"}
		if got := r.owners(s, len(want)); !slices.Equal(got, want) {
			t.Errorf("turns %v, want %v", got, want)
		}
		// Nothing runs any more: only the start of each owner's last job counts.
		r.exec(`UPDATE render_jobs SET state = 'COMPLETED', lease_owner = NULL, lease_until = NULL`)
		for owner, ago := range map[string]int{a: 10, b: 30, c: 20} {
			r.exec(`UPDATE render_turns SET last_started_at = now_ms() - $1 WHERE user_id = $2`, ago*1000, owner)
		}
		d := r.user()
		for _, owner := range []string{a, c, b, d} {
			r.enqueue(1, owner, nil)
		}
		want = []string{d, b, c, a}
		if got := r.owners(s, 4); !slices.Equal(got, want) {
			t.Errorf("turns %v, want %v", got, want)
		}
	})
}

func TestOneOwnerHoldsAtMostHalfOfTheSlotsWhileOthersWait(t *testing.T) {
	eachDatabase(t, func(t *testing.T, r *harness) {
		a, b := r.user(), r.user()
		s := r.service(&simulated{}, r.db)
		r.enqueue(4, a, nil)
		r.enqueue(1, b, nil)
		r.replicas(3)
		r.exec(`UPDATE render_jobs SET state = 'COMPLETED' WHERE user_id = $1`, b)
		if got := r.owners(s, 1); !slices.Equal(got, []string{a}) {
			t.Fatalf("turn %v", got)
		}
		r.enqueue(2, b, nil)
		// One slot of three is half of them, rounded down: a second one for either
		// would be more than half.
		want := []string{b, "refused"}
		if got := r.owners(s, 2); !slices.Equal(got, want) {
			t.Errorf("turns %v, want %v", got, want)
		}
		// No other owner waits, so the limit does not apply any more.
		r.exec(`UPDATE render_jobs SET state = 'FAILED' WHERE user_id = $1 AND state = 'PENDING'`, b)
		if got := r.owners(s, 2); !slices.Equal(got, []string{a, a}) {
			t.Errorf("turns %v, though only one owner waits", got)
		}
	})
}

// A job whose worker died waits like any other, and does not count as running. Neither do
// jobs of an account that is being deleted.
func TestOnlyLivingJobsCount(t *testing.T) {
	eachDatabase(t, func(t *testing.T, r *harness) {
		r.replicas(100)
		a, b, gone := r.user(), r.user(), r.user()
		s := r.service(&simulated{}, r.db)
		r.enqueue(2, a, nil)
		r.owners(s, 2)
		r.exec(`UPDATE render_jobs SET lease_until = now_ms() - 1, started_at = now_ms() - 60000`)
		r.enqueue(1, b, nil)
		r.enqueue(1, gone, nil)
		r.exec(`UPDATE users SET erasing_at = now_ms() WHERE id = $1`, gone)
		r.exec(`UPDATE users SET last_active_at = 0 WHERE id = $1`, gone)
		if got, want := r.owners(s, 4), []string{b, a, a, "none"}; !slices.Equal(got, want) {
			t.Errorf("turns %v, want %v", got, want)
		}
		// The third worker died, too: no worker may claim the jobs any more.
		r.exec(`UPDATE render_jobs SET attempts = 3, lease_until = now_ms() - 1 WHERE user_id = $1`, a)
		if err := s.SweepJobs(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := r.number(`SELECT COUNT(*) FROM render_jobs WHERE user_id = $1 AND state = 'FAILED' AND error = $2 AND error_code = 'interrupted'`, a, errInterrupted.Sentence); n != 2 {
			t.Errorf("%d jobs given up, want 2", n)
		}
	})
}

// Concurrent claims give every owner the same number of slots.
func TestReplicasThatClaimAtOnceAreFair(t *testing.T) {
	eachDatabase(t, func(t *testing.T, r *harness) {
		const replicas, owners, each = 8, 4, 4
		r.replicas(replicas * 2)
		var services []*Service
		for range replicas {
			services = append(services, r.service(&simulated{}, r.db))
		}
		for range owners {
			r.enqueue(10, r.user(), nil)
		}
		var all sync.WaitGroup
		for _, s := range services {
			all.Go(func() {
				for range owners * each / replicas {
					if _, ok, err := s.claim(t.Context()); err != nil || !ok {
						t.Errorf("claimed %v, %v", ok, err)
					}
				}
			})
		}
		all.Wait()
		if n := r.number(`SELECT COUNT(*) FROM (SELECT user_id FROM render_jobs WHERE state = 'PROCESSING'
			GROUP BY user_id HAVING COUNT(*) = $1) AS fair`, each); n != owners {
			t.Errorf("%d of %d owners got %d slots", n, owners, each)
		}
	})
}

// The cost of a claim depends neither on the length of the queue nor on the number of owners.
func TestAClaimFromALongQueueIsCheap(t *testing.T) {
	eachDatabase(t, func(t *testing.T, r *harness) {
		r.replicas(1000)
		hoarder, other := r.user(), r.user()
		numbers := `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $1) `
		fill := numbers + `INSERT INTO render_jobs (id, user_id, state, spec, output_kind, created_at, started_at)
			SELECT $2 || i, $3, $4, $5, 'video', i, CASE WHEN $4 = 'PENDING' THEN NULL ELSE i END FROM n`
		text, err := spec{Timeline: timelineOf(1), Sources: map[string]object{}}.encode()
		if err != nil {
			t.Fatal(err)
		}
		r.exec(fill, 10_000, "rnd-done-", hoarder, "COMPLETED", text)
		r.exec(fill, 10_000, "rnd-wait-", hoarder, "PENDING", text)
		r.exec(`UPDATE render_turns SET last_started_at = 1`)
		r.enqueue(1, other, nil)
		r.exec(numbers+`INSERT INTO users (id, provider, provider_sub, created_at, last_active_at)
			SELECT 'late-' || i, 'provider_a', 'late-' || i, i, i FROM n`, 1000)
		r.exec(`INSERT INTO render_jobs (id, user_id, state, spec, output_kind, created_at)
			SELECT 'rnd-' || id, id, 'PENDING', $1, 'video', now_ms() + created_at FROM users WHERE id LIKE 'late-%'`, text)
		if r.db.Postgres() {
			r.exec(`ANALYZE`) // as autovacuum does; nobody does it for SQLite
		}
		if got, want := r.owners(r.service(&simulated{}, r.db), 3), []string{other, "late-1", "late-2"}; !slices.Equal(got, want) {
			t.Errorf("turns %v, want %v", got, want)
		}
		for query, args := range map[string][]any{waitingSQL: {""}, usualTurnSQL(r.db): {"", 0, 1}, turnSQL(r.db): {"", 0, 1}} {
			plan := strings.Join(dbtest.Plan(t, r.db, "", query, args...), "\n")
			rest := strings.ReplaceAll(plan, "SCAN j USING INDEX render_processing", "") // the few that run
			if query != usualTurnSQL(r.db) && !strings.Contains(plan, "render_open_by_user") || !strings.Contains(plan, "render_turns_waiting") ||
				strings.Contains(rest, "Seq Scan on render_jobs") || strings.Contains(rest, "SCAN j") {
				t.Errorf("the plan of a claim:\n%s", plan)
			}
		}
	})
}

// Where all jobs waited when PostgreSQL analysed the table, it may prefer indexes that hold
// the ended jobs as well. The long ids make the right index look more expensive.
func TestAClaimReadsNoEndedJobs(t *testing.T) {
	r := newHarness(t, dbtest.Postgres(t))
	r.exec(`INSERT INTO render_jobs (id, user_id, state, spec, output_kind, created_at)
		SELECT repeat('x', 300) || i, $1, 'PENDING', repeat('x', 1000), 'video', i FROM generate_series(1, 2000) AS i`, r.user())
	r.exec(`ANALYZE`)
	r.exec(`UPDATE render_jobs SET state = 'FAILED' WHERE created_at <= 1000`)
	claim := func(turn string) func(ctx context.Context, tx *db.Tx) error {
		return func(ctx context.Context, tx *db.Tx) error {
			_, err := tx.Exec(ctx, claimSQL(turn), "", 0, 1000, "replica", 9000)
			return err
		}
	}
	for name, step := range map[string]func(ctx context.Context, tx *db.Tx) error{
		"look":        func(ctx context.Context, tx *db.Tx) error { _, err := tx.Exec(ctx, waitingSQL, ""); return err },
		"usual claim": claim(usualTurnSQL(r.db)), "claim": claim(turnSQL(r.db)),
		"end": func(ctx context.Context, tx *db.Tx) error {
			_, err := tx.Exec(ctx, `UPDATE render_jobs SET state = 'FAILED' WHERE created_at = 1999`)
			return err
		},
	} {
		var before, after int64
		if err := r.db.InTx(t.Context(), func(tx *db.Tx) error {
			count := func(n *int64) error {
				return tx.QueryRow(t.Context(), `SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables
					WHERE relname = 'render_jobs'`).Scan(n)
			}
			_, err := tx.Exec(t.Context(), `SET CONSTRAINTS ALL IMMEDIATE`)
			return errors.Join(err, count(&before), step(t.Context(), tx), count(&after))
		}); err != nil {
			t.Fatal(err)
		}
		if read := after - before; read > 100 {
			t.Errorf("%s: %d rows read", name, read)
		}
	}
}

// An assistant gives up its part for a waiting job of another owner.
func TestHelpForAFilmEndsWhenAJobWaits(t *testing.T) {
	r := newHarness(t, dbtest.Postgres(t))
	r.shareBucket()
	cache := r.partCache()
	engines := make([]*simulated, 2)
	for i := range engines {
		engines[i] = &simulated{takes: time.Hour, parts: 4, cache: cache}
		r.run(r.service(engines[i], r.db))
	}
	long, other := r.user(), r.user()
	r.enqueue(1, long, r.source(long))
	r.eventually("both replicas work on the film", time.Minute, func() bool {
		return r.number(`SELECT COUNT(*) FROM render_parts WHERE state = 'MAKING'`) == 2
	})
	r.enqueue(1, other, r.source(other))
	r.eventually("the other's job runs", time.Minute, func() bool {
		return r.number(`SELECT COUNT(*) FROM render_jobs WHERE user_id = $1 AND state = 'PROCESSING'`, other) == 1
	})
	if n := r.number(`SELECT attempts FROM render_jobs WHERE user_id = $1`, long); n != 1 {
		t.Errorf("%d attempts at the film that was helped", n)
	}
}
