package render

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"cutroom/internal/db"
	"cutroom/internal/engine"
	"cutroom/internal/fault"
	"cutroom/internal/job"
)

// topicParts wakes those who may make parts for others.
const topicParts = db.ForWorkers + "render-parts"

// partCoordinator shares the parts of one job among replicas, through rows of
// render_parts. It implements engine.PartCoordinator. Every part that it claims is kept
// alive by one heartbeat until stop is called.
type partCoordinator struct {
	s     *Service
	jobID string
	owner string // of the claims made through this coordinator

	mu   sync.Mutex
	held map[string]bool // parts that are claimed
	// others says that other renders had open parts when this one had none left.
	others bool

	done chan struct{}
	idle chan struct{} // closed when the heartbeat has ended
}

func (s *Service) newPartCoordinator(ctx context.Context, jobID string, held ...string) *partCoordinator {
	c := &partCoordinator{s: s, jobID: jobID, owner: s.Renewer.Owner(), held: map[string]bool{}, done: make(chan struct{}), idle: make(chan struct{})}
	c.hold("", held...)
	go c.beat(context.WithoutCancel(ctx))
	return c
}

// hold notes that one claim has ended and others have begun.
func (c *partCoordinator) hold(ended string, begun ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.held, ended)
	for _, key := range begun {
		c.held[key] = true
	}
}

// stop hands back what is claimed: somebody else may make it.
func (c *partCoordinator) stop() {
	close(c.done)
	<-c.idle
	if len(c.held) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), job.TTL/3)
	defer cancel()
	_, err := c.s.db.ExecNotify(ctx, topicParts, `UPDATE render_parts SET state = 'OPEN', owner = NULL, lease_until = NULL
		WHERE job_id = $1 AND owner = $2 AND state = 'MAKING'`, c.jobID, c.owner)
	if err != nil {
		c.s.log.Warn("parts not handed back; others take them later", "job", c.jobID, "err", err)
	}
}

func (c *partCoordinator) beat(ctx context.Context) {
	defer close(c.idle)
	var outage job.Outage
	tick := time.NewTicker(job.TTL / 3)
	defer tick.Stop()
	for {
		select {
		case <-c.done:
			return
		case <-tick.C:
		}
		call, cancel := context.WithTimeout(ctx, job.TTL/3)
		_, err := c.s.db.Exec(call, `UPDATE render_parts SET lease_until = now_ms() + $1
			WHERE job_id = $2 AND owner = $3 AND state = 'MAKING'`, job.TTL.Milliseconds(), c.jobID, c.owner)
		cancel()
		if err != nil {
			outage.Log(c.s.log, slog.LevelWarn, "", "claims of parts not renewed", "job", c.jobID, "err", err)
		}
	}
}

// announcedAtOnce bounds the parameters of one statement.
const announcedAtOnce = 200

// Announce implements engine.PartCoordinator. Parts that an earlier worker still
// makes are left to it. A job that ended meanwhile gets no parts any more.
func (c *partCoordinator) Announce(ctx context.Context, keys []string) error {
	return c.s.db.InTx(ctx, func(tx *db.Tx) error {
		if err := c.s.stillRendered(ctx, tx, c.jobID, tx.ForUpdate()); err != nil {
			return err
		}
		place := 0
		for some := range slices.Chunk(keys, announcedAtOnce) {
			var rows []string
			args := []any{c.jobID}
			for _, key := range some {
				args = append(args, key, place)
				rows = append(rows, fmt.Sprintf("($1, $%d, 'OPEN', $%d)", len(args)-1, len(args)))
				place++
			}
			if _, err := tx.Exec(ctx, `INSERT INTO render_parts (job_id, part_key, state, place) VALUES `+strings.Join(rows, ", ")+`
				ON CONFLICT (job_id, part_key) DO UPDATE SET state = 'OPEN', owner = NULL, lease_until = NULL, place = excluded.place
				WHERE render_parts.state <> 'MAKING' OR render_parts.lease_until < now_ms()`, args...); err != nil {
				return fmt.Errorf("announce parts: %w", err)
			}
		}
		return tx.Notify(ctx, topicParts)
	})
}

