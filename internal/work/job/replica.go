package job

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"cutroom/internal/base/db"
	"cutroom/internal/base/fault"
)

// ReplicaTTL is how long a replica counts as alive after it was last seen.
const ReplicaTTL = 30 * time.Second

// Replica is what one process announces to the others about itself.
type Replica struct {
	ID string // the owner of its leases
	// Offers says how many jobs the process may run at once, 0 while it cannot work, and how many bytes these may still
	// write.
	Offers func(ctx context.Context) (slots int, freeBytes int64)
	Log    *slog.Logger
}

// Run announces the replica until ctx ends, and then signs it off.
func (r Replica) Run(ctx context.Context, d *db.DB) error {
	tick := time.NewTicker(ReplicaTTL / 3)
	defer tick.Stop()
	var outage fault.Outage
	for {
		if err := r.Announce(ctx, d); err != nil && ctx.Err() == nil {
			outage.Log(r.Log, slog.LevelWarn, "", "replica not announced", "err", err)
		}
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
			defer cancel()
			if _, err := d.Exec(last, `DELETE FROM replicas WHERE id = $1`, r.ID); err != nil {
				r.Log.Warn("replica not signed off; the others will notice", "err", err)
			}
			return nil
		case <-tick.C:
		}
	}
}

// Announce records once that the replica lives and what it offers, and deletes replicas that have been silent for a
// long time.
func (r Replica) Announce(ctx context.Context, d *db.DB) error {
	slots, free := r.Offers(ctx)
	_, err := d.Exec(ctx, `INSERT INTO replicas (id, slots, free_bytes, seen_at) VALUES ($1, $2, $3, now_ms())
		ON CONFLICT (id) DO UPDATE SET slots = excluded.slots, free_bytes = excluded.free_bytes, seen_at = excluded.seen_at`,
		r.ID, slots, max(0, free))
	_, gone := d.Exec(ctx, `DELETE FROM replicas WHERE seen_at < now_ms() - $1`, 10*ReplicaTTL.Milliseconds())
	if err = errors.Join(err, gone); err != nil {
		return fmt.Errorf("announce replica: %w", err)
	}
	return nil
}

// CheckWrites commits a write to the row of a replica, which it creates if necessary. A database may answer every read
// and still not commit: for example, a primary without its synchronous standby.
func CheckWrites(ctx context.Context, d *db.DB, id string) error {
	if _, err := d.Exec(ctx, `INSERT INTO replicas (id, slots, free_bytes, seen_at) VALUES ($1, 0, 0, 0)
		ON CONFLICT (id) DO UPDATE SET seen_at = replicas.seen_at`, id); err != nil {
		return fmt.Errorf("write to the database: %w", err)
	}
	return nil
}

// Offer is what all live replicas offer together.
type Offer struct {
	Replicas      int64 // 0 does not mean a lack of room: a replica whose disk is full is still alive
	Slots         int64
	MostFreeBytes int64 // of the replica that has most
}

// Live returns what the live replicas offer.
func Live(ctx context.Context, q db.Querier) (o Offer, err error) {
	err = q.QueryRow(ctx, `SELECT COUNT(*), COALESCE(SUM(slots), 0), COALESCE(MAX(free_bytes), 0) FROM replicas WHERE seen_at > now_ms() - $1`,
		ReplicaTTL.Milliseconds()).Scan(&o.Replicas, &o.Slots, &o.MostFreeBytes)
	if err != nil {
		return Offer{}, fmt.Errorf("look for replicas: %w", err)
	}
	return o, nil
}
