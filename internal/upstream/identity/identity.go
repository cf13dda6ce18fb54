// Package identity turns an identity token of provider_a or provider_b into neutral claims.
//
// It owns both wire formats, every check that makes a token trustworthy, and the cache of provider_b's signing keys. It
// does not handle users, our own access tokens or HTTP statuses: a caller learns only whether the token is valid,
// invalid ([ErrRejected]) or cannot be checked now ([ErrUnavailable]).
package identity

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// The two outcomes of a failed verification. Every error of a Verify method matches exactly one of them. Their text is
// for the log and never contains the token.
var (
	// ErrRejected means that the token is not valid.
	ErrRejected = errors.New("identity token rejected")
	// ErrUnavailable means that the provider gave no usable answer: unreachable, too slow, cut off, or 5xx. The
	// same token may succeed later.
	ErrUnavailable = errors.New("identity provider unavailable")
)

// Claims is what a provider asserts about a person.
type Claims struct {
	Subject string // the provider's stable id for the person, never empty
	Email   string // verified by the provider; may be empty
	Name    string // may be empty
	Picture string // URL; may be empty
}

const (
	// maxTokenBytes is far above what the providers issue (1 to 2 KiB) and small enough for query strings and parsers.
	maxTokenBytes = 16 << 10
	// callTimeout bounds one call to a provider, unless client or context have a tighter limit: a user is waiting at
	// the sign-in screen.
	callTimeout = 20 * time.Second
	// maxClockSkew tolerates a provider's clock that runs ahead of ours, for the start of a token's validity (iat,
	// nbf). Its expiry is exact.
	maxClockSkew = 60 * time.Second
)

// checkSize rejects an empty or oversized token before any call.
func checkSize(idToken string) error {
	if n := len(idToken); n == 0 || n > maxTokenBytes {
		return fmt.Errorf("%w: %d bytes", ErrRejected, n)
	}
	return nil
}

// claimSet is a decoded JSON object of claims. Decode numbers as json.Number: a float could not represent a time
// exactly.
type claimSet map[string]any

// policy is what a provider's claims must contain for us to accept them.
type policy struct {
	issuers   []string
	clientIDs []string // an empty list accepts no token
	// addressOptional accepts a token without an e-mail address. An address in a token must always be verified.
	addressOptional bool
}

// check applies the rules that both providers share and extracts the claims. Its errors name the broken rule; the
// caller adds ErrRejected.
func (p policy) check(c claimSet, now time.Time) (Claims, error) {
	if issuer := c.text("iss"); !slices.Contains(p.issuers, issuer) {
		return Claims{}, fmt.Errorf("issuer %.80q is not the provider's", issuer)
	}
	audience, err := jwt.MapClaims(c).GetAudience()
	if err != nil || len(audience) == 0 {
		return Claims{}, errors.New("no audience")
	}
	for _, id := range audience {
		// Every audience must be ours: if the token is also meant for another party, that party could have passed it
		// on.
		if !slices.Contains(p.clientIDs, id) {
			return Claims{}, fmt.Errorf("audience %.120q is not a client of ours", id)
		}
	}
	expiry, ok := c.seconds("exp")
	if !ok {
		return Claims{}, errors.New("no readable expiry")
	}
	// Both are whole seconds, so this means strictly after now.
	if expiry <= now.Unix() {
		return Claims{}, fmt.Errorf("expired %d s ago", now.Unix()-expiry)
	}
	noAddress := c["email"] == nil || c["email"] == ""
	verified := c["email_verified"] == true || c["email_verified"] == "true" // the providers send both
	if !verified && !(noAddress && p.addressOptional) {
		return Claims{}, errors.New("e-mail address not verified")
	}
	subject := c.text("sub")
	if strings.TrimSpace(subject) == "" {
		return Claims{}, errors.New("no subject")
	}
	return Claims{
		Subject: subject,
		Email:   c.text("email"),
		Name:    c.text("name"),
		Picture: c.text("picture"),
	}, nil
}

// checkBegun rejects a token from the future, with maxClockSkew of leeway. Both claims are optional; an unreadable one
// is rejected.
func (c claimSet) checkBegun(now time.Time) error {
	for _, name := range []string{"iat", "nbf"} {
		if c[name] == nil {
			continue
		}
		at, ok := c.seconds(name)
		if !ok {
			return fmt.Errorf("unreadable %s", name)
		}
		if at > now.Add(maxClockSkew).Unix() {
			return fmt.Errorf("%s lies %d s in the future", name, at-now.Unix())
		}
	}
	return nil
}

// text returns a string claim, or "" if it is absent or not a string.
func (c claimSet) text(name string) string {
	s, _ := c[name].(string)
	return s
}

// seconds parses an epoch time, a number or a string of digits. It truncates a fraction, so a token can only expire
// earlier.
func (c claimSet) seconds(name string) (int64, bool) {
	switch v := c[name].(type) {
	case string:
		n, err := strconv.ParseInt(v, 10, 64)
		return n, err == nil
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n, true
		}
		f, err := v.Float64()
		// Above 2^53 a float cannot represent every second, and no real token expires that late.
		if err != nil || f < 0 || f > 1<<53 {
			return 0, false
		}
		return int64(f), true
	}
	return 0, false
}
