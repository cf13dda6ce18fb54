package account

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"cutroom/internal/fault"
)

// Renew gives the holder of a valid token another of a full lifetime, with the
// role that the database has now. A session ends, with session_over, when its
// sign-in is too long ago, however often it was renewed.
func (s *Service) Renew(ctx context.Context, p Principal) (Session, error) {
	if time.Since(p.SignedIn) > s.session {
		return Session{}, fault.New(fault.Unauthorized, "session_over")
	}
	u := User{ID: p.UserID}
	var picture sql.NullString
	var signedOutAt sql.NullInt64
	err := s.db.QueryRow(ctx, `UPDATE users SET last_active_at = now_ms() WHERE id = $1 AND erasing_at IS NULL
		RETURNING email, name, picture, role, signed_out_at`, p.UserID).Scan(&u.Email, &u.Name, &picture, &u.Role, &signedOutAt)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return Session{}, fault.New(fault.Unauthorized, "account_deleted")
	case err != nil:
		return Session{}, fmt.Errorf("renew session: %w", err)
	}
	u.Picture = picture.String
	u.signedOut = validFrom(signedOutAt)
	// A sign-out need not have reached this replica; a token that came after it
	// would outlive it.
	if p.Issued.Before(u.signedOut) {
		return Session{}, fault.New(fault.Unauthorized, "invalid_token")
	}
	return s.begin(u, p.SignedIn)
}

// begin makes the session of a user who signed in at the given time.
func (s *Service) begin(u User, signedIn time.Time) (Session, error) {
	token, expires, err := s.tokens.Issue(Principal{UserID: u.ID, Role: u.Role, Issued: u.signedOut, SignedIn: signedIn})
	if err != nil {
		return Session{}, err
	}
	return Session{Token: token, Expires: expires, User: u}, nil
}
