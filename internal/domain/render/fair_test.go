package render

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"cutroom/internal/base/db"
	"cutroom/internal/testkit/dbtest"
	"cutroom/internal/testkit/jobtest"
	"cutroom/internal/work/job"
)

// replicas registers other replicas with the given number of slots in total.
func (r *harness) replicas(slots int) {
	r.Exec(`INSERT INTO replicas (id, slots, free_bytes, seen_at) VALUES ('others', $1, 0, now_ms() + 3600000)
		ON CONFLICT (id) DO UPDATE SET slots = excluded.slots`, slots)
}

// A job whose worker died three times fails. Support sees which workers.
func TestJobsOfThreeDeadWorkersFail(t *testing.T) {
	eachDatabase(t, func(t *testing.T, r *harness) {
		r.enqueue(2, r.User(0), nil)
		var workers []string
		for attempt := 1; attempt <= job.MaxAttempts; attempt++ {
			s := r.service(&jobtest.Engine{}, r.DB)
			r.Exec(`UPDATE jobs SET attempts = $1, lease_until = now_ms() - 1 WHERE id = $2`, attempt, r.claimed(s).ID)
			workers = append(workers, s.Renewer.Owner())
			if err := s.requeueDead(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := s.SweepJobs(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if n := r.Number(`SELECT COUNT(*) FROM jobs WHERE state = 'FAILED' AND error = $1 AND error_code = 'interrupted'
				AND failure_cause = $2`, errInterrupted.Sentence, "lost workers: "+strings.Join(workers, ", ")); n != 1 {
			t.Errorf("%d jobs given up, want 1", n)
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
			services = append(services, r.service(&jobtest.Engine{}, r.DB))
		}
		for range owners {
			r.enqueue(10, r.User(0), nil)
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
		if n := r.Number(`SELECT COUNT(*) FROM (SELECT user_id FROM jobs WHERE state = 'PROCESSING'
			GROUP BY user_id HAVING COUNT(*) = $1) AS fair`, each); n != owners {
			t.Errorf("%d of %d owners got %d slots", n, owners, each)
		}
	})
}

// The cost of a claim depends neither on the length of the queue nor on the number of owners.
func TestAClaimFollowsIndexes(t *testing.T) {
	d := dbtest.SQLite(t)
	for query, args := range map[string][]any{waitingSQL: nil, pickSQL(""): {0, 1}, pickSQL(d.SkipLockedOf("j")): {0, 1}} {
		plan := strings.Join(dbtest.Plan(t, d, "", query, args...), "\n")
		if !strings.Contains(plan, "jobs_waiting_by_user") || !strings.Contains(plan, "render_turns_waiting") || strings.Contains(plan, "SCAN j") {
			t.Errorf("the plan of a claim:\n%s", plan)
		}
	}
}

// If all jobs were waiting when PostgreSQL analysed the table, it may prefer indexes that also contain ended jobs. The
// long ids make the right index look more expensive.
func TestAClaimReadsFewRows(t *testing.T) {
	r := newHarness(t, dbtest.Postgres(t))
	const insert = `INSERT INTO jobs (id, kind, user_id, state, source_duration_ms, created_at, finished_at) `
	r.Exec(insert+`SELECT repeat('x', 300) || i, 'render', $1, 'PENDING', 0, i, i FROM generate_series(1, 2000) AS i`, r.User(0))
	r.Exec(`INSERT INTO users (id, provider, provider_sub, created_at, last_active_at)
		SELECT 'late-' || i, 'provider_a', 'late-' || i, i, i FROM generate_series(1, 1000) AS i`)
	r.Exec(insert + `SELECT 'rnd-' || id, 'render', id, 'PENDING', 0, created_at, created_at FROM users WHERE id LIKE 'late-%'`)
	r.finish(strings.Repeat("x", 1000))
	r.Exec(`ANALYZE`) // autovacuum does this
	r.Exec(`UPDATE jobs SET state = 'FAILED' WHERE id LIKE 'x%' AND created_at <= 1000`)
	r.finish("")
	jobs := r.service(nil, r.DB).jobs
	for name, step := range map[string]func(ctx context.Context, tx *db.Tx) error{
		"look": func(ctx context.Context, tx *db.Tx) error { _, err := tx.Exec(ctx, waitingSQL); return err },
		"claim": func(ctx context.Context, tx *db.Tx) error {
			_, _, err := jobs.Take(ctx, tx, job.Pick{From: StatePending, To: StateProcessing, Job: job.SQL(pickSQL(r.DB.SkipLockedOf("j")), 0, 1000)})
			return err
		},
		"end": func(ctx context.Context, tx *db.Tx) error {
			_, err := jobs.FailAll(ctx, tx, errInternal, nil, job.SQL(`id = repeat('x', 300) || $1::text`, "1001"))
			return err
		},
	} {
		var before, after int64
		if err := r.DB.InTx(t.Context(), func(tx *db.Tx) error {
			count := func(n *int64) error {
				return tx.QueryRow(t.Context(), `SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables
					WHERE relname = 'jobs'`).Scan(n)
			}
			return errors.Join(count(&before), step(t.Context(), tx), count(&after))
		}); err != nil {
			t.Fatal(err)
		}
		if read := after - before; read > 100 {
			t.Errorf("%s: %d rows read", name, read)
		}
	}
}

// An assistant gives up its part for a waiting job of another owner.
func TestAnAssistantStopsForAWaitingJob(t *testing.T) {
	r := newHarness(t, dbtest.Postgres(t))
	r.UseBucket()
	cache := r.partCache()
	engines := make([]*jobtest.Engine, 2)
	for i := range engines {
		engines[i] = &jobtest.Engine{Takes: time.Hour, Parts: 4, Cache: cache}
		r.run(r.service(engines[i], r.DB))
	}
	long, other := r.User(0), r.User(0)
	r.enqueue(1, long, r.source(long))
	r.Eventually("both replicas work on the film", func() bool {
		return r.Number(`SELECT COUNT(*) FROM render_parts WHERE state = 'MAKING'`) == 2
	})
	r.enqueue(1, other, r.source(other))
	r.Eventually("the other's job runs", func() bool {
		return r.Number(`SELECT COUNT(*) FROM jobs WHERE user_id = $1 AND state = 'PROCESSING'`, other) == 1
	})
	if n := r.Number(`SELECT attempts FROM jobs WHERE user_id = $1`, long); n != 1 {
		t.Errorf("%d attempts at the assisted film", n)
	}
}
