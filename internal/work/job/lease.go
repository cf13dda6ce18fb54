// Leases: a claim lives for TTL unless its holder renews it. This file says what a holder does when the lease is lost
// or the database does not answer, and how one replica gets to do something alone.

package job

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"cutroom/internal/base/db"
	"cutroom/internal/base/fault"
)

// ErrLost is the cause of a work context whose lease another worker took. The holder must stop and write nothing.
var ErrLost = errors.New("lease lost")

// ErrOutage is the cause of a work context whose lease could not be renewed in time. The holder must stop, because the
// lease may run out. Nobody may have claimed the row yet.
var ErrOutage = fmt.Errorf("lease not renewed: %w", db.ErrUnavailable)

// ErrMoved reports that a guarded update found another holder, or another state.
var ErrMoved = errors.New("job is no longer this worker's")

// ErrDeleted is the failure of a job that its owner deleted.
var ErrDeleted = fault.Failedf(fault.Interrupted, "Deleted by its owner")

// Guarded returns ErrMoved if an update that names a row's id, fence and state touched no row.
func Guarded(n int64, err error) error {
	if err != nil {
		return fmt.Errorf("move job: %w", err)
	}
	if n == 0 {
		return ErrMoved
	}
	return nil
}

// TTL is how long a claim lives without a heartbeat, and so how long a dead worker's job waits before another worker
// claims it.
const TTL = 9 * time.Second

const (
	// heartbeat is how often a lease is renewed while renewals succeed, and how long one renewal may take.
	heartbeat = TTL / 3
	// firstHeartbeat is early, so that a revocation announced between the claim and the start of listening is noticed
	// soon.
	firstHeartbeat = heartbeat / 3
	// retryPause is the pause after a failed renewal.
	retryPause = 500 * time.Millisecond
	// giveUp is how long after its last renewal a holder stops of its own accord: before the lease runs out, so that it
	// never overlaps with the next holder.
	giveUp = TTL - time.Second
)

// Lease names one claimed row.
type Lease struct {
	Table string // a constant of the program, never input
	ID    string
	Fence int64
	// Asked is when the claim was asked for, which is before the database wrote it. The holder's first deadline counts
	// from then.
	Asked time.Time
}

// Renewer renews leases on behalf of one process.
type Renewer struct {
	db    *db.DB
	owner string
	log   *slog.Logger

	outage fault.Outage
}

// NewRenewer returns a Renewer. Owner identifies this process and must differ at each start, so that a restarted
// process does not take the leases of its predecessor for its own.
func NewRenewer(d *db.DB, owner string, log *slog.Logger) *Renewer {
	return &Renewer{db: d, owner: owner, log: log}
}

// Owner is the name that claims of this process write into lease_owner.
func (k *Renewer) Owner() string { return k.owner }

// KeepAlive renews a lease until its holder releases it.
func (k *Renewer) KeepAlive(ctx context.Context, l Lease) *Holder {
	return k.KeepRenewing(ctx, l.ID, l.Asked, func(ctx context.Context) (held bool, err error) {
		n, err := k.db.Exec(ctx, `UPDATE `+l.Table+` SET lease_until = now_ms() + $1
			WHERE id = $2 AND fence = $3 AND lease_owner = $4`, TTL.Milliseconds(), l.ID, l.Fence, k.owner)
		return n == 1, err
	})
}

// Holder renews one lease. After an outage it continues to renew, so that no other worker claims the job and it can be
// handed back.
type Holder struct {
	// Work ends with cause [ErrLost] when the row is no longer this holder's, at once if that is announced on
	// [revoked]; with [ErrOutage] when renewals have failed for so long that the lease may run out; and with its
	// parent.
	Work context.Context
	// Release waits for the last heartbeat and leaves the row as it is; the statement that ends the job clears the
	// lease.
	Release func()

	renewer *Renewer
	jobID   string
	renew   func(context.Context) (held bool, err error)
	cancel  context.CancelCauseFunc
	over    chan bool // receives, after an outage, whether the lease is still held
}

// KeepRenewing is [Renewer.KeepAlive] for everything that one call of renew keeps alive for [TTL], on behalf of the job
// with the given id. The claim, or the last renewal, was made no earlier than asked.
func (k *Renewer) KeepRenewing(ctx context.Context, jobID string, asked time.Time,
	renew func(ctx context.Context) (held bool, err error)) *Holder {
	h := &Holder{renewer: k, jobID: jobID, renew: renew, over: make(chan bool, 1)}
	h.Work, h.cancel = context.WithCancelCause(ctx)
	revoked, stopListening := k.db.Listen(revoked(jobID))
	done, stop := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		defer stopListening()
		h.beat(asked, revoked, stop)
	}()
	h.Release = sync.OnceFunc(func() {
		close(stop)
		<-done
		h.cancel(context.Canceled)
	})
	return h
}

