// Package account owns sign-in, access tokens, roles, and the deletion and erasure of accounts. It sits above the
// packages that keep a user's files, because deleting an account erases those first. It reaches the identity providers
// only through [IdentityVerifier].
package account

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"golang.org/x/sync/semaphore"

	"cutroom/internal/base/db"
	"cutroom/internal/base/fault"
	"cutroom/internal/domain/credit"
	"cutroom/internal/upstream/identity"
	"cutroom/internal/work/user"
)

// The identity providers.
const (
	ProviderA = "provider_a"
	ProviderB = "provider_b"
)

// IdentityVerifier turns an identity token into claims. Its errors are identity.ErrRejected and
// identity.ErrUnavailable.
type IdentityVerifier interface {
	Verify(ctx context.Context, idToken string) (identity.Claims, error)
}

// Eraser removes every file of a user, from disk and bucket, and stops the user's running jobs. It may be called again
// after an interruption.
type Eraser func(ctx context.Context, userID string) error

// Service signs people in and deletes them. It is safe for concurrent use.
type Service struct {
	o        Options
	signOuts *signOuts
}

// Options configures a Service.
type Options struct {
	DB     *db.DB
	Tokens *Tokens
	// Providers by name; an absent one is disabled.
	Providers map[string]IdentityVerifier
	Credits   *credit.Ledger
	Erasers   []Eraser
	// Session is how long after a sign-in its token may be renewed.
	Session time.Duration
	// MaxTokenLife is the longest life of any token issued so far.
	MaxTokenLife time.Duration
	Log          *slog.Logger
}

// New returns a Service.
func New(o Options) *Service {
	return &Service{o: o, signOuts: &signOuts{db: o.DB, maxLife: o.MaxTokenLife, turn: semaphore.NewWeighted(1)}}
}

// Session is the result of a sign-in.
type Session struct {
	Token   string
	Expires time.Time
	User    user.User
}

// maxSubject bounds a provider's id for a person, in characters. OpenID Connect allows 255.
const maxSubject = 255

// SignIn exchanges an identity token for a session, and creates the user on the first sign-in. Only the first sign-in
// uses the name: provider_a puts it in its claims, provider_b's client sends it as fullName, which may be empty. Every
// sign-in updates the e-mail address and the picture. SignIn grants the signup bonus to a user who has not had it. If
// that fails, SignIn logs it and the next sign-in tries again. The session begins when its token is issued.
func (s *Service) SignIn(ctx context.Context, provider, idToken, fullName string) (Session, error) {
	verifier := s.o.Providers[provider]
	if verifier == nil {
		return Session{}, fault.New(fault.Unavailable, provider+"_disabled")
	}
	if strings.TrimSpace(idToken) == "" {
		return Session{}, fault.New(fault.Invalid, "missing_id_token")
	}
	claims, err := verifier.Verify(ctx, strings.TrimSpace(idToken))
	switch {
	case errors.Is(err, identity.ErrUnavailable):
		return Session{}, fault.New(fault.BadGateway, "provider_unavailable").WithCause(err)
	case err != nil:
		return Session{}, fault.New(fault.Unauthorized, "invalid_id_token").WithCause(err)
	case claims.Subject != db.Clean(claims.Subject, maxSubject):
		return Session{}, fault.New(fault.Unauthorized, "invalid_id_token").WithCause(errors.New("the subject cannot be stored"))
	}
	u, err := s.upsert(ctx, provider, claims, fullName)
	if err != nil {
		return Session{}, err
	}
	if err := s.o.Credits.GrantSignup(ctx, u.ID); err != nil {
		s.o.Log.Error("signup bonus not granted; the next sign-in tries again", "user", u.ID, "err", err)
	}
	return s.begin(u, issued(u))
}

func (s *Service) upsert(ctx context.Context, provider string, c identity.Claims, fullName string) (user.User, error) {
	who := user.Identity{Provider: provider, Subject: c.Subject}
	for range 3 {
		u, err := user.Upsert(ctx, s.o.DB, who, db.Clean(c.Email, 320), nameFor(provider, c, fullName), db.Clean(c.Picture, 2048))
		if err != nil || !u.Erasing {
			return u, err
		}
		// The old account of this person is still being erased. Finish that first: the new account must not inherit
		// anything from it.
		if err := s.erase(context.WithoutCancel(ctx), u.ID); err != nil {
			return user.User{}, err
		}
	}
	// More retries are pointless: one person's sign-ins and deletions rarely collide this often.
	return user.User{}, fault.Sentencef(fault.Unavailable, "The account is being deleted, please try again later")
}

// nameFor returns the name to store at the first sign-in: the one in the claims (for provider_b the one that the client
// sent), else the local part of the e-mail address.
func nameFor(provider string, c identity.Claims, fullName string) string {
	name := c.Name
	if provider == ProviderB {
		name = fullName
	}
	if name = db.Clean(name, 200); name != "" {
		return name
	}
	local, _, _ := strings.Cut(c.Email, "@")
	return db.Clean(local, 200)
}

// Authenticate checks a bearer token. It reads sign-outs at most once a second, for all users at once, and does not
// check that the account still exists.
func (s *Service) Authenticate(ctx context.Context, token string) (Principal, error) {
	p, err := s.o.Tokens.Check(token)
	if err != nil {
		return Principal{}, err
	}
	return p, s.signOuts.check(ctx, p)
}
