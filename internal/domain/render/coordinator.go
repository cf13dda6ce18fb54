// How several replicas make one film: the replica that renders the job shares the film's parts as rows of render_parts
// (partCoordinator), and replicas with an idle slot claim and make them (assistant).

package render

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"cutroom/internal/base/db"
	"cutroom/internal/base/fault"
	"cutroom/internal/base/rescue"
	"cutroom/internal/film/engine"
	"cutroom/internal/work/job"
)

// topicParts wakes replicas with idle slots when a render has parts to share.
const topicParts = db.ForWorkers + "render-parts"

// partCoordinator shares the parts of one job among replicas, through rows of render_parts. It implements
// engine.PartCoordinator. One heartbeat renews every part that it claims, until stop is called.
type partCoordinator struct {
	*job.Holder // whose work ends when nobody renders the job any more
	s           *Service
	jobID       string
	owner       string        // of the claims made through this coordinator
	lease       time.Duration // of a claim
}

func (s *Service) newPartCoordinator(ctx context.Context, jobID string) *partCoordinator {
	c := &partCoordinator{s: s, jobID: jobID, owner: s.Renewer.Owner(), lease: job.TTL}
	c.Holder = s.Renewer.KeepRenewing(ctx, jobID, time.Now(), c.renew)
	return c
}

// renew renews the claims of parts. It reports false when no worker holds the job.
func (c *partCoordinator) renew(ctx context.Context) (held bool, err error) {
	if _, err := c.s.DB.Exec(ctx, `UPDATE render_parts SET lease_until = now_ms() + $1
		WHERE job_id = $2 AND owner = $3 AND state = 'MAKING'`, c.lease.Milliseconds(), c.jobID, c.owner); err != nil {
		return false, fmt.Errorf("renew claims of parts: %w", err)
	}
	return c.held(ctx, c.s.DB, "")
}

// held reports whether a worker holds the job.
func (c *partCoordinator) held(ctx context.Context, q db.Querier, forUpdate string) (bool, error) {
	held, err := db.HasRow(ctx, q, `SELECT 1 FROM jobs WHERE id = $1 AND state = 'PROCESSING' AND lease_owner IS NOT NULL`+forUpdate, c.jobID)
	if err != nil {
		err = fmt.Errorf("look up render: %w", err)
	}
	return held, err
}

// stop hands the claimed parts back, so that another replica can make them.
func (c *partCoordinator) stop() {
	c.Release()
	ctx, cancel := context.WithTimeout(context.Background(), job.TTL/3)
	defer cancel()
	_, err := c.s.DB.ExecNotify(ctx, topicParts, `UPDATE render_parts SET state = 'OPEN', owner = NULL, lease_until = NULL
		WHERE job_id = $1 AND owner = $2 AND state = 'MAKING'`, c.jobID, c.owner)
	if err != nil {
		c.s.Log.Warn("parts not handed back; their leases run out", "job", c.jobID, "err", err)
	}
}

// announcedAtOnce bounds the parameters of one statement.
const announcedAtOnce = 200

// Announce implements engine.PartCoordinator. It leaves parts that another worker is making to that worker, and adds
// none to a job that has ended.
func (c *partCoordinator) Announce(ctx context.Context, parts []engine.Part) ([]engine.Part, error) {
	parts = slices.Clone(parts)
	err := c.s.DB.InTx(ctx, func(tx *db.Tx) error {
		if held, err := c.held(ctx, tx, tx.ForUpdate()); err != nil {
			return err
		} else if !held {
			return job.ErrMoved
		}
		place := 0
		for some := range slices.Chunk(parts, announcedAtOnce) {
			var rows []string
			args := []any{c.jobID}
			for _, part := range some {
				args = append(args, part.Key, place, part.Threads)
				rows = append(rows, fmt.Sprintf("($1, $%d, 'OPEN', $%d, $%d)", len(args)-2, len(args)-1, len(args)))
				place++
			}
			if _, err := tx.Exec(ctx, `INSERT INTO render_parts (job_id, part_key, state, place, threads) VALUES `+strings.Join(rows, ", ")+`
				ON CONFLICT (job_id, part_key) DO UPDATE SET state = 'OPEN', owner = NULL, lease_until = NULL, place = excluded.place
				WHERE render_parts.state <> 'MAKING' OR render_parts.lease_until < now_ms()`, args...); err != nil {
				return fmt.Errorf("announce parts: %w", err)
			}
		}
		threads := map[string]int{}
		if err := db.Each(ctx, tx, func(row *db.Rows) error {
			var key string
			var n int
			err := row.Scan(&key, &n)
			threads[key] = n
			return err
		}, `SELECT part_key, threads FROM render_parts WHERE job_id = $1`, c.jobID); err != nil {
			return fmt.Errorf("read announced parts: %w", err)
		}
		for i := range parts {
			parts[i].Threads = threads[parts[i].Key]
		}
		if c.s.Bucket == nil { // no other replica can assist
			return nil
		}
		return tx.Notify(ctx, topicParts)
	})
	return parts, err
}

