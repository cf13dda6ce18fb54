package httpapi

import (
	"cmp"
	"errors"
	"io"
	"net/http"
	"strings"

	"cutroom/internal/account"
	"cutroom/internal/asset"
	"cutroom/internal/fault"
	"cutroom/internal/idempotency"
	"cutroom/internal/job"
	"cutroom/internal/user"
)

// maxJSON bounds a JSON body and a text form field, in bytes.
const maxJSON = 1 << 20

var errTooLarge = fault.Sentencef(fault.TooLarge, "The request body is too large")

// readBody reads a whole JSON body of at most maxJSON bytes.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if r.ContentLength > maxJSON {
		return nil, errTooLarge
	}
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxJSON))
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		return nil, errTooLarge
	}
	if err != nil {
		return nil, errBadRequest.WithCause(err)
	}
	return b, nil
}

// bearer returns the token of the Authorization header, or "".
func bearer(r *http.Request) string {
	scheme, token, found := strings.Cut(r.Header.Get("Authorization"), " ")
	if !found || !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// principal authenticates the request by its bearer token, once.
func (s *Server) principal(r *http.Request) (account.Principal, error) {
	known := about(r.Context())
	if !known.asked {
		known.asked = true
		known.principal, known.refused = s.authenticate(r)
	}
	return known.principal, known.refused
}

func (s *Server) authenticate(r *http.Request) (account.Principal, error) {
	if strings.TrimSpace(r.Header.Get("Authorization")) == "" {
		return account.Principal{}, fault.New(fault.Unauthorized, "missing_token")
	}
	token := bearer(r)
	if token == "" {
		return account.Principal{}, fault.New(fault.Unauthorized, "invalid_token")
	}
	return s.o.Accounts.Authenticate(r.Context(), token)
}

// userHandler is an endpoint for a signed-in user.
type userHandler func(w http.ResponseWriter, r *http.Request, user account.Principal) error

// signedIn requires a valid bearer token.
func (s *Server) signedIn(h userHandler) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		user, err := s.principal(r)
		if err != nil {
			return err
		}
		return h(w, r, user)
	}
}

// admin requires the admin role in the token and in the database, so that a revocation takes effect
// at once.
func (s *Server) admin(h userHandler) handler {
	return s.signedIn(func(w http.ResponseWriter, r *http.Request, who account.Principal) error {
		if !who.Admin() {
			return user.ErrNotAdmin
		}
		if err := user.CheckAdmin(r.Context(), s.o.DB, who.UserID); err != nil {
			return err
		}
		return h(w, r, who)
	})
}

// unpaused refuses a submission before it reads the body, while an operator pauses submissions of its kind. It
// still answers a repeat with a known Idempotency-Key.
func (s *Server) unpaused(kind string, h userHandler) userHandler {
	return func(w http.ResponseWriter, r *http.Request, who account.Principal) error {
		paused := job.CheckPaused(r.Context(), s.o.DB, kind)
		if paused == nil {
			return h(w, r, who)
		}
		key, err := idempotencyKey(w, r, who)
		if err != nil {
			return err
		}
		if known, err := idempotency.Known(r.Context(), s.o.DB, key); err != nil || !known {
			return cmp.Or(err, paused)
		}
		return h(w, r, who)
	}
}

// withBucket answers r2_disabled without reading the request if no bucket is configured.
func (s *Server) withBucket(h userHandler) userHandler {
	return func(w http.ResponseWriter, r *http.Request, who account.Principal) error {
		if !s.o.Assets.Enabled() {
			return asset.ErrDisabled
		}
		return h(w, r, who)
	}
}

// submitter requires a valid token of an account that still exists.
func (s *Server) submitter(h userHandler) handler {
	return s.signedIn(func(w http.ResponseWriter, r *http.Request, who account.Principal) error {
		if err := user.Check(r.Context(), s.o.DB, who.UserID); err != nil {
			return err
		}
		return h(w, r, who)
	})
}