func (h *Holder) beat(asked time.Time, revoked, stop <-chan struct{}) {
	next := time.NewTimer(time.Until(asked.Add(firstHeartbeat)))
	defer next.Stop()
	deadline, outage := asked.Add(giveUp), false
	for {
		select {
		case <-stop:
			return
		case <-revoked:
		case <-next.C:
			drain(revoked) // the renewal below notices a revocation
		}
		limit := heartbeat
		if !outage {
			limit = min(heartbeat, time.Until(deadline))
		}
		// The lease counts from when the database wrote it, which may be long before the answer arrives.
		asked = time.Now()
		held, err := h.renewWithin(limit)
		switch {
		case err != nil:
			h.renewer.outage.Log(h.renewer.log, slog.LevelWarn, "lease", "leases are not renewed", "job", h.jobID, "err", err)
			if left := time.Until(deadline); left > 0 {
				next.Reset(min(retryPause, left))
				continue
			}
			outage = true
			h.cancel(ErrOutage)
			next.Reset(retryPause)
		case !held:
			h.cancel(ErrLost)
			h.endOutage(false)
			return
		default:
			if outage {
				h.endOutage(true)
			}
			outage = false
			deadline = asked.Add(giveUp)
			next.Reset(heartbeat)
		}
	}
}

// renewWithin also renews the lease while the work winds down after its context has ended, so that a clean stop keeps
// its job.
func (h *Holder) renewWithin(limit time.Duration) (held bool, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(h.Work), limit)
	defer cancel()
	return h.renew(ctx)
}

func (h *Holder) endOutage(held bool) {
	select {
	case h.over <- held:
	default: // outlast waits only for the end of the first outage
	}
}

// outlast waits for the end of an outage that ended the work, and reports whether the lease is still the holder's. It
// gives up when ctx ends.
func (h *Holder) outlast(ctx context.Context) (held bool) {
	select {
	case held = <-h.over:
		return held
	case <-ctx.Done():
		return true
	}
}

// RunExclusive runs do on one replica at a time, the one that holds the named lease, until ctx ends. The context of do
// ends when the lease is lost; do then returns, and the replica asks for the lease again. A replica that stops gives
// the lease back, and one that dies loses it after [TTL].
func (k *Renewer) RunExclusive(ctx context.Context, name string, do func(context.Context)) {
	tick := time.NewTicker(heartbeat)
	defer tick.Stop()
	for {
		if l, err := k.claimLease(ctx, name); err == nil {
			holder := k.KeepAlive(ctx, l)
			do(holder.Work)
			holder.Release()
			k.releaseLease(ctx, l)
		} else if !db.IsNoRows(err) && ctx.Err() == nil {
			k.outage.Log(k.log, slog.LevelWarn, name, "lease not claimed", "lease", name, "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// claimLease claims a named lease, or finds no row while another replica holds it.
func (k *Renewer) claimLease(ctx context.Context, name string) (Lease, error) {
	l := Lease{Table: "leases", ID: name, Asked: time.Now()}
	err := k.db.ExecRow(ctx, `INSERT INTO leases (id, lease_owner, lease_until, fence) VALUES ($1, $2, now_ms() + $3, 1)
		ON CONFLICT (id) DO UPDATE SET lease_owner = excluded.lease_owner, lease_until = excluded.lease_until, fence = leases.fence + 1
		WHERE leases.lease_until < now_ms() RETURNING fence`, []any{name, k.owner, TTL.Milliseconds()}, &l.Fence)
	if err != nil && !db.IsNoRows(err) {
		err = fmt.Errorf("claim lease: %w", err)
	}
	return l, err
}

// releaseLease lets the next replica claim the lease at once.
func (k *Renewer) releaseLease(ctx context.Context, l Lease) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if _, err := k.db.Exec(ctx, `UPDATE leases SET lease_until = 0 WHERE id = $1 AND fence = $2`, l.ID, l.Fence); err != nil {
		k.log.Warn("lease not released; it runs out", "lease", l.ID, "err", err)
	}
}