// nextSQL ends the claim of part $4 and claims another one. It is one statement,
// because it is what sharing costs for every part. Those who ask at the same moment
// get different parts and do not wait for each other. Who lost its claim reports in
// vain, even of a part that is open again.
func nextSQL(d *db.DB) string {
	first := func(condition string) string {
		return `(SELECT p.part_key FROM render_parts p WHERE p.job_id = $1 AND p.part_key <> $4 AND ` + condition + ` ORDER BY p.place LIMIT 1` + d.SkipLockedOf("p") + `)`
	}
	return `UPDATE render_parts SET owner = $2,
			state = CASE WHEN part_key = $4 THEN 'MADE' ELSE 'MAKING' END,
			lease_until = CASE WHEN part_key = $4 THEN NULL ELSE now_ms() + $3 END
		WHERE job_id = $1 AND (part_key = $4 AND owner = $2 AND state = 'MAKING'
			OR part_key = COALESCE(` + first(`p.state = 'OPEN'`) + `, ` + first(`p.state = 'MAKING' AND p.lease_until < now_ms()`) + `))
		RETURNING CASE WHEN part_key <> $4 THEN part_key
			WHEN EXISTS (SELECT 1 FROM render_parts o WHERE o.state = 'OPEN' AND o.job_id <> $1) THEN '` + othersOpen + `' ELSE '' END`
}

// othersOpen is no part: there are some of other renders.
const othersOpen = "*"

// Next implements engine.PartCoordinator.
func (c *partCoordinator) Next(ctx context.Context, made string) (string, error) {
	if ctx.Err() != nil {
		return "", c.end(ctx, made, "MADE")
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), job.TTL)
	defer cancel()
	keys, err := c.s.db.ExecTexts(ctx, nextSQL(c.s.db), c.jobID, c.owner, job.TTL.Milliseconds(), made)
	if err != nil {
		return "", fmt.Errorf("claim part: %w", err)
	}
	others := slices.Contains(keys, othersOpen)
	keys = slices.DeleteFunc(keys, func(key string) bool { return key == "" || key == othersOpen })
	c.hold(made, keys...)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.others = others
	return strings.Join(keys, ""), nil
}

// GiveUp implements engine.PartCoordinator.
func (c *partCoordinator) GiveUp(ctx context.Context, key string) error {
	return c.end(ctx, key, "FAILED")
}

func (c *partCoordinator) end(ctx context.Context, key, state string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), job.TTL)
	defer cancel()
	if _, err := c.s.db.Exec(ctx, `UPDATE render_parts SET state = $4, lease_until = NULL
		WHERE job_id = $1 AND part_key = $2 AND owner = $3 AND state = 'MAKING'`, c.jobID, key, c.owner, state); err != nil {
		return fmt.Errorf("end part: %w", err)
	}
	c.hold(key)
	return nil
}

// Whoever renders the job looks at the parts of others after an eighth of the time
// that it has waited. It is not told when one ends, because a notification would wake
// every replica there is.
const soonestLook, latestLook = 25 * time.Millisecond, time.Second

// Await implements engine.PartCoordinator.
func (c *partCoordinator) Await(ctx context.Context, keys []string) (map[string]bool, error) {
	for began := time.Now(); ; {
		made, lost, err := c.look(ctx, keys)
		if err != nil || lost || len(made) > 0 {
			return made, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(min(latestLook, max(soonestLook, time.Since(began)/8))):
		}
	}
}

