package identity_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"go.uber.org/goleak"

	"cutroom/internal/upstream/identity"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const clientID = "ios.cutroom.example"

// start is an instant with a fraction, so that rounding mistakes show.
var start = time.Date(2026, 3, 1, 12, 0, 0, 500_000_000, time.UTC)

// wantOnly checks that err is want and not the other of the two errors, and that it does not repeat the token.
func wantOnly(t *testing.T, err, want error, token string) {
	t.Helper()
	for _, sentinel := range []error{identity.ErrRejected, identity.ErrUnavailable} {
		if got := errors.Is(err, sentinel); got != (sentinel == want) {
			t.Errorf("errors.Is(%v, %v) = %t", err, sentinel, got)
		}
	}
	if err != nil && len(token) > 8 && strings.Contains(err.Error(), token) {
		t.Errorf("the error repeats the token: %v", err)
	}
}

// Both providers' claims are judged by these rules. The tests of each provider add its own.
func TestClaimsAreJudged(t *testing.T) {
	now := start.Unix()
	rejected := identity.ErrRejected
	for name, test := range map[string]struct {
		changes map[string]any
		want    error
	}{
		"verified as text":            {map[string]any{"email_verified": "true"}, nil},
		"verified as boolean":         {map[string]any{"email_verified": true}, nil},
		"expires in the next second":  {map[string]any{"exp": now + 1}, nil},
		"expires this second":         {map[string]any{"exp": now}, rejected},
		"fraction of this second":     {map[string]any{"exp": float64(now) + 0.25}, rejected},
		"no expiry":                   {map[string]any{"exp": nil}, rejected},
		"expiry of a wrong kind":      {map[string]any{"exp": []int{1}}, rejected},
		"no issuer":                   {map[string]any{"iss": nil}, rejected},
		"other audience":              {map[string]any{"aud": "somebody.else"}, rejected},
		"no audience":                 {map[string]any{"aud": nil}, rejected},
		"empty audience list":         {map[string]any{"aud": []string{}}, rejected},
		"audience shared":             {map[string]any{"aud": []string{clientID, "somebody.else"}}, rejected},
		"audience list of other kind": {map[string]any{"aud": []any{clientID, 7}}, rejected},
		"not verified":                {map[string]any{"email_verified": "false"}, rejected},
		"verified as number":          {map[string]any{"email_verified": 1}, rejected},
		"verified missing":            {map[string]any{"email_verified": nil}, rejected},
		"no subject":                  {map[string]any{"sub": nil}, rejected},
		"blank subject":               {map[string]any{"sub": " "}, rejected},
		"subject as number":           {map[string]any{"sub": 7}, rejected},
	} {
		t.Run("provider_a "+name, func(t *testing.T) {
			judgeA(t, answerA(test.changes), test.want)
		})
		t.Run("provider_b "+name, func(t *testing.T) {
			judgeB(t, test.changes, test.want)
		})
	}
}

// judgeA has provider_a answer with a body.
func judgeA(t *testing.T, body string, want error) {
	t.Helper()
	p := providerA(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) })
	claims, err := p.Verify(t.Context(), "a-long-identity-token")
	wantOnly(t, err, want, "a-long-identity-token")
	if err != nil && claims != (identity.Claims{}) {
		t.Errorf("claims beside an error: %+v", claims)
	}
}

// judgeB presents a token of provider_b with changed claims.
func judgeB(t *testing.T, changes map[string]any, want error) {
	t.Helper()
	p, server, at := newProviderB(t)
	token := sign(t, jwt.SigningMethodRS256, rsaKeys()[0], map[string]any{"kid": "k0"}, claimsB(at.Now(), changes))
	_, err := p.Verify(t.Context(), token)
	wantOnly(t, err, want, token)
	if want != nil && server.calls.Load() != 0 {
		t.Error("the key set was fetched for a token that its claims already refuse")
	}
}
