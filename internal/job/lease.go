// Package job gives a row to one worker, and to no other, until the job ends.
//
// A table whose rows are jobs has the columns lease_owner, lease_until and
// fence. Claiming a row sets all three and raises fence by one; the claim
// itself is written by the package of the table, because what may be claimed is
// a rule of the domain. From then on the holder renews its lease by
// [Renewer.KeepAlive], which moves lease_until ahead. When it stops doing so
// the row may be claimed by anybody, and because every write of a holder names
// the fence that it was given, a holder that was only slow, not dead, can write
// nothing any more.
//
// lease_until is compared with the database's clock alone; replicas need no
// synchronised clocks.
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

// ErrLost is the cause of a work context whose lease went to somebody else or
// could not be renewed in time. The holder must stop and write nothing.
var ErrLost = errors.New("lease lost")

// ErrMoved reports that a guarded update found the job in other hands, or in
// another state.
var ErrMoved = errors.New("job is no longer this worker's")

// Guarded takes the result of an update that must touch the one row whose id, fence
// and state it names, or else answers ErrMoved.
func Guarded(n int64, err error) error {
	if err != nil {
		return fmt.Errorf("move job: %w", err)
	}
	if n == 0 {
		return ErrMoved
	}
	return nil
}

// TTL is how long a claim lives without a heartbeat: the time after which a
// dead worker's job goes on elsewhere.
const TTL = 9 * time.Second

const (
	// heartbeat is how often a lease is renewed while all goes well, and how
	// long one try may take.
	heartbeat = TTL / 3
	// first is when a lease is renewed for the first time: what was announced
	// between the claim and the listening for it is noticed then.
	first = heartbeat / 3
	// again is the pause after a try that failed.
	again = 500 * time.Millisecond
	// giveUp is how long after its last renewal a holder stops by itself. It is
	// before the lease runs out, so that the next holder never meets it.
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

// NewRenewer returns a Renewer. Owner identifies this process and must differ at
// each start, so that a restarted process does not mistake itself for the one
// that died.
func NewRenewer(d *db.DB, owner string, log *slog.Logger) *Renewer {
	return &Renewer{db: d, owner: owner, log: log}
}

// Owner is the name written into lease_owner by claims of this process.
func (k *Renewer) Owner() string { return k.owner }

// KeepAlive renews l until release is called. The returned context ends with cause
// [ErrLost] as soon as the row is no longer this holder's, at once where that is
// announced on [Revoked], and with the parent's cause when the parent ends. release waits for the last heartbeat
// and leaves the row as it is: whoever finished the job clears the lease.
func (k *Renewer) KeepAlive(ctx context.Context, l Lease) (work context.Context, release func()) {
	work, cancel := context.WithCancelCause(ctx)
	revoked, deaf := k.db.Listen(Revoked(l.ID))
	done := make(chan struct{})
	stop := make(chan struct{})
	go func() {
		defer close(done)
		defer deaf()
		k.beat(work, l, cancel, revoked, stop)
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

func (k *Renewer) beat(ctx context.Context, l Lease, lost context.CancelCauseFunc, revoked, stop <-chan struct{}) {
	next := time.NewTimer(first)
	defer next.Stop()
	deadline := time.Now().Add(giveUp)
	for {
		select {
		case <-stop:
			return
		case <-revoked:
		case <-next.C:
		}
		// The lease counts from the moment the database wrote it, which may be
		// long before its answer is here.
		asked := time.Now()
		// Renewing goes on while the work winds down, so the job is not taken
		// away in the middle of its own clean stop.
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(heartbeat, time.Until(deadline)))
		ok, err := k.renew(call, l)
		cancel()
		switch {
		case err == nil && !ok:
			lost(ErrLost)
			return
		case err == nil:
			deadline = asked.Add(giveUp)
			next.Reset(heartbeat)
		default:
			k.outage.Log(k.log, slog.LevelWarn, "lease", "leases are not renewed", "table", l.Table, "job", l.ID, "err", err)
			if !time.Now().Before(deadline) {
				lost(ErrLost)
				return
			}
			next.Reset(min(again, time.Until(deadline)))
		}
	}
}

func (k *Renewer) renew(ctx context.Context, l Lease) (bool, error) {
	n, err := k.db.Exec(ctx, `UPDATE `+l.Table+` SET lease_until = now_ms() + $1
		WHERE id = $2 AND fence = $3 AND lease_owner = $4`,
		TTL.Milliseconds(), l.ID, l.Fence, k.owner)
	if err != nil {
		return false, fmt.Errorf("renew lease: %w", err)
	}
	return n == 1, nil
}

// RevokeAll takes the rows of a user that meet a condition, constants of the
// program both, away from whoever works on them.
func RevokeAll(ctx context.Context, d *db.DB, table, userID, condition string) error {
	return d.InTx(ctx, func(tx *db.Tx) error {
		ids, err := db.Texts(tx.Query(ctx, `UPDATE `+table+` SET fence = fence + 1, lease_owner = NULL, lease_until = NULL
			WHERE user_id = $1 AND `+condition+` RETURNING id`, userID))
		if err != nil {
			return fmt.Errorf("stop jobs: %w", err)
		}
		for _, id := range ids {
			err = errors.Join(err, tx.Notify(ctx, Revoked(id)))
		}
		return err
	})
}

// Poll calls work until it reports that there was nothing to do, then again
// whenever wake receives and at least every interval, until ctx ends. An error
// of work is logged, once a minute while it lasts, and waited out like an empty
// queue, and so is a panic.
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
