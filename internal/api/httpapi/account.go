package httpapi

import (
	"context"
	"net/http"

	"cutroom/internal/domain/account"
	"cutroom/internal/work/quota"
	"cutroom/internal/work/user"
)

type signInRequest struct {
	IDToken  string `json:"idToken"`
	FullName string `json:"fullName"`
}

type userBody struct {
	Sub     string  `json:"sub"`
	Email   string  `json:"email"`
	Name    string  `json:"name"`
	Picture *string `json:"picture"`
	Role    string  `json:"role"`
}

type sessionBody struct {
	AccessToken string   `json:"accessToken"`
	ExpiresAt   int64    `json:"expiresAt"` // epoch ms
	User        userBody `json:"user"`
}

func (s *Server) signIn(provider string) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		var req signInRequest
		if err := readSmall(w, r, &req); err != nil {
			return err
		}
		session, err := s.o.Accounts.SignIn(r.Context(), provider, req.IDToken, req.FullName)
		return answer(w, bodyOfSession(session), err)
	}
}

func bodyOfSession(session account.Session) sessionBody {
	return sessionBody{AccessToken: session.Token, ExpiresAt: session.Expires.UnixMilli(), User: bodyOfUser(session.User)}
}

func bodyOfUser(u user.User) userBody {
	return userBody{Sub: u.ID, Email: u.Email, Name: u.Name, Picture: orNull(u.Picture), Role: u.Role}
}

// accountBody is what a signed-in user may see of the account.
type accountBody struct {
	User    userBody `json:"user"`
	Balance int64    `json:"balance"`
	quota.Report
	ExpiresAt     int64  `json:"expiresAt"`     // of the access token, in epoch ms
	SessionEndsAt *int64 `json:"sessionEndsAt"` // epoch ms; null for a token that cannot be renewed
}

func (s *Server) account(w http.ResponseWriter, r *http.Request, who account.Principal) error {
	u, err := user.Get(r.Context(), s.o.DB, who.UserID)
	if err != nil {
		return err
	}
	balance, err := s.o.Credits.Balance(r.Context(), who.UserID)
	if err != nil {
		return err
	}
	usage, err := s.o.Quota.Report(r.Context(), s.o.DB, who.UserID)
	return answer(w, accountBody{User: bodyOfUser(u), Balance: balance, Report: usage,
		ExpiresAt: who.Expires.UnixMilli(), SessionEndsAt: epochMs(s.o.Accounts.SessionEnd(who))}, err)
}

func (s *Server) signOut(w http.ResponseWriter, r *http.Request, who account.Principal) error {
	return noContent(w, account.SignOut(r.Context(), s.o.DB, who.UserID, who.UserID))
}

func (s *Server) renewSession(w http.ResponseWriter, r *http.Request, user account.Principal) error {
	session, err := s.o.Accounts.Renew(r.Context(), user)
	return answer(w, bodyOfSession(session), err)
}

func (s *Server) deleteAccount(w http.ResponseWriter, r *http.Request, user account.Principal) error {
	return noContent(w, s.o.Accounts.Delete(r.Context(), user.UserID, user.UserID))
}

func (s *Server) registerDevice(ctx context.Context, user account.Principal, platform, token string) error {
	return s.o.Devices.Register(ctx, user.UserID, user.Issued, platform, token)
}

func (s *Server) unregisterDevice(ctx context.Context, user account.Principal, platform, token string) error {
	return s.o.Devices.Unregister(ctx, user.UserID, platform, token)
}

type deviceRequest struct {
	Platform string `json:"platform"`
	Token    string `json:"token"`
}

// device returns an endpoint that registers or unregisters a device of the caller.
func device(do func(ctx context.Context, user account.Principal, platform, token string) error) userHandler {
	return func(w http.ResponseWriter, r *http.Request, user account.Principal) error {
		var req deviceRequest
		if err := readSmall(w, r, &req); err != nil {
			return err
		}
		return noContent(w, do(r.Context(), user, req.Platform, req.Token))
	}
}
