package render

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"cutroom/internal/db"
	"cutroom/internal/engine"
	"cutroom/internal/fault"
	"cutroom/internal/job"
)

// topicParts wakes those who wait for a part that somebody else makes.
const topicParts = "render-parts"

// partCoordinator shares the parts of one job among replicas, through rows of
// render_parts. It implements engine.PartCoordinator. Every part that it claims is kept
// alive by one heartbeat until stop is called.
type partCoordinator struct {
	s     *Service
	jobID string
	owner string // of the claims made through this coordinator

	once sync.Once
	done chan struct{}
	idle chan struct{} // closed when the heartbeat has ended
}

func (s *Service) newPartCoordinator(ctx context.Context, jobID string) *partCoordinator {
	c := &partCoordinator{s: s, jobID: jobID, owner: s.Renewer.Owner(), done: make(chan struct{}), idle: make(chan struct{})}
	go c.beat(context.WithoutCancel(ctx))
	return c
}

func (c *partCoordinator) stop() {
	c.once.Do(func() { close(c.done) })
	<-c.idle
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

// Announce implements engine.PartCoordinator. Parts that an earlier worker still
// makes are left to it. A job that ended meanwhile gets no parts any more.
func (c *partCoordinator) Announce(ctx context.Context, keys []string) error {
	return c.s.db.InTx(ctx, func(tx *db.Tx) error {
		if err := c.s.stillRendered(ctx, tx, c.jobID, tx.ForUpdate()); err != nil {
			return err
		}
		for _, key := range keys {
			if _, err := tx.Exec(ctx, `INSERT INTO render_parts (job_id, part_key, state) VALUES ($1, $2, 'OPEN')
				ON CONFLICT (job_id, part_key) DO UPDATE SET state = 'OPEN', owner = NULL, lease_until = NULL
				WHERE render_parts.state <> 'MAKING' OR render_parts.lease_until < now_ms()`, c.jobID, key); err != nil {
				return fmt.Errorf("announce parts: %w", err)
			}
		}
		return tx.Notify(ctx, topic)
	})
}

// Claim implements engine.PartCoordinator.
func (c *partCoordinator) Claim(ctx context.Context, key string) (bool, error) {
	n, err := c.s.db.Exec(ctx, `UPDATE render_parts SET state = 'MAKING', owner = $3, lease_until = now_ms() + $4
		WHERE job_id = $1 AND part_key = $2 AND (state = 'OPEN' OR (state = 'MAKING' AND lease_until < now_ms()))`,
		c.jobID, key, c.owner, job.TTL.Milliseconds())
	if err != nil {
		return false, fmt.Errorf("claim part: %w", err)
	}
	return n == 1, nil
}

// ClaimAny implements engine.PartCoordinator. Assistants that ask at the same moment get
// different parts and do not wait for each other.
func (c *partCoordinator) ClaimAny(ctx context.Context) (key string, err error) {
	err = c.s.db.InTx(ctx, func(tx *db.Tx) error {
		key = ""
		err := tx.QueryRow(ctx, `UPDATE render_parts SET state = 'MAKING', owner = $2, lease_until = now_ms() + $3
			WHERE job_id = $1 AND part_key = (SELECT p.part_key FROM render_parts p WHERE p.job_id = $1
				AND (p.state = 'OPEN' OR (p.state = 'MAKING' AND p.lease_until < now_ms()))
				ORDER BY p.part_key LIMIT 1`+tx.SkipLockedOf("p")+`)
			RETURNING part_key`, c.jobID, c.owner, job.TTL.Milliseconds()).Scan(&key)
		if db.IsNoRows(err) {
			return nil
		}
		return err
	})
	if err != nil {
		return "", fmt.Errorf("claim part: %w", err)
	}
	return key, nil
}

// Made implements engine.PartCoordinator.
func (c *partCoordinator) Made(ctx context.Context, key string, ok bool) error {
	state := "MADE"
	if !ok {
		state = "FAILED"
	}
	return c.s.db.InTx(ctx, func(tx *db.Tx) error {
		if _, err := tx.Exec(ctx, `UPDATE render_parts SET state = $4, lease_until = NULL
			WHERE job_id = $1 AND part_key = $2 AND owner = $3 AND state = 'MAKING'`, c.jobID, key, c.owner, state); err != nil {
			return fmt.Errorf("end part: %w", err)
		}
		return tx.Notify(ctx, topicParts)
	})
}

// Await implements engine.PartCoordinator.
func (c *partCoordinator) Await(ctx context.Context, key string) (bool, error) {
	wake, stop := c.s.db.Listen(topicParts)
	defer stop()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		var state string
		var alive bool
		err := c.s.db.QueryRow(ctx, `SELECT state, COALESCE(lease_until, 0) > now_ms() FROM render_parts
			WHERE job_id = $1 AND part_key = $2`, c.jobID, key).Scan(&state, &alive)
		switch {
		case db.IsNoRows(err):
			return false, nil
		case err != nil:
			return false, fmt.Errorf("await part: %w", err)
		case state == "MADE":
			return true, nil
		case state != "MAKING" || !alive:
			return false, nil
		}
		select {
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case <-wake:
		case <-tick.C:
		}
	}
}

