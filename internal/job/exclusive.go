package job

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"cutroom/internal/db"
)

// RunExclusive runs do on one replica at a time, the one that holds the named lease,
// until ctx ends. The context of do ends when the lease is lost; do then returns, and
// the replica asks for the lease again. A replica that stops gives the lease back, and
// one that dies loses it after [TTL].
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
	l := Lease{Table: "leases", ID: name}
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
