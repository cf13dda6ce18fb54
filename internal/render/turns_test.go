package render

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"cutroom/internal/db"
	"cutroom/internal/dbtest"
	"cutroom/internal/job"
	"cutroom/internal/jobtest"
)

// waitingJob has the fields that determine a job's turn.
type waitingJob struct {
	id, owner, state, node         string
	needs, created, attempts       int64
	due, running, erasing, deleted bool
	startedAt                      int64
}

// lottery changes jobs in a random order. It computes without the table of turns which job is next.
type lottery struct {
	*harness
	*rand.Rand
	service *Service
	owners  []string
	starts  map[string]int64 // when each owner's last job was started
	held    map[string]claimedJob
}

func newLottery(r *harness, seed uint64) *lottery {
	l := &lottery{harness: r, Rand: rand.New(rand.NewPCG(seed, 0)), service: r.service(&jobtest.Engine{}, r.DB),
		starts: map[string]int64{}, held: map[string]claimedJob{}}
	for range 10 {
		owner := r.User(0)
		l.owners = append(l.owners, owner)
		for range 3 {
			l.enqueue(owner)
		}
	}
	return l
}

func (l *lottery) pick(texts ...string) string { return texts[l.IntN(len(texts))] }

// jobs reads every job of a state, in the order of their ids.
func (l *lottery) jobs(states ...string) (jobs []waitingJob) {
	l.T.Helper()
	all, err := db.All(l.T.Context(), l.DB, func(row db.Scanner) (j waitingJob, err error) {
		return j, row.Scan(&j.id, &j.owner, &j.state, &j.node, &j.needs, &j.created, &j.attempts, &j.startedAt, &j.due, &j.running, &j.erasing, &j.deleted)
	}, `SELECT j.id, j.user_id, j.state, COALESCE(j.node_id, ''), COALESCE(j.needs_bytes, 0), j.created_at, j.attempts, COALESCE(j.started_at, 0),
		COALESCE(j.lease_until, 0) < now_ms(), j.lease_owner IS NOT NULL AND COALESCE(j.lease_until, 0) > now_ms(), u.erasing_at IS NOT NULL,
		j.deleted_at IS NOT NULL
		FROM render_jobs j JOIN users u ON u.id = j.user_id ORDER BY j.id`)
	if err != nil {
		l.T.Fatal(err)
	}
	for _, j := range all {
		if slices.Contains(states, j.state) {
			jobs = append(jobs, j)
		}
	}
	return jobs
}

// expected returns the job that is next by the rules, or "".
func (l *lottery) expected(node string, free int64, share int) string {
	running, heads := map[string]int{}, map[string]waitingJob{}
	open := l.jobs(StatePending, StateProcessing)
	slices.SortFunc(open, older)
	for _, j := range open {
		if j.state == StateProcessing && j.running {
			running[j.owner]++
		}
		_, earlier := heads[j.owner]
		if !earlier && j.due && (j.state == StatePending || j.attempts < 3) && (j.node == "" || j.node == node) && j.needs <= free && !j.erasing {
			heads[j.owner] = j
		}
	}
	var turns []waitingJob
	for _, j := range heads {
		turns = append(turns, j)
	}
	if len(turns) == 0 {
		return ""
	}
	next := slices.MinFunc(turns, func(a, b waitingJob) int {
		return cmp.Or(running[a.owner]-running[b.owner], cmp.Compare(l.starts[a.owner], l.starts[b.owner]), older(a, b))
	})
	if running[next.owner] >= share && len(turns) > 1 {
		return ""
	}
	return next.id
}

func older(a, b waitingJob) int {
	return cmp.Or(cmp.Compare(a.created, b.created), cmp.Compare(a.id, b.id))
}

