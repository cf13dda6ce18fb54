// Compares the claims with a model of fair turns, after random changes.

package render

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"pgregory.net/rapid"

	"cutroom/internal/base/db"
	"cutroom/internal/testkit/dbtest"
	"cutroom/internal/testkit/jobtest"
	"cutroom/internal/work/job"
	"cutroom/test/invariants"
)

// openJob has the fields that determine a job's turn.
type openJob struct {
	id, owner      string
	created, needs int64
	running, due   bool
}

func older(a, b openJob) int {
	return cmp.Or(cmp.Compare(a.created, b.created), cmp.Compare(a.id, b.id))
}

// nextTurn is the model: the job whose turn it is among jobs, which are in the order of their age, or "". starts
// has when each owner's last job was started.
func nextTurn(jobs []openJob, starts map[string]int64, free int64, share int) string {
	running, oldest, turns := map[string]int{}, map[string]openJob{}, map[string]openJob{}
	for _, j := range jobs {
		if j.running {
			running[j.owner]++
			continue
		}
		if _, known := oldest[j.owner]; !known {
			oldest[j.owner] = j
		}
		if _, known := turns[j.owner]; !known && j.due && j.needs <= free {
			turns[j.owner] = j
		}
	}
	var owners []string
	for owner := range turns {
		owners = append(owners, owner)
	}
	slices.SortFunc(owners, func(a, b string) int {
		return cmp.Or(running[a]-running[b], cmp.Compare(starts[a], starts[b]), older(oldest[a], oldest[b]))
	})
	if len(owners) == 0 || len(owners) > 1 && running[owners[0]] >= share {
		return ""
	}
	return turns[owners[0]].id
}

// line is a queue that a property changes at random.
type line struct {
	*harness
	rt      *rapid.T
	service *Service
	owners  []string
	starts  map[string]int64
	held    map[string]claimedJob
}

func (l *line) n(below int) int { return rapid.IntRange(0, below-1).Draw(l.rt, "n") }

func (l *line) enqueue() {
	id := fmt.Sprintf("rnd-%02d-%d", l.n(100), l.serial.Add(1))
	l.Exec(`INSERT INTO jobs (id, kind, user_id, state, source_duration_ms, created_at) VALUES ($1, 'render', $2, 'PENDING', 0, $3)`,
		id, l.owners[l.n(len(l.owners))], l.n(20))
	l.finish(specOf(l.T, 1))
	l.Exec(`UPDATE renders SET needs_bytes = NULLIF(CAST($2 AS BIGINT), 0) WHERE job_id = $1`, id, max(0, l.n(6)-3))
}

// claim claims a job as a worker does, and compares it with the model.
func (l *line) claim() {
	ctx, bytes, slots := l.T.Context(), int64(l.n(3)), 2*(1+l.n(3))
	l.service.CanWork = free(bytes)
	l.replicas(slots)
	if err := l.service.requeueDead(ctx); err != nil {
		l.rt.Fatal(err)
	}
	jobs, err := db.All(ctx, l.DB, func(row db.Scanner) (j openJob, err error) {
		return j, row.Scan(&j.id, &j.owner, &j.created, &j.needs, &j.running, &j.due)
	}, `SELECT j.id, j.user_id, j.created_at, COALESCE(d.needs_bytes, 0), j.state = 'PROCESSING', COALESCE(j.lease_until, 0) < now_ms()
		FROM jobs j JOIN renders d ON d.job_id = j.id JOIN users u ON u.id = j.user_id
		WHERE j.state IN ('PENDING', 'PROCESSING') AND u.erasing_at IS NULL ORDER BY j.created_at, j.id`)
	if err != nil {
		l.rt.Fatal(err)
	}
	want := nextTurn(jobs, l.starts, bytes, slots/2)
	j, ok, err := l.service.claim(ctx)
	if err != nil || j.ID != want || ok != (want != "") {
		l.rt.Fatalf("with %d bytes of %d slots claimed %q (%v), want %q of %+v", bytes, slots, j.ID, err, want, jobs)
	}
	if ok {
		l.held[j.ID] = j
		l.Exec(`UPDATE jobs SET lease_until = now_ms() + 3600000, attempts = $2 WHERE id = $1`, j.ID, j.Attempts) // nobody renews it
		l.starts[j.UserID] = max(l.starts[j.UserID], l.Number(`SELECT started_at FROM jobs WHERE id = $1`, j.ID))
	}
}

