package identity

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"cutroom/internal/base/httpcall"
)

// providerAIssuers are the two spellings that provider_a uses.
var providerAIssuers = []string{"accounts.google.com", "https://accounts.google.com"}

// ProviderAConfig says how to reach provider_a and which tokens to accept.
type ProviderAConfig struct {
	TokenInfoURL string           // without a query
	ClientIDs    []string         // accepted audiences; an empty list accepts no token
	HTTP         *http.Client     // nil means http.DefaultClient; redirects are never followed
	Now          func() time.Time // nil means time.Now
}

// ProviderA verifies identity tokens by asking provider_a's token-info endpoint, which checks the signature. It is safe
// for concurrent use.
type ProviderA struct {
	cfg    ProviderAConfig
	policy policy
	client *http.Client
}

// NewProviderA returns a verifier. It makes no request.
func NewProviderA(cfg ProviderAConfig) *ProviderA {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &ProviderA{cfg, policy{issuers: providerAIssuers, clientIDs: cfg.ClientIDs}, httpcall.Private(cfg.HTTP)}
}

// Verify sends the token to provider_a and checks the answer. The error is ErrRejected or ErrUnavailable under
// errors.Is.
func (p *ProviderA) Verify(ctx context.Context, idToken string) (_ Claims, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("provider_a: %w", err)
		}
	}()
	if err := checkSize(idToken); err != nil {
		return Claims{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	status, body, err := httpcall.Get(ctx, p.client, p.cfg.TokenInfoURL+"?id_token="+url.QueryEscape(idToken), "")
	switch {
	case errors.Is(err, httpcall.ErrTooLong):
		return Claims{}, fmt.Errorf("%w: %w", ErrRejected, err)
	case err != nil:
		return Claims{}, fmt.Errorf("%w: %w", ErrUnavailable, err)
	case status >= 500:
		return Claims{}, fmt.Errorf("%w: status %d", ErrUnavailable, status)
	case status != http.StatusOK:
		return Claims{}, fmt.Errorf("%w: status %d", ErrRejected, status)
	}

	var set claimSet
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	err = decoder.Decode(&set)
	if _, trailing := decoder.Token(); err != nil || trailing != io.EOF {
		// The decoder's error may quote personal data, so keep it out of the log.
		return Claims{}, fmt.Errorf("%w: answer is not a JSON object", ErrRejected)
	}
	claims, err := p.policy.check(set, p.cfg.Now())
	if err != nil {
		return Claims{}, fmt.Errorf("%w: %w", ErrRejected, err)
	}
	return claims, nil
}
