package receipt

import (
	"context"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"golang.org/x/sync/singleflight"

	"cutroom/internal/httpcall"
)

const (
	// assertionLifetime is the longest lifetime that token endpoints accept.
	assertionLifetime = time.Hour
	// clockSlack backdates what we sign, in case the store's clock runs behind.
	clockSlack = 10 * time.Second
	// renewBefore is how long before its expiry an access token is replaced, so that none expires
	// on its way to the store.
	renewBefore = time.Minute
)

// serviceAccount is our identity at platform_a.
type serviceAccount struct {
	Email    string `json:"client_email"`
	KeyID    string `json:"private_key_id"` // may be empty
	KeyPEM   string `json:"private_key"`
	TokenURI string `json:"token_uri"`

	key *rsa.PrivateKey
}

// parseServiceAccount parses a key file. Its errors never quote the file.
func parseServiceAccount(file []byte) (a serviceAccount, err error) {
	if json.Unmarshal(file, &a) != nil {
		return a, errors.New("not a JSON key file")
	}
	if a.key, err = jwt.ParseRSAPrivateKeyFromPEM([]byte(a.KeyPEM)); err != nil {
		return a, errors.New("private_key is not an RSA key in PEM")
	}
	return a, nil
}

// assertion signs a request for an access token (RFC 7523).
func (a serviceAccount) assertion(scope string, now time.Time) (string, error) {
	token := jwt.NewWithClaims(jwt.SigningMethodRS256, jwt.MapClaims{
		"iss": a.Email, "scope": scope, "aud": a.TokenURI,
		"iat": now.Add(-clockSlack).Unix(),
		"exp": now.Add(assertionLifetime - clockSlack).Unix(),
	})
	if a.KeyID != "" {
		token.Header["kid"] = a.KeyID
	}
	return token.SignedString(a.key)
}

// accessTokens caches a service account's access token and renews it shortly before it expires.
// Concurrent callers share one request.
type accessTokens struct {
	account serviceAccount
	client  *http.Client
	now     func() time.Time
	flights singleflight.Group

	mu      sync.Mutex
	token   string
	renewAt time.Time
}

// get returns a valid token. The error is ErrInvalid if the endpoint refuses us and ErrUnavailable
// if it gives no answer.
func (s *accessTokens) get(ctx context.Context) (string, error) {
	if token := s.cached(); token != "" {
		return token, nil
	}
	// The request must outlive the caller that started it, because others wait for it too. It has
	// its own time-out.
	results := s.flights.DoChan("", func() (any, error) {
		if token := s.cached(); token != "" {
			return token, nil // renewed since the check above
		}
		shared, cancel := context.WithTimeout(context.WithoutCancel(ctx), verifyTimeout)
		defer cancel()
		return s.renew(shared)
	})
	select {
	case result := <-results:
		token, _ := result.Val.(string)
		return token, result.Err
	case <-ctx.Done():
		return "", fmt.Errorf("%w: %w", ErrUnavailable, context.Cause(ctx))
	}
}

func (s *accessTokens) cached() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.token == "" || !s.now().Before(s.renewAt) {
		return ""
	}
	return s.token
}

// discard forgets a token that the store refused, unless it was already replaced.
func (s *accessTokens) discard(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.token == token {
		s.token = ""
	}
}

// renew fetches a token and keeps it until shortly before its expiry. A token of unknown or very
// short life serves only the callers of this flight.
func (s *accessTokens) renew(ctx context.Context) (string, error) {
	began := s.now()
	assertion, err := s.account.assertion(platformAScope, began)
	if err != nil {
		return "", fmt.Errorf("%w: sign assertion: %w", ErrInvalid, err)
	}
	form := url.Values{"grant_type": {"urn:ietf:params:oauth:grant-type:jwt-bearer"}, "assertion": {assertion}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.account.TokenURI, strings.NewReader(form.Encode()))
	if err != nil {
		return "", fmt.Errorf("%w: form request: %w", ErrInvalid, err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Accept", "application/json")
	status, body, err := sorted(httpcall.Do(s.client, req))
	if err != nil {
		return "", err
	}
	if status != http.StatusOK {
		return "", fmt.Errorf("%w: status %d", ErrInvalid, status)
	}
	var answer struct {
		AccessToken string      `json:"access_token"`
		ExpiresIn   json.Number `json:"expires_in"` // seconds; some token endpoints write it as a string
	}
	if err := json.Unmarshal(body, &answer); err != nil || answer.AccessToken == "" {
		return "", fmt.Errorf("%w: the answer holds no access token", ErrInvalid) // not quoted, because it may contain a token
	}
	// A year is far above what endpoints grant, and prevents an overflow of the sum.
	seconds, _ := answer.ExpiresIn.Int64() // 0 where the lifetime is absent or no whole number
	life := time.Duration(min(max(seconds, 0), 365*24*3600)) * time.Second
	s.mu.Lock()
	defer s.mu.Unlock()
	s.token, s.renewAt = answer.AccessToken, began.Add(life-renewBefore)
	return answer.AccessToken, nil
}