// claim claims a job for a random replica, and compares it with the expected job.
func (l *lottery) claim() {
	l.T.Helper()
	node, bytes, slots := l.pick("a", "b"), int64(l.IntN(3)), 2*(1+l.IntN(3))
	s := l.service
	s.NodeID, s.CanWork = node, free(bytes)
	s.fleet.slots.Store(int64(slots))
	s.fleet.counted.Store(time.Now().UnixNano())
	want := l.expected(node, bytes, slots/2)
	j, ok, err := s.claim(l.T.Context())
	if err != nil || j.ID != want || ok != (want != "") {
		l.T.Fatalf("node %s with %d bytes of %d slots claimed %q (%v), want %q", node, bytes, slots, j.ID, err, want)
	}
	if ok {
		l.held[j.ID] = j
		l.Exec(`UPDATE render_jobs SET lease_until = now_ms() + 3600000, attempts = attempts + 1 WHERE id = $1`, j.ID) // nobody renews it
		l.starts[j.UserID] = max(l.starts[j.UserID], l.Number(`SELECT started_at FROM render_jobs WHERE id = $1`, j.ID))
	}
}

// enqueue adds a job. Its time, node and size are random, from a few values.
func (l *lottery) enqueue(owner string) {
	text := specOf(l.T, 1)
	l.Exec(`INSERT INTO render_jobs (id, user_id, state, node_id, needs_bytes, spec, output_kind, created_at)
		VALUES ($1, $2, 'PENDING', NULLIF($3, ''), NULLIF($4, 0), $5, 'video', $6)`,
		fmt.Sprintf("rnd-%02d-%d", l.IntN(100), l.serial.Add(1)), owner, l.pick("", "a", "b"), max(0, l.IntN(6)-3), text, l.IntN(20))
}

// move applies do to a random job in one of the states.
func (l *lottery) move(do func(j waitingJob, c claimedJob) error, states ...string) {
	l.T.Helper()
	jobs := l.jobs(states...)
	if len(jobs) == 0 {
		return
	}
	j := jobs[l.IntN(len(jobs))]
	if err := do(j, l.held[j.id]); err != nil {
		l.T.Fatal(err)
	}
}

// steps returns the possible changes. Likely ones appear more than once.
func (l *lottery) steps(ctx context.Context) []func() {
	s := l.service
	claim, enqueue := func() { l.claim() }, func() { l.enqueue(l.owners[l.IntN(len(l.owners))]) }
	update := func(set string, states ...string) func() {
		return func() {
			l.move(func(j waitingJob, _ claimedJob) error {
				_, err := l.DB.Exec(ctx, `UPDATE render_jobs SET `+set+` WHERE id = $1`, j.id)
				return err
			}, states...)
		}
	}
	return []func(){claim, claim, claim, claim, claim, claim, claim, enqueue, enqueue, enqueue, enqueue,
		func() { // hand back
			l.move(func(_ waitingJob, c claimedJob) error {
				_, err := s.jobs.HandBack(ctx, c.Claim, job.Return{From: StateProcessing, To: StatePending, Forgive: l.IntN(2) == 0,
					Pause: time.Duration(l.IntN(2)) * time.Hour, Set: `, needs_bytes = NULLIF($7, 0)`, Args: []any{l.IntN(3)}})
				return err
			}, StateProcessing)
		},
		func() { // complete
			l.move(func(_ waitingJob, c claimedJob) error {
				err := s.completed(ctx, c, stored{key: outputKey(c.ID, "mp4"), size: 1, sha256: "0", length: time.Second})
				if errors.Is(err, job.ErrMoved) {
					err = nil // deleted
				}
				return err
			}, StateProcessing)
		},
		func() { // fail
			l.move(func(_ waitingJob, c claimedJob) error { _, err := s.fail(ctx, c, errInternal, nil); return err }, StateProcessing)
		},
		func() { // the owner deletes it
			l.move(func(j waitingJob, _ claimedJob) error {
				if j.deleted || j.erasing {
					return nil
				}
				return s.Delete(ctx, j.owner, j.id)
			}, StatePending, StateProcessing, StateCompleted)
		},
		func() { // an operator runs it again
			l.move(func(j waitingJob, _ claimedJob) error {
				if j.deleted || j.erasing {
					return nil
				}
				return Retry(ctx, l.DB, l.Store, j.node, j.id, func(*db.Tx) error { return nil })
			}, StateFailed)
		},
		func() { // an account is erased, and a new one takes its place
			if l.IntN(2) > 0 {
				return
			}
			i := l.IntN(len(l.owners))
			if l.Number(`SELECT COUNT(*) FROM users WHERE id = $1 AND erasing_at IS NOT NULL`, l.owners[i]) == 0 {
				l.Exec(`UPDATE users SET erasing_at = now_ms() WHERE id = $1`, l.owners[i])
				return
			}
			l.Exec(`DELETE FROM users WHERE id = $1`, l.owners[i])
			l.owners[i] = l.User(0)
		},
		update(`lease_until = now_ms() - 1000`, StateProcessing), // its worker crashes
		update(`lease_until = NULL`, StatePending),               // its backoff ends
		update(`node_id = 'a'`, StatePending),
		func() {
			l.move(func(j waitingJob, _ claimedJob) error {
				l.Exec(`DELETE FROM render_jobs WHERE id = $1`, j.id)
				return nil
			}, StatePending, StateProcessing, StateCompleted, StateFailed)
		},
	}
}