// look tells which of the parts have ended and whether they were made, and whether
// one of them has nobody who makes it.
func (c *partCoordinator) look(ctx context.Context, keys []string) (made map[string]bool, lost bool, err error) {
	states := map[string]string{}
	err = db.Each(ctx, c.s.db, func(row *db.Rows) error {
		var key, state string
		err := row.Scan(&key, &state)
		states[key] = state
		return err
	}, `SELECT part_key, CASE WHEN state = 'MAKING' AND lease_until < now_ms() THEN 'OPEN' ELSE state END
		FROM render_parts WHERE job_id = $1`, c.jobID)
	if err != nil {
		return nil, false, fmt.Errorf("look at parts: %w", err)
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

// assistSuffix ends the names of work folders of assistants.
const assistSuffix = "-assist"

// takeSQL claims a part of the render that began first among those of others, where
// no job waits: that comes before help. Who comes too late for a part fetches nothing.
func takeSQL(d *db.DB) string {
	column := func(name string) string {
		return `(SELECT j.` + name + ` FROM render_jobs j WHERE j.id = render_parts.job_id)`
	}
	return `UPDATE render_parts SET state = 'MAKING', owner = $2, lease_until = now_ms() + $3
		WHERE (job_id, part_key) = (SELECT p.job_id, p.part_key FROM render_parts p WHERE p.state = 'OPEN' AND p.job_id = (
				SELECT j.id FROM render_jobs j WHERE j.state = 'PROCESSING' AND j.lease_until > now_ms() AND j.lease_owner <> $2
					AND EXISTS (SELECT 1 FROM render_parts o WHERE o.job_id = j.id AND o.state = 'OPEN') AND (` + waitingSQL + `) = 0
				ORDER BY j.created_at, j.id LIMIT 1)
			ORDER BY p.place LIMIT 1` + d.SkipLockedOf("p") + `)
		RETURNING part_key, job_id, ` + column("user_id") + `, ` + column("spec") + `, ` + column("fence") + `, ` + column("attempts")
}

// assistant is a slot of ours that makes parts of a job which another replica renders.
type assistant struct {
	s    *Service
	ctx  context.Context
	stop context.CancelFunc
	job  claimedJob
	spec string // encoded
	part string // the first one, which is claimed
	c    *partCoordinator
}

// take looks for a part of somebody else's to make, and returns nil where there is none.
// The caller has a slot for it, and calls assist.
func (s *Service) take(ctx context.Context) (*assistant, error) {
	if _, unable := s.CanWork(ctx); unable != nil {
		return nil, nil // it says itself why
	}
	a := &assistant{s: s}
	call, cancel := context.WithTimeout(context.WithoutCancel(ctx), job.TTL) // see claim
	defer cancel()
	err := s.db.ExecRow(call, takeSQL(s.db), []any{s.NodeID, s.Renewer.Owner(), job.TTL.Milliseconds()},
		&a.part, &a.job.ID, &a.job.UserID, &a.spec, &a.job.Fence, &a.job.Attempts)
	if db.IsNoRows(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for a render to assist: %w", err)
	}
	a.c = s.newPartCoordinator(ctx, a.job.ID, a.part)
	a.ctx, a.stop = s.untilRevoked(ctx, a.job.ID)
	s.assisting.Store(&a.stop)
	return a, nil
}

// assist makes parts until none is left, or until it is stopped. More says that there
// are those of other renders.
func (a *assistant) assist() (stopped, more bool) {
	defer a.stop()
	defer a.s.assisting.Store(nil)
	defer a.c.stop()
	var n int
	err := job.Recover(func() (err error) { n, err = a.make(); return err })
	if stopped = a.ctx.Err() != nil; err != nil && !stopped {
		err = errors.Join(err, a.c.GiveUp(a.ctx, a.part)) // or it would be taken here again and again
		if fault.As(err) == nil {                         // else the job's own worker finds the same
			a.s.log.Warn("could not assist a render", "job", a.job.ID, "err", err)
		}
	}
	a.s.jobLog(a.job).Info("assisted a render", "parts", n)
	return stopped, a.c.others
}

func (a *assistant) make() (n int, err error) {
	if a.job.Spec, err = decodeSpec(a.spec); err != nil {
		return 0, err
	}
	dir := a.job.lease().WorkDir(a.s.WorkDir) + assistSuffix
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return 0, fmt.Errorf("create work folder: %w", err)
	}
	defer os.RemoveAll(dir)
	sources, err := a.s.fetch(a.ctx, a.job, dir)
	if err != nil {
		return 0, err
	}
	return a.s.Engine.Assist(a.ctx, engine.Job{Dir: dir, Timeline: a.job.Spec.Timeline, Sources: sources,
		CacheScope: a.job.UserID, Log: a.s.jobLog(a.job), Coordinator: a.c}, a.part)
}

// stopAssisting gives the slot that helps others to a job that waits for one. What was
// made of a part is lost; somebody else makes it.
func (s *Service) stopAssisting(ctx context.Context) error {
	stop := s.assisting.Load()
	if stop == nil {
		return nil
	}
	waiting, err := s.waits(ctx)
	if waiting {
		(*stop)()
	}
	return err
}
