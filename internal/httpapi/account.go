package httpapi

import (
	"net/http"

	"cutroom/internal/account"
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
		if err := decodeJSON(w, r, &req); err != nil {
			return err
		}
		session, err := s.o.Accounts.SignIn(r.Context(), provider, req.IDToken, req.FullName)
		return answer(w, bodyOfSession(session), err)
	}
}

func bodyOfSession(session account.Session) sessionBody {
	u := session.User
	return sessionBody{AccessToken: session.Token, ExpiresAt: session.Expires.UnixMilli(),
		User: userBody{Sub: u.ID, Email: u.Email, Name: u.Name, Picture: orNull(u.Picture), Role: u.Role}}
}

func (s *Server) renewSession(w http.ResponseWriter, r *http.Request, user account.Principal) error {
	session, err := s.o.Accounts.Renew(r.Context(), user)
	return answer(w, bodyOfSession(session), err)
}

func (s *Server) deleteAccount(w http.ResponseWriter, r *http.Request, user account.Principal) error {
	if err := s.o.Accounts.Delete(r.Context(), user.UserID, user.UserID); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
