package job

import (
	"context"
	"fmt"
	"time"

	"cutroom/internal/base/db"
)

// Pick is one way to claim a job.
type Pick struct {
	From, To string   // To is From if the worker continues where another one stopped; then no new attempt begins
	Job      Fragment // a query for the id of the job
	// Lock, unless "", names the lock, shared by all replicas, under which the query runs: what it picks depends on the
	// jobs that are at work, so two concurrent claims could together pick too many.
	Lock   string
	Set    Fragment // assignments of details
	Topics []string // further topics to notify
}

// Queue is the jobs of a kind as its workers see them. J is what a worker needs to know about a job.
type Queue[J any] struct {
	Table
	// Look returns the ways to claim a job, in order of preference; none if no job is waiting that this replica may
	// claim. It takes no lock. Most claims end with it.
	Look func(ctx context.Context) ([]Pick, error)
	// Read reads a job in the transaction that claims it.
	Read func(ctx context.Context, tx *db.Tx, c Claim) (J, error)
}

// Claim claims the next job. A stop of the service does not cut a claim short, because its outcome would be unknown,
// and no claim takes longer than the lease lasts.
func (q Queue[J]) Claim(ctx context.Context) (j J, ok bool, err error) {
	// A frozen database answers only after every lease has run out, so do not wait for it.
	picks, err := q.Look(db.WithLimit(ctx, TTL/3))
	if err != nil {
		return j, false, fmt.Errorf("look for %s jobs: %w", q.Kind, err)
	}
	if len(picks) == 0 {
		return j, false, nil
	}
	call := db.WithLimit(context.WithoutCancel(ctx), TTL)
	var c Claim
	var from string
	err = q.DB.InTx(call, func(tx *db.Tx) (err error) {
		for _, p := range picks {
			if p.Lock != "" {
				if err := tx.Lock(call, p.Lock); err != nil {
					return err
				}
			}
			if c, ok, err = q.Take(call, tx, p); err != nil {
				return err
			}
			if ok {
				from = p.From
				j, err = q.Read(call, tx, c)
				return err
			}
		}
		return nil
	})
	if err != nil {
		var none J
		return none, false, fmt.Errorf("claim %s: %w", q.Kind, err)
	}
	if !ok {
		return j, false, nil
	}
	log := q.AttemptLog(c).With("ageMs", c.age.Milliseconds())
	if from == c.State {
		log.Info(q.Kind + " taken over")
	} else {
		log.Info(q.Kind + " claimed")
	}
	return j, true, nil
}

// Take claims the job that p picks, if it is still in the state from which p takes it. Ok reports whether there was
// one.
func (t Table) Take(ctx context.Context, tx *db.Tx, p Pick) (c Claim, ok bool, err error) {
	var m moved
	var ageMs int64
	asked := time.Now()
	query, args := statement([]any{p.From, p.To, t.Renewer.Owner(), TTL.Milliseconds(), t.Kind},
		`UPDATE jobs SET state = $2, started_at = COALESCE(started_at, now_ms()),
			lease_owner = $3, lease_until = now_ms() + $4, fence = fence + 1
		WHERE kind = $5 AND state = $1 AND id = (`, p.Job, `) RETURNING attempts, fence, now_ms() - created_at, `+movedColumns)
	err = tx.QueryRow(ctx, query, args...).Scan(append([]any{&c.Attempts, &c.Fence, &ageMs}, m.fields()...)...)
	if db.IsNoRows(err) {
		return c, false, nil
	}
	if err != nil {
		return c, false, fmt.Errorf("claim job: %w", err)
	}
	c.Lease, c.UserID, c.State = Lease{Table: "jobs", ID: m.ID, Fence: c.Fence, Asked: asked}, m.UserID, p.To
	c.age = time.Duration(ageMs) * time.Millisecond
	if p.From != p.To {
		c.Attempts++
	}
	if err := t.Set(ctx, tx, c.ID, p.Set); err != nil {
		return c, false, err
	}
	if err := Announce(ctx, tx, c.ID, p.Topics...); err != nil {
		return c, false, err
	}
	return c, true, t.count(ctx, tx, p.From, p.To, m)
}