// nextSQL claims the first part that is open or whose worker died. Workers that ask at the same moment get different
// parts. The statement skips locked rows. It may keep locks on parts that it examined and did not take, so one
// transaction claims one part and reports none.
func nextSQL(d *db.DB) string {
	first := func(condition string) string {
		return `(SELECT p.part_key FROM render_parts p WHERE p.job_id = $1 AND ` + condition +
			` ORDER BY p.place LIMIT 1` + d.SkipLockedOf("p") + `)`
	}
	return `UPDATE render_parts SET state = 'MAKING', owner = $2, lease_until = now_ms() + $3
		WHERE job_id = $1 AND part_key = COALESCE(` + first(`p.state = 'OPEN'`) + `,
			` + first(`p.state = 'MAKING' AND p.lease_until < now_ms()`) + `)
		RETURNING part_key, threads`
}

// Next implements engine.PartCoordinator.
func (c *partCoordinator) Next(ctx context.Context) (part engine.Part, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), job.TTL) // a claim is never cut short: see job.Queue
	defer cancel()
	err = c.s.DB.ExecRow(ctx, nextSQL(c.s.DB), []any{c.jobID, c.owner, c.lease.Milliseconds()}, &part.Key, &part.Threads)
	if err != nil && !db.IsNoRows(err) {
		return engine.Part{}, fmt.Errorf("claim part: %w", err)
	}
	return part, nil
}

// End implements engine.PartCoordinator. If the claim was lost, because its lease ran out, another worker makes the
// part as well: both results are the same.
func (c *partCoordinator) End(ctx context.Context, key string, made bool) error {
	state := "FAILED"
	if made {
		state = "MADE"
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), job.TTL)
	defer cancel()
	n, err := c.s.DB.Exec(ctx, `UPDATE render_parts SET state = $4, lease_until = NULL
		WHERE job_id = $1 AND part_key = $2 AND owner = $3 AND state = 'MAKING'`, c.jobID, key, c.owner, state)
	if err != nil {
		return fmt.Errorf("end part: %w", err)
	}
	if n == 0 {
		c.s.Log.Info("the claim of a part was lost", "job", c.jobID, "part", key)
	}
	return nil
}

// The renderer polls for the parts that other replicas make. Each pause is an eighth of the time that it has waited so
// far. Parts trigger no notification, because that would wake every replica.
const minAwait, maxAwait = 25 * time.Millisecond, time.Second

// Await implements engine.PartCoordinator.
func (c *partCoordinator) Await(ctx context.Context, keys []string) (map[string]bool, error) {
	for began := time.Now(); ; {
		made, lost, err := c.endedParts(ctx, keys)
		if err != nil || lost || len(made) > 0 {
			return made, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(min(maxAwait, max(minAwait, time.Since(began)/8))):
		}
	}
}

// endedParts returns the parts that have ended and whether they were made. lost reports that no worker is making one of
// the others.
func (c *partCoordinator) endedParts(ctx context.Context, keys []string) (made map[string]bool, lost bool, err error) {
	states := map[string]string{}
	err = db.Each(ctx, c.s.DB, func(row *db.Rows) error {
		var key, state string
		err := row.Scan(&key, &state)
		states[key] = state
		return err
	}, `SELECT part_key, CASE WHEN state = 'MAKING' AND lease_until < now_ms() THEN 'OPEN' ELSE state END
		FROM render_parts WHERE job_id = $1`, c.jobID)
	if err != nil {
		return nil, false, fmt.Errorf("read parts: %w", err)
	}
	made = map[string]bool{}
	for _, key := range keys {
		switch states[key] {
		case "MAKING":
		case "OPEN":
			lost = true
		default:
			made[key] = states[key] == "MADE"
		}
	}
	return made, lost, nil
}

