package identity

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"cutroom/internal/base/httpcall"
)

// ProviderBConfig says where provider_b's keys are and which tokens to accept.
type ProviderBConfig struct {
	Name      string           // used in errors; blank means provider_b
	KeysURL   string           // of the published key set
	Issuer    string           // compared exactly
	ClientIDs []string         // accepted audiences; an empty list accepts no token
	HTTP      *http.Client     // nil means http.DefaultClient; redirects are never followed
	Now       func() time.Time // nil means time.Now
}

// ProviderB verifies identity tokens by their RS256 signature against the key set that provider_b, or another OpenID
// Connect provider, publishes. It is safe for concurrent use.
type ProviderB struct {
	name   string
	policy policy
	keys   *keySet
	parser *jwt.Parser
	now    func() time.Time
}

// NewProviderB returns a verifier, which fetches the key set on first use.
func NewProviderB(cfg ProviderBConfig) *ProviderB {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &ProviderB{
		name: cmp.Or(cfg.Name, "provider_b"),
		// Managed accounts have no address to give, and apps need not ask for one.
		policy: policy{issuers: []string{cfg.Issuer}, clientIDs: cfg.ClientIDs, addressOptional: true},
		keys:   &keySet{address: cfg.KeysURL, client: httpcall.Private(cfg.HTTP), now: cfg.Now},
		// Accept one algorithm only: neither "none" nor HS256, keyed with the public key, may reach a key. The
		// claims are checked here instead of by the library, whose leeway would also extend the expiry.
		parser: jwt.NewParser(
			jwt.WithValidMethods([]string{jwt.SigningMethodRS256.Alg()}),
			jwt.WithStrictDecoding(),
			jwt.WithJSONNumber(),
			jwt.WithoutClaimsValidation(),
		),
		now: cfg.Now,
	}
}

// Verify checks the token's signature and claims. The error is ErrRejected or ErrUnavailable under errors.Is.
func (p *ProviderB) Verify(ctx context.Context, idToken string) (Claims, error) {
	if err := checkSize(idToken); err != nil {
		return Claims{}, fmt.Errorf("%s: %w", p.name, err)
	}
	var claims Claims
	set := jwt.MapClaims{}
	_, err := p.parser.ParseWithClaims(idToken, set, func(token *jwt.Token) (any, error) {
		// Check the unverified claims before the signature: a token that will be rejected anyway must not cause a fetch
		// of keys.
		var err error
		if claims, err = p.policy.check(claimSet(set), p.now()); err != nil {
			return nil, err
		}
		if err := claimSet(set).checkBegun(p.now()); err != nil {
			return nil, err
		}
		if _, ok := token.Header["crit"]; ok {
			return nil, errors.New("header demands an extension")
		}
		kid, _ := token.Header["kid"].(string)
		if kid == "" {
			return nil, errors.New("header names no key")
		}
		return p.keys.lookup(ctx, kid)
	})
	switch {
	case err == nil:
		return claims, nil
	case errors.Is(err, ErrUnavailable), errors.Is(err, ErrRejected):
		return Claims{}, fmt.Errorf("%s: %w", p.name, err)
	default:
		return Claims{}, fmt.Errorf("%s: %w: %w", p.name, ErrRejected, err)
	}
}
