// Package identity stands in for the two identity providers. It mints valid and forged identity tokens, and serves
// provider_a's token-info endpoint and provider_b's key set.
package identity

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"cutroom/internal/sandbox/fake"
)

// Claims describes one identity token. Every zero value means "as in a valid token of the provider", so Claims{Email:
// …} is enough for a sign-in.
type Claims struct {
	Subject       string `json:"sub,omitempty"` // default: derived from Email
	Email         string `json:"email,omitempty"`
	Name          string `json:"name,omitempty"`          // provider_a only: provider_b never states a name
	Picture       string `json:"picture,omitempty"`       // provider_a only
	Audience      string `json:"aud,omitempty"`           // default: the provider's client id
	Issuer        string `json:"iss,omitempty"`           // default: the provider's issuer
	EmailVerified any    `json:"emailVerified,omitempty"` // default true; false, "true" and "false" also occur in practice
	ExpiresInSec  int64  `json:"expiresInSec,omitempty"`  // default 3600; negative = already expired

	Omit  []string `json:"omit,omitempty"` // claims to leave out
	Forge Forge    `json:"forge,omitempty"`

	// Lenient makes provider_a's token-info endpoint answer 200 whatever the claims are, even for an expired token.
	// Then only the verifier's checks count.
	Lenient bool `json:"lenient,omitempty"`
}

// Forge is how a token is signed.
type Forge string

// The ways to sign.
const (
	ForgeNot      Forge = ""         // RS256 with the provider's current key
	ForgeNone     Forge = "none"     // alg none, empty signature
	ForgeStranger Forge = "stranger" // RS256 by a key that the provider never had, under the current kid
	ForgeTampered Forge = "tampered" // a valid token with one changed character in its signature
)

// build returns the claim set of a token for either provider.
func (c Claims) build(defaults jwt.MapClaims) jwt.MapClaims {
	now := time.Now()
	expires := cmp.Or(c.ExpiresInSec, 3600)
	claims := jwt.MapClaims{
		"iat":            now.Unix() - 5,
		"exp":            now.Unix() + expires,
		"email":          c.Email,
		"email_verified": true,
	}
	maps.Copy(claims, defaults)
	if expires < 0 {
		claims["iat"] = now.Unix() + expires - 3600
	}
	if c.Audience != "" {
		claims["aud"] = c.Audience
	}
	if c.Issuer != "" {
		claims["iss"] = c.Issuer
	}
	if c.EmailVerified != nil {
		claims["email_verified"] = c.EmailVerified
	}
	fake.Adjust(claims, nil, c.Omit)
	return claims
}

// stranger is a key that no provider ever had.
var stranger = sync.OnceValue(fake.NewSigningKey)

// The providers of every world in a process start with the same keys. Tests start dozens of worlds, and generating a
// key takes longer than the rest of a start.
var firstKeyA, firstKeyB = sync.OnceValue(fake.NewSigningKey), sync.OnceValue(fake.NewSigningKey)

// sign turns claims into a compact token as c.Forge requests.
func (c Claims) sign(claims jwt.MapClaims, current fake.SigningKey) (string, error) {
	var method jwt.SigningMethod = jwt.SigningMethodRS256
	var key any = current.Private
	switch c.Forge {
	case ForgeNot, ForgeTampered:
	case ForgeNone:
		method, key = jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType
	case ForgeStranger:
		key = stranger().Private
	default:
		return "", fmt.Errorf("unknown forge %q", c.Forge)
	}
	token := jwt.NewWithClaims(method, claims)
	token.Header["kid"] = current.ID
	if c.Lenient {
		token.Header["lenient"] = true
	}
	signed, err := token.SignedString(key)
	if err != nil {
		return "", fmt.Errorf("sign identity token: %w", err) // the claims cannot be encoded
	}
	if c.Forge == ForgeTampered {
		// In the middle of the last part, because the last character may contain unused bits.
		at, other := len(signed)-40, "A"
		if signed[at] == 'A' {
			other = "B"
		}
		signed = signed[:at] + other + signed[at+1:]
	}
	return signed, nil
}

// mountMint adds the control call behind Mint.
func mountMint(h *fake.Host, example Claims, mint func(Claims) (string, error)) {
	fake.Control(h, "POST", "mint", "make an identity token, as good or as bad as the claims say; answers idToken", example,
		func(_ context.Context, c Claims) (any, error) {
			token, err := mint(c)
			return map[string]string{"idToken": token}, err
		})
}