// turnsAreRight compares the table of turns with the jobs.
func (r *harness) turnsAreRight() {
	r.T.Helper()
	if n := r.Number(`SELECT COUNT(*) FROM users u LEFT JOIN render_turns t ON t.user_id = u.id
		WHERE COALESCE(t.processing, 0) <> (SELECT COUNT(*) FROM render_jobs j WHERE j.user_id = u.id AND j.state = 'PROCESSING')
			OR COALESCE(t.last_started_at, 0) < (SELECT COALESCE(MAX(j.started_at), 0) FROM render_jobs j WHERE j.user_id = u.id)
			OR COALESCE(t.next_job_id, '') <> COALESCE((SELECT j.id FROM render_jobs j WHERE j.user_id = u.id AND j.state = 'PENDING'
				ORDER BY j.created_at, j.id LIMIT 1), '')`); n != 0 {
		r.T.Fatalf("the turns of %d owners do not match their jobs", n)
	}
}

// After any changes, the table of turns gives each slot to the job that is next by the rules.
func TestTurnsFollowTheRules(t *testing.T) {
	eachDatabase(t, func(t *testing.T, r *harness) {
		for seed := range uint64(6) {
			l := newLottery(r, seed)
			steps := l.steps(t.Context())
			for range 60 {
				steps[l.IntN(len(steps))]()
			}
			r.turnsAreRight()
			r.Exec(`DELETE FROM users`)
		}
	})
}

// A job gets its turn even if it is submitted while the owner's last waiting job ends. Before that end
// reads the owner's oldest job, it waits until the submission commits.
func TestASubmissionBesideAnEndGetsItsTurn(t *testing.T) {
	r := newHarness(t, dbtest.Postgres(t))
	owner := r.User(0)
	ids := r.enqueue(1, owner, nil)
	var end errgroup.Group
	err := r.DB.InTx(t.Context(), func(tx *db.Tx) error {
		for _, query := range []string{`SET CONSTRAINTS ALL IMMEDIATE`, // as if this commit took a long time
			`INSERT INTO render_jobs (id, user_id, state, spec, output_kind, created_at) VALUES ('rnd-new', '` + owner + `', 'PENDING', '', 'video', now_ms())`} {
			if _, err := tx.Exec(t.Context(), query); err != nil {
				return err
			}
		}
		end.Go(func() error {
			_, err := r.DB.Exec(t.Context(), `UPDATE render_jobs SET state = 'FAILED' WHERE id = $1`, ids[0])
			return err
		})
		// Use another connection, because a transaction reads pg_stat_activity only once.
		for waiting, ended := 0, false; waiting == 0 && !ended; {
			if err := r.DB.QueryRow(t.Context(), `SELECT COUNT(*), (SELECT state = 'FAILED' FROM render_jobs WHERE id = $1) FROM pg_stat_activity
				WHERE datname = current_database() AND wait_event_type = 'Lock'`, ids[0]).Scan(&waiting, &ended); err != nil {
				return err
			}
		}
		return nil
	})
	if err := errors.Join(err, end.Wait()); err != nil {
		t.Fatal(err)
	}
	r.turnsAreRight()
}
