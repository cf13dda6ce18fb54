package account

import (
	"context"
	"time"

	"golang.org/x/sync/semaphore"

	"cutroom/internal/base/db"
	"cutroom/internal/base/fault"
	"cutroom/internal/work/audit"
	"cutroom/internal/work/events"
	"cutroom/internal/work/user"
)

// SignOutDelay is how long a sign-out may take to reach every replica.
const SignOutDelay = time.Second

// SignOut invalidates every access token that the user has now, and deletes the user's devices. All replicas refuse the
// tokens after [SignOutDelay]. actor names the requester in the audit record.
func SignOut(ctx context.Context, d *db.DB, userID, actor string) error {
	return d.InTx(ctx, func(tx *db.Tx) error {
		moved, err := user.SignOut(ctx, tx, userID)
		if err != nil {
			return err
		}
		if err := events.ForgetDevices(ctx, tx, userID); err != nil || !moved {
			return err
		}
		return audit.Record(ctx, tx, audit.Entry{Actor: actor, Action: audit.SignedOut, Target: userID})
	})
}

// issued returns the issue time of a token for a user whose row was just read. It uses the database's clock, as
// sign-outs do: if a replica's clock were fast, its tokens would outlive a sign-out.
func issued(u user.User) time.Time {
	if from := u.ValidFrom(); u.Read.Before(from) {
		return from
	}
	return u.Read
}

// signOuts caches the users who signed out while their tokens may still be unexpired. There are few, so one query per
// [SignOutDelay] reads them all instead of one query per request.
type signOuts struct {
	db *db.DB
	// maxLife is the longest token lifetime of any configuration so far: tokens issued under a longer setting
	// remain valid.
	maxLife time.Duration
	// turn is a lock on the fields below.
	turn  *semaphore.Weighted
	asked time.Time            // when at was read
	at    map[string]time.Time // by user
	// failed is when the last read failed, and err is its error.
	failed time.Time
	err    error
}

// check returns invalid_token for a token issued before its user's sign-out.
func (s *signOuts) check(ctx context.Context, p Principal) error {
	arrived := time.Now()
	if s.turn.Acquire(ctx, 1) != nil {
		return context.Cause(ctx)
	}
	defer s.turn.Release(1)
	// A request that waited for its turn uses a list that was read after it arrived, however long the database took.
	if s.at == nil || arrived.Sub(s.asked) >= SignOutDelay {
		if s.failed.After(arrived) {
			return s.err // if the database failed for one request, it fails for the next
		}
		// Other requests wait for the result too, so a client that disconnects must not cancel the query.
		if err := s.load(context.WithoutCancel(ctx)); err != nil {
			s.failed, s.err = time.Now(), err
			return err
		}
	}
	if at, out := s.at[p.UserID]; out && p.Issued.Before(at) {
		return fault.New(fault.Unauthorized, "invalid_token")
	}
	return nil
}

func (s *signOuts) load(ctx context.Context) error {
	asked := time.Now()
	// An extra hour tolerates clocks that disagree.
	at, err := user.SignedOut(ctx, s.db, s.maxLife+time.Hour)
	if err != nil {
		return err
	}
	s.asked, s.at = asked, at
	return nil
}