// any picks a job in a state whose owner can still change it.
func (l *line) any(state string) (owner, id string, ok bool) {
	jobs, err := db.Texts(l.DB.Query(l.T.Context(), `SELECT j.user_id || ' ' || j.id FROM jobs j JOIN users u ON u.id = j.user_id
		WHERE j.state = $1 AND j.deleted_at IS NULL AND u.erasing_at IS NULL ORDER BY j.id`, state))
	if err != nil {
		l.rt.Fatal(err)
	}
	if len(jobs) == 0 {
		return "", "", false
	}
	_, err = fmt.Sscan(jobs[l.n(len(jobs))], &owner, &id)
	return owner, id, err == nil
}

// change makes one change that concerns the turns.
func (l *line) change(kind string) {
	ctx, s := l.T.Context(), l.service
	states := map[string]string{"again": StateFailed, "delete": StatePending, "due": StatePending}
	owner, id, ok := l.any(cmp.Or(states[kind], StateProcessing))
	if !ok {
		return
	}
	c := l.held[id]
	var err error
	switch kind {
	case "hand back":
		_, err = s.jobs.HandBack(ctx, c.Claim, job.Return{To: StatePending, Forgive: l.n(2) == 0,
			Pause: time.Duration(l.n(2)) * time.Hour, Set: job.SQL(`needs_bytes = $1`, l.n(3))})
	case "complete":
		err = s.completed(ctx, c, stored{key: outputKey(c.ID, "mp4"), size: 1, sha256: "0", length: time.Second})
	case "fail":
		s.jobs.Apply(ctx, c.Claim, failed(errInternal, slog.LevelError), nil)
	case "delete", "delete running":
		err = s.Delete(ctx, owner, id)
	case "again":
		err = Retry(ctx, l.assets(), l.Store, id, func(*db.Tx) error { return nil })
	case "crash":
		l.Exec(`UPDATE jobs SET lease_until = now_ms() - 1000 WHERE id = $1`, id)
		err = s.SweepJobs(ctx)
	case "due":
		l.Exec(`UPDATE jobs SET lease_until = NULL WHERE id = $1`, id)
	case "begin erasing":
		l.Exec(`UPDATE users SET erasing_at = now_ms() WHERE id = $1`, owner)
	case "erase":
		l.Exec(`DELETE FROM users WHERE id = $1`, owner)
		l.owners[slices.Index(l.owners, owner)] = l.User(0)
	}
	if err != nil {
		l.rt.Fatalf("%s: %v", kind, err)
	}
}

// turnsAreRight compares the table of turns with the jobs.
func (r *harness) turnsAreRight() {
	r.T.Helper()
	if what := invariants.Turns(r.T.Context(), r.DB); what != "" {
		r.T.Fatal(what)
	}
}

// After any changes, a claim takes the job that the model takes.
func TestTurnsFollowTheRules(t *testing.T) {
	if err := flag.Set("rapid.checks", "8"); err != nil {
		t.Fatal(err)
	}
	kinds := []string{"hand back", "complete", "fail", "delete", "delete running", "again", "crash", "due", "begin erasing", "erase"}
	eachDatabase(t, func(t *testing.T, r *harness) {
		rapid.Check(t, func(rt *rapid.T) {
			r.Exec(`DELETE FROM users`)
			l := &line{harness: r, rt: rt, service: r.service(&jobtest.Engine{}, r.DB), starts: map[string]int64{}, held: map[string]claimedJob{}}
			for range 6 {
				l.owners = append(l.owners, r.User(0))
			}
			for range 60 {
				switch pick := l.n(20); {
				case pick < 6:
					l.enqueue()
				case pick < 12:
					l.claim()
				default:
					l.change(rapid.SampledFrom(kinds).Draw(rt, "change"))
				}
			}
			r.turnsAreRight()
		})
	})
}

// A job gets its turn even if it is submitted while the owner's last waiting job ends. Before that end reads the
// owner's oldest job, it waits until the submission commits.
func TestASubmissionBesideAnEndGetsItsTurn(t *testing.T) {
	r := newHarness(t, dbtest.Postgres(t))
	s, owner := r.service(&jobtest.Engine{}, r.DB), r.User(0)
	ids := r.enqueue(1, owner, nil)
	var end errgroup.Group
	err := r.DB.InTx(t.Context(), func(tx *db.Tx) error {
		if err := s.jobs.Insert(t.Context(), tx, job.New{ID: "rnd-new", UserID: owner, State: StatePending,
			Details: map[string]any{"spec": "{}", "output_kind": "video"}}); err != nil {
			return err
		}
		end.Go(func() error { return s.failAll(t.Context(), errInternal, `j.id = $1`, ids[0]) })
		r.untilBlocked()
		return nil
	})
	if err := errors.Join(err, end.Wait()); err != nil {
		t.Fatal(err)
	}
	r.turnsAreRight()
}