// assistSuffix ends the names of the work folders of assistants.
const assistSuffix = "-assist"

// assistedSQL selects the oldest render of another replica that has parts to share.
const assistedSQL = `SELECT j.id, j.user_id, d.spec, j.fence, j.attempts FROM jobs j JOIN renders d ON d.job_id = j.id
	WHERE j.kind = 'render' AND j.` + job.AtWork + ` AND j.lease_until > now_ms() AND j.lease_owner <> $1
		AND EXISTS (SELECT 1 FROM render_parts p WHERE p.job_id = j.id AND p.state = 'OPEN')
	ORDER BY j.created_at, j.id LIMIT 1`

// assistant is a slot that makes parts of a job which another replica renders.
type assistant struct {
	s    *Service
	ctx  context.Context
	stop context.CancelFunc
	job  claimedJob
	spec string      // encoded
	part engine.Part // the first one, already claimed
	c    *partCoordinator
}

// claimPart claims a part of another replica's render, before anything is fetched. It returns nil if there is none. The
// caller holds a slot and calls assist.
func (s *Service) claimPart(ctx context.Context) (*assistant, error) {
	if _, unable := s.CanWork(ctx); unable != nil { // which logs the reason
		return nil, nil
	}
	a := &assistant{s: s}
	err := s.DB.QueryRow(db.WithLimit(ctx, job.TTL/3), assistedSQL, s.Renewer.Owner()).
		Scan(&a.job.ID, &a.job.UserID, &a.spec, &a.job.Fence, &a.job.Attempts)
	if db.IsNoRows(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for a render to assist: %w", err)
	}
	ctx, a.stop = context.WithCancel(ctx)
	a.c = s.newPartCoordinator(ctx, a.job.ID)
	a.ctx = a.c.Work
	if a.part, err = a.c.Next(ctx); a.part.Key == "" || err != nil {
		a.c.stop()
		a.stop()
		return nil, err
	}
	s.assisting.Store(&a.stop)
	return a, nil
}

// assist makes parts until none is left, or until it is stopped.
func (a *assistant) assist() {
	defer a.stop()
	defer a.s.assisting.Store(nil)
	defer a.c.stop()
	var n int
	err := rescue.Do(func() (err error) { n, err = a.makeParts(); return err })
	if err != nil && a.ctx.Err() == nil {
		err = errors.Join(err, a.c.End(a.ctx, a.part.Key, false)) // or this replica would claim it again and again
		if fault.As(err) == nil {                                 // else the job's own worker reports the same
			a.s.Log.Warn("could not assist a render", "job", a.job.ID, "err", err)
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(a.ctx), job.TTL)
	defer cancel()
	a.s.dropIfErased(ctx, a.job)
	a.s.jobs.AttemptLog(a.job.Claim).Info("assisted a render", "parts", n)
}

func (a *assistant) makeParts() (n int, err error) {
	if a.job.Spec, err = decodeSpec(a.spec); err != nil {
		return 0, err
	}
	dir := a.s.jobs.WorkDir(a.job.Lease) + assistSuffix
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return 0, fmt.Errorf("create work folder: %w", err)
	}
	defer os.RemoveAll(dir)
	ctx, ended := a.s.jobs.Trace(a.ctx, "render.assist", a.job.ID)
	defer func() { ended(err) }()
	sources, err := a.s.fetch(ctx, a.job, dir)
	if err != nil {
		return 0, err
	}
	return a.s.Engine.Assist(ctx, engine.Job{Dir: dir, Timeline: a.job.Spec.Timeline, Sources: sources,
		CacheScope: a.job.UserID, Log: a.s.jobs.AttemptLog(a.job.Claim), Coordinator: a.c}, a.part)
}

// stopAssisting frees the assisting slot if a job is waiting that this replica may claim. The part in progress is lost;
// another worker makes it.
func (s *Service) stopAssisting(ctx context.Context) error {
	stop := s.assisting.Load()
	if stop == nil {
		return nil
	}
	_, waiting, err := s.look(db.WithLimit(ctx, job.TTL/3))
	if err != nil {
		return fmt.Errorf("look for render jobs: %w", err)
	}
	if waiting {
		(*stop)()
	}
	return nil
}