// assistance returns what spends an idle slot on somebody else's render, or nil
// where there is no slot for that: a job that waits comes first, and one slot at
// most helps. What it returns reports whether to look for work again at once.
func (s *Service) assistance(ctx context.Context, waiting bool) func() bool {
	ctx, cancel := context.WithCancel(ctx)
	if waiting || s.Bucket == nil || !s.assisting.CompareAndSwap(nil, &cancel) {
		cancel()
		return nil
	}
	return func() bool {
		made, err := s.assist(ctx)
		stopped := ctx.Err() != nil
		if err != nil && !stopped {
			s.log.Warn("could not assist a render", "err", err)
		}
		s.assisting.Store(nil)
		cancel()
		return made || stopped
	}
}

// stopAssisting gives the slot that helps others to a job that waits for one.
// What was made of a part is lost; whoever renders the film makes it.
func (s *Service) stopAssisting(ctx context.Context) error {
	cancel := s.assisting.Load()
	if cancel == nil {
		return nil
	}
	waiting, err := s.waits(ctx)
	if waiting {
		(*cancel)()
	}
	return err
}

// assistSuffix ends the names of work folders of assistants.
const assistSuffix = "-assist"

// assist helps with a job that another replica renders, if there is one with
// parts nobody has taken. It reports whether it made any.
func (s *Service) assist(ctx context.Context) (bool, error) {
	var j claimedJob
	var encoded string
	err := s.db.QueryRow(ctx, `SELECT j.id, j.user_id, j.spec, j.fence, j.attempts FROM render_jobs j
		WHERE j.state = 'PROCESSING' AND j.lease_until > now_ms() AND j.lease_owner <> $1
			AND EXISTS (SELECT 1 FROM render_parts p WHERE p.job_id = j.id AND p.state = 'OPEN')
		ORDER BY j.created_at, j.id LIMIT 1`, s.Renewer.Owner()).Scan(&j.ID, &j.UserID, &encoded, &j.Fence, &j.Attempts)
	if db.IsNoRows(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for a render to assist: %w", err)
	}
	if _, unable := s.CanWork(ctx); unable != nil {
		return false, nil // it says itself why
	}
	if j.Spec, err = decodeSpec(encoded); err != nil {
		return false, err
	}
	dir := j.lease().WorkDir(s.WorkDir) + assistSuffix
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return false, fmt.Errorf("create work folder: %w", err)
	}
	defer os.RemoveAll(dir)
	sources, err := s.fetch(ctx, j, dir)
	if err != nil {
		return false, err
	}
	ctx, cancel := s.untilRevoked(ctx, j.ID)
	defer cancel()
	c := s.newPartCoordinator(ctx, j.ID)
	defer c.stop()
	made, err := s.Engine.Assist(ctx, engine.Job{Dir: dir, Timeline: j.Spec.Timeline, Sources: sources, CacheScope: j.UserID, Log: s.jobLog(j), Coordinator: c})
	if err != nil && (fault.As(err) != nil || errors.Is(err, context.Canceled)) {
		err = nil // the job's own worker finds the same, or it is us who stop
	}
	s.jobLog(j).Info("assisted a render", "parts", made)
	return made > 0, err
}
