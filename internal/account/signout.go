package account

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"cutroom/internal/audit"
	"cutroom/internal/db"
	"cutroom/internal/fault"
)

// SignOutDelay is how long a sign-out may take to reach every replica.
const SignOutDelay = time.Second

// SignOut makes every access token that a user has invalid, on behalf of actor.
// It holds everywhere after [SignOutDelay].
func SignOut(ctx context.Context, d *db.DB, userID, actor string) error {
	return d.InTx(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, `UPDATE users SET signed_out_at = now_ms() WHERE id = $1 AND erasing_at IS NULL`, userID)
		if err != nil {
			return fmt.Errorf("sign out: %w", err)
		}
		if n == 0 {
			return unknown(userID)
		}
		return audit.Record(ctx, tx, audit.Entry{Actor: actor, Action: audit.SignedOut, Target: userID})
	})
}

// validFrom is the earliest time of issue of a token that is valid after a
// sign-out. Tokens count in whole seconds.
func validFrom(signedOutAt sql.NullInt64) time.Time {
	if !signedOutAt.Valid {
		return time.Time{}
	}
	return time.UnixMilli(signedOutAt.Int64 + 999).Truncate(time.Second)
}

// signOuts knows the users who were signed out while tokens of theirs may live.
// They are few, so all are read at most once in [SignOutDelay], instead of one
// user at every request.
type signOuts struct {
	db   *db.DB
	life time.Duration // of the longest-lived token
	// turn is held while the fields below are read or written.
	turn  chan struct{}
	asked time.Time        // when the database was asked for at
	at    map[string]int64 // by user, epoch ms
	// failed is when reading last failed, and err why.
	failed time.Time
	err    error
}

func newSignOuts(d *db.DB, life time.Duration) *signOuts {
	return &signOuts{db: d, life: life, turn: make(chan struct{}, 1)}
}

// check answers invalid_token for a token from before its user's sign-out.
func (s *signOuts) check(ctx context.Context, p Principal) error {
	arrived := time.Now()
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-s.turn }()
	// A request that waited for its turn uses what was read after it had
	// arrived, however long the database took.
	if s.at == nil || arrived.Sub(s.asked) >= SignOutDelay {
		if s.failed.After(arrived) {
			return s.err // a database that does not answer one does not answer the next
		}
		// Other requests wait for the answer too: it must not end with this
		// request's client.
		if err := s.load(context.WithoutCancel(ctx)); err != nil {
			s.failed, s.err = time.Now(), err
			return err
		}
	}
	if at, out := s.at[p.UserID]; out && p.Issued.UnixMilli() < at {
		return fault.New(fault.Unauthorized, "invalid_token")
	}
	return nil
}

func (s *signOuts) load(ctx context.Context) error {
	asked := time.Now()
	// An hour more than a token lives makes up for clocks that do not agree.
	rows, err := s.db.Query(ctx, `SELECT id, signed_out_at FROM users
		WHERE signed_out_at IS NOT NULL AND signed_out_at > (SELECT now_ms()) - $1`, (s.life + time.Hour).Milliseconds())
	if err != nil {
		return fmt.Errorf("look for sign-outs: %w", err)
	}
	defer rows.Close()
	at := map[string]int64{}
	for rows.Next() {
		var id string
		var ms int64
		if err := rows.Scan(&id, &ms); err != nil {
			return fmt.Errorf("look for sign-outs: %w", err)
		}
		at[id] = ms
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("look for sign-outs: %w", err)
	}
	s.asked, s.at = asked, at
	return nil
}
