// Package job gives a row to one worker, and to no other, until the job ends.
//
// A table whose rows are jobs has the columns lease_owner, lease_until and fence. A
// claim sets all three and raises the fence by one. The package that owns the table
// writes the claim, because the domain decides what may be claimed; [Table] has the
// moves that all kinds of jobs share. The holder renews its lease by
// [Renewer.KeepAlive], which moves lease_until ahead. When it stops renewing, any worker
// may claim the row. Every write of a holder names its fence, so a holder that was
// only slow can no longer write.
//
// lease_until is compared with the database's clock alone, so the clocks of replicas
// need not agree.
package job

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"cutroom/internal/db"
)

// ErrLost is the cause of a work context whose lease another worker took or which could
// not be renewed in time. The holder must stop and write nothing.
var ErrLost = errors.New("lease lost")

// ErrMoved reports that a guarded update found another holder, or another state.
var ErrMoved = errors.New("job is no longer this worker's")

// Guarded returns ErrMoved if an update that names a row's id, fence and state touched
// no row.
func Guarded(n int64, err error) error {
	if err != nil {
		return fmt.Errorf("move job: %w", err)
	}
	if n == 0 {
		return ErrMoved
	}
	return nil
}

// TTL is how long a claim lives without a heartbeat, and so how long a dead worker's
// job waits before another worker claims it.
const TTL = 9 * time.Second

const (
	// heartbeat is how often a lease is renewed while renewals succeed, and how long
	// one renewal may take.
	heartbeat = TTL / 3
	// firstHeartbeat is early, so that a revocation announced between the claim and
	// the start of listening is noticed soon.
	firstHeartbeat = heartbeat / 3
	// retryPause is the pause after a failed renewal.
	retryPause = 500 * time.Millisecond
	// giveUp is how long after its last renewal a holder stops by itself: before the
	// lease runs out, so that it never overlaps with the next holder.
	giveUp = TTL - time.Second
)

// Lease names one claimed row.
type Lease struct {
	Table string // a constant of the program, never input
	ID    string
	Fence int64
}

// Renewer renews leases on behalf of one process.
type Renewer struct {
	db    *db.DB
	owner string
	log   *slog.Logger

	outage Outage
}

// NewRenewer returns a Renewer. Owner identifies this process and must differ at each
// start, so that a restarted process does not take the leases of its predecessor for
// its own.
func NewRenewer(d *db.DB, owner string, log *slog.Logger) *Renewer {
	return &Renewer{db: d, owner: owner, log: log}
}

// Owner is the name that claims of this process write into lease_owner.
func (k *Renewer) Owner() string { return k.owner }

// KeepAlive renews l until release is called. The returned context ends with cause
// [ErrLost] when the row is no longer this holder's, at once if that is announced on
// [Revoked], and with the parent's cause when the parent ends. Release waits for the
// last heartbeat and leaves the row as it is; the statement that ends the job clears
// the lease.
func (k *Renewer) KeepAlive(ctx context.Context, l Lease) (work context.Context, release func()) {
	return k.KeepRenewing(ctx, l.ID, func(ctx context.Context) (held bool, err error) {
		n, err := k.db.Exec(ctx, `UPDATE `+l.Table+` SET lease_until = now_ms() + $1
			WHERE id = $2 AND fence = $3 AND lease_owner = $4`, TTL.Milliseconds(), l.ID, l.Fence, k.owner)
		return n == 1, err
	})
}

// KeepRenewing is [Renewer.KeepAlive] for everything that renew keeps alive for [TTL],
// on behalf of the job of that id.
func (k *Renewer) KeepRenewing(ctx context.Context, jobID string, renew func(ctx context.Context) (held bool, err error)) (
	work context.Context, release func()) {
	work, cancel := context.WithCancelCause(ctx)
	revoked, stopListening := k.db.Listen(Revoked(jobID))
	done := make(chan struct{})
	stop := make(chan struct{})
	go func() {
		defer close(done)
		defer stopListening()
		k.beat(work, jobID, renew, cancel, revoked, stop)
	}()
	var once sync.Once
	return work, func() {
		once.Do(func() {
			close(stop)
			<-done
			cancel(context.Canceled)
		})
	}
}

func (k *Renewer) beat(ctx context.Context, jobID string, renew func(context.Context) (bool, error), lost context.CancelCauseFunc,
	revoked, stop <-chan struct{}) {
	next := time.NewTimer(firstHeartbeat)
	defer next.Stop()
	deadline := time.Now().Add(giveUp)
	for {
		select {
		case <-stop:
			return
		case <-revoked:
		case <-next.C:
		}
		// The lease counts from when the database wrote it, which may be long before
		// the answer arrives.
		asked := time.Now()
		// Renewals go on while the work winds down, so that a clean stop keeps its job.
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(heartbeat, time.Until(deadline)))
		held, err := renew(call)
		cancel()
		switch {
		case err == nil && !held:
			lost(ErrLost)
			return
		case err == nil:
			deadline = asked.Add(giveUp)
			next.Reset(heartbeat)
		default:
			k.outage.Log(k.log, slog.LevelWarn, "lease", "leases are not renewed", "job", jobID, "err", err)
			if !time.Now().Before(deadline) {
				lost(ErrLost)
				return
			}
			next.Reset(min(retryPause, time.Until(deadline)))
		}
	}
}

// Poll calls work until work reports that nothing was left, then again whenever wake
// receives and at least every interval, until ctx ends. After an error or a panic it
// waits as for an empty queue, and logs it once a minute while it lasts.
func Poll(ctx context.Context, log *slog.Logger, name string, wake <-chan struct{}, every time.Duration,
	work func(ctx context.Context) (bool, error)) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	var outage Outage
	for {
		for ctx.Err() == nil {
			var more bool
			err := Recover(func() (err error) { more, err = work(ctx); return err })
			if err != nil && ctx.Err() == nil {
				kind := ""
				if p := (*PanicError)(nil); errors.As(err, &p) {
					kind = err.Error()
				}
				outage.Log(log, slog.LevelError, kind, "worker", "name", name, "err", err)
			}
			if err != nil || !more {
				break
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-wake:
		case <-tick.C:
		}
	}
}
