package account

import (
	"context"
	"time"

	"cutroom/internal/base/clock"
	"cutroom/internal/base/db"
	"cutroom/internal/base/fault"
	"cutroom/internal/work/user"
)

// Renew exchanges a valid token for a new one with a full lifetime and the role that the database has now. It
// returns session_over if the sign-in is too long ago, however often the session was renewed.
func (s *Service) Renew(ctx context.Context, p Principal) (Session, error) {
	if clock.Now().Sub(p.SignedIn) > s.o.Session {
		return Session{}, fault.New(fault.Unauthorized, "session_over")
	}
	var u user.User
	// This replica may not know of a sign-out yet, and the new token would outlive it.
	err := s.o.DB.InTx(ctx, func(tx *db.Tx) (err error) {
		u, err = user.LockSession(ctx, tx, p.UserID, p.Issued)
		return err
	})
	if err != nil {
		return Session{}, err
	}
	return s.begin(u, p.SignedIn)
}

// begin creates the session of a user who signed in at the given time.
func (s *Service) begin(u user.User, signedIn time.Time) (Session, error) {
	token, expires, err := s.o.Tokens.Issue(Principal{UserID: u.ID, Role: u.Role, Issued: issued(u), SignedIn: signedIn})
	if err != nil {
		return Session{}, err
	}
	return Session{Token: token, Expires: expires, User: u}, nil
}

// SessionEnd returns the time until which p's token can be renewed, or the zero time if the token belongs to no
// session.
func (s *Service) SessionEnd(p Principal) time.Time {
	if p.SignedIn.Unix() <= 0 {
		return time.Time{}
	}
	return p.SignedIn.Add(s.o.Session)
}
