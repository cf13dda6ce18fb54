package account

import (
	"errors"
	"fmt"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"

	"cutroom/internal/base/clock"
	"cutroom/internal/base/fault"
)

// The fixed claims of an access token.
const (
	issuer   = "cutroom"
	audience = "cutroom-mobile"
)

// The roles of a user.
const (
	RoleUser  = "user"
	RoleAdmin = "admin"
)

// Principal is the user of a valid access token. The account may have been deleted since; see [user.Check].
type Principal struct {
	UserID  string
	Role    string
	Issued  time.Time // of the token, to the second; zero if the token has no iat
	Expires time.Time // of the token
	// SignedIn is when the session began, to the second. Renewals keep it; see [Service.Renew].
	SignedIn time.Time
}

// Admin reports whether the token carries the admin role.
func (p Principal) Admin() bool { return p.Role == RoleAdmin }

// Tokens issues and checks access tokens: JWTs signed with HMAC-SHA256 (RFC 7519, RFC 7515). They hold no personal
// data.
type Tokens struct {
	secret []byte
	keys   jwt.VerificationKeySet
	life   time.Duration
	parser *jwt.Parser
}

// claims are the claims of an access token. auth_time is OpenID Connect's name for the time of the sign-in.
type claims struct {
	Role     string           `json:"role,omitempty"`
	AuthTime *jwt.NumericDate `json:"auth_time,omitempty"`
	jwt.RegisteredClaims
}

// NewTokens returns Tokens that sign with secret, which has at least 32 characters. Tokens signed with a previous
// secret stay valid; "" means no previous secret.
func NewTokens(secret string, life time.Duration, previous ...string) *Tokens {
	t := &Tokens{secret: []byte(secret), life: life, parser: jwt.NewParser(
		jwt.WithValidMethods([]string{jwt.SigningMethodHS256.Alg()}), jwt.WithStrictDecoding(),
		jwt.WithIssuer(issuer), jwt.WithAudience(audience), jwt.WithExpirationRequired(),
		jwt.WithTimeFunc(clock.Now))}
	for _, s := range append([]string{secret}, previous...) {
		if s != "" {
			t.keys.Keys = append(t.keys.Keys, []byte(s))
		}
	}
	return t
}

// Issue mints a token for a user, issued at p.Issued or, if that is zero, now. It returns when the token expires. A
// token without p.SignedIn belongs to no session and cannot be renewed.
func (t *Tokens) Issue(p Principal) (token string, expires time.Time, err error) {
	now := clock.Now()
	if p.Issued.IsZero() {
		p.Issued = now
	}
	if now.Sub(p.Issued).Abs() < 10*time.Second { // the clocks agree, and a sign-in takes seconds: make the lifetime exact
		now = p.Issued
	}
	expires = now.Add(t.life).Truncate(time.Second)
	// A map, because the library's own struct writes aud as a list.
	token, err = jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
		"sub": p.UserID, "iss": issuer, "aud": audience, "role": p.Role, "iat": p.Issued.Unix(), "exp": expires.Unix(),
		"auth_time": max(0, p.SignedIn.Unix()),
	}).SignedString(t.secret)
	if err != nil {
		return "", time.Time{}, fmt.Errorf("sign access token: %w", err)
	}
	return token, expires, nil
}

// maxToken bounds what is parsed, in bytes; ours are under 400.
const maxToken = 4096

// Check verifies a bearer token. The error is invalid_token; its detail is "expired" if that is the only fault.
func (t *Tokens) Check(token string) (Principal, error) {
	invalid := fault.New(fault.Unauthorized, "invalid_token")
	if len(token) > maxToken {
		return Principal{}, invalid
	}
	var c claims
	_, err := t.parser.ParseWithClaims(token, &c, func(*jwt.Token) (any, error) { return t.keys, nil })
	if errors.Is(err, jwt.ErrTokenExpired) {
		invalid = invalid.WithDetail("expired")
	}
	if err != nil {
		return Principal{}, invalid.WithCause(err)
	}
	id, err := uuid.Parse(c.Subject)
	if err != nil || len(c.Subject) != 36 {
		return Principal{}, invalid
	}
	p := Principal{UserID: id.String(), Role: RoleUser, Expires: c.ExpiresAt.Time}
	if c.Role == RoleAdmin {
		p.Role = RoleAdmin
	}
	if c.IssuedAt != nil {
		p.Issued = c.IssuedAt.Time
	}
	p.SignedIn = p.Issued
	if c.AuthTime != nil {
		p.SignedIn = c.AuthTime.Time
	}
	return p, nil
}
