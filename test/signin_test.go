// Sign-in with both providers: new users and the bonus, refused tokens, key rotation, outages.

package test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"cutroom/internal/sandbox/fake"
	"cutroom/internal/sandbox/identity"
	"cutroom/internal/sandbox/store"
	"cutroom/internal/testkit/apitest"
)

// login posts a body to a login endpoint from a new client address.
func login(t testing.TB, s *apitest.Server, provider string, body any) *apitest.Response {
	t.Helper()
	r := apitest.Request{Method: "POST", Path: "/api/v2/auth/" + provider, Header: http.Header{"X-Forwarded-For": {s.IP()}}}
	if raw, ok := body.(string); ok {
		r.Raw = raw
	} else {
		r.JSON = body
	}
	return s.Do(t, r)
}

// claimsOf decodes the claims of an access token without verifying it.
func claimsOf(t testing.TB, token string) map[string]any {
	t.Helper()
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		t.Fatalf("not a JWT: %s", token)
	}
	raw, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		t.Fatal(err)
	}
	claims := map[string]any{}
	if err := json.Unmarshal(raw, &claims); err != nil {
		t.Fatal(err)
	}
	return claims
}

func TestFirstSignInMakesAUserAndGrantsTheBonusOnce(t *testing.T) {
	t.Parallel()
	for _, opts := range [][]apitest.UserOption{nil, {apitest.ProviderB()}} {
		u := apitest.Shared(t).SignIn(t, opts...)
		if b := u.Balance(t); b != 3 {
			t.Errorf("balance after the first sign-in: %d, want 3", b)
		}
		first := u.Sub
		auth := u.SignInAgain(t)
		if u.Sub != first {
			t.Errorf("second sign-in made another user: %s, %s", first, u.Sub)
		}
		if b := u.Balance(t); b != 3 {
			t.Errorf("balance after the second sign-in: %d, want 3", b)
		}
		if auth.User.Role != "user" || auth.User.Email != u.Email || !strings.HasPrefix(auth.User.Name, "Person ") {
			t.Errorf("user %+v", auth.User)
		}
		claims := claimsOf(t, auth.AccessToken)
		iat := auth.ExpiresAt/1000 - 604800
		if d := time.Since(time.Unix(iat, 0)); d < -5*time.Second || d > 2*time.Minute {
			t.Errorf("issued %v ago", d)
		}
		want := map[string]any{"sub": u.Sub, "iss": "cutroom", "aud": "cutroom-mobile", "role": "user",
			"iat": float64(iat), "exp": float64(auth.ExpiresAt / 1000), "auth_time": float64(iat)}
		if !maps.Equal(claims, want) {
			t.Errorf("claims %v, want %v", claims, want)
		}
	}
}

// The service checks identity tokens. The identity package tests all claims.
func TestIdentityTokensAreChecked(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	s := apitest.Shared(t)
	mint := map[string]func(testing.TB, identity.Claims) string{"provider_a": s.World.MintA, "provider_b": s.World.MintB}
	type token struct {
		provider, name string
		claims         identity.Claims
	}
	bad := []token{
		{"provider_a", "audience", identity.Claims{Audience: "somebody.else"}},
		{"provider_a", "e-mail not verified", identity.Claims{EmailVerified: false}},
		{"provider_a", "expired", identity.Claims{ExpiresInSec: -60}},
		{"provider_a", "no signature", identity.Claims{Forge: identity.ForgeNone}},
		{"provider_a", "signature of a stranger", identity.Claims{Forge: identity.ForgeStranger}},
		{"provider_a", "tampered", identity.Claims{Forge: identity.ForgeTampered}},
		// The provider accepts this token, but the service must not.
		{"provider_a", "expired, lenient", identity.Claims{ExpiresInSec: -60, Lenient: true}},
		{"provider_b", "audience", identity.Claims{Audience: "somebody.else"}},
		{"provider_b", "signature of a stranger", identity.Claims{Forge: identity.ForgeStranger}},
	}
	for _, tt := range bad {
		t.Run(tt.provider+" "+tt.name, func(t *testing.T) {
			tt.claims.Email = "forger@example.test"
			login(t, s, tt.provider, M{"idToken": mint[tt.provider](t, tt.claims)}).Error(401, "invalid_id_token")
		})
	}
	for provider, mint := range mint {
		login(t, s, provider, M{"idToken": "nonsense"}).Error(401, "invalid_id_token")
		login(t, s, provider, M{}).Error(400, "missing_id_token")
		for _, verified := range []any{true, "true"} {
			good := mint(t, identity.Claims{Email: fmt.Sprintf("%s-verified-%T@example.test", provider, verified), EmailVerified: verified})
			login(t, s, provider, M{"idToken": good}).Expect(200)
		}
	}
	login(t, s, "provider_a", M{"idToken": "a&aud=b#c%00 \n"}).Error(401, "invalid_id_token")
	bare := s.World.MintA(t, identity.Claims{Email: "bare-issuer@example.test", Issuer: "accounts.google.com"})
	login(t, s, "provider_a", M{"idToken": bare, "unknown": []int{1}}).Expect(200)
}

// provider_b gives some accounts no address. They are identified by their subject, and keep an address that came
// earlier.
func TestProviderBWithoutAnAddress(t *testing.T) {
	t.Parallel()
	s := apitest.Shared(t)
	bare := []string{"email", "email_verified"}
	type answer struct {
		User struct{ Sub, Email, Name string }
	}
	signIn := func(fullName string, c identity.Claims) (a answer) {
		t.Helper()
		login(t, s, "provider_b", M{"idToken": s.World.MintB(t, c), "fullName": fullName}).Expect(200).JSON(&a)
		return a
	}
	first := signIn("", identity.Claims{Subject: "no-address", Omit: bare})
	if first.User.Email != "" || first.User.Name != "" || first.User.Sub == "" {
		t.Errorf("a new user: %+v", first)
	}
	if again := signIn("", identity.Claims{Subject: "no-address", EmailVerified: "false"}); again != first {
		t.Errorf("an empty address: %+v, want %+v", again, first)
	}
	known := signIn("Uma User", identity.Claims{Subject: "with-address", Email: "uma@example.test"})
	if again := signIn("", identity.Claims{Subject: "with-address", Omit: bare}); again != known || again.User.Email != "uma@example.test" {
		t.Errorf("a later token without an address: %+v, want %+v", again, known)
	}
	for name, c := range map[string]identity.Claims{"false": {EmailVerified: false}, "missing": {Omit: []string{"email_verified"}}} {
		c.Subject, c.Email = "with-address", "uma@example.test"
		if res := login(t, s, "provider_b", M{"idToken": s.World.MintB(t, c)}); res.Status != 401 {
			t.Errorf("an address with email_verified %s: %d", name, res.Status)
		}
	}
	login(t, s, "provider_a", M{"idToken": s.World.MintA(t, identity.Claims{Subject: "17", Omit: bare})}).Error(401, "invalid_id_token")
}

// After the provider has replaced its key, tokens signed with the new or with the old one are valid.
func TestProviderBReplacesItsKey(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	s := apitest.Start(t)
	early, late := s.World.MintB(t, identity.Claims{Email: "early@example.test"}), s.World.MintB(t, identity.Claims{Email: "late@example.test"})
	login(t, s, "provider_b", M{"idToken": early}).Expect(200)
	s.World.ProviderB.Rotate()
	login(t, s, "provider_b", M{"idToken": s.World.MintB(t, identity.Claims{Email: "new@example.test"})}).Expect(200)
	login(t, s, "provider_b", M{"idToken": late}).Expect(200)
}

// The identity package tests which failures count as outages, and that the last key set outlives one.
func TestIdentityProviderOutages(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	s := apitest.Start(t)
	a := s.World.MintA(t, identity.Claims{Email: "outage-a@example.test"})
	b := s.World.MintB(t, identity.Claims{Email: "outage-b@example.test"})
	s.World.FailIdentity(t, fake.Rule{Kind: fake.KindClose})
	here := http.Header{"X-Forwarded-For": {s.IP()}}
	for range 6 { // more than ten from one address: they do not count for its limit
		for provider, token := range map[string]string{"provider_a": a, "provider_b": b} {
			s.Do(t, apitest.Request{Method: "POST", Path: "/api/v2/auth/" + provider, Header: here, JSON: M{"idToken": token}}).Error(502, "provider_unavailable")
		}
	}
	s.World.Heal()
	s.World.FailIdentity(t, fake.Rule{Kind: fake.KindStatus, Status: 400})
	login(t, s, "provider_a", M{"idToken": a}).Error(401, "invalid_id_token")
	s.World.Heal()
	login(t, s, "provider_a", M{"idToken": a}).Expect(200)
	login(t, s, "provider_b", M{"idToken": b}).Expect(200)
}

func TestSettingsOfAccounts(t *testing.T) {
	t.Parallel()
	s := apitest.Start(t, apitest.Env("AUTH_PROVIDER_B_CLIENT_IDS", ""), apitest.Env("SIGNUP_BONUS_CREDITS", "7"),
		apitest.Env("AUTH_JWT_EXPIRY_SECONDS", "60"), apitest.Env("CREDIT_PRODUCTS", "small=1,large=1000"))
	login(t, s, "provider_b", M{"idToken": s.World.MintB(t, identity.Claims{Email: "b@example.test"})}).Error(503, "provider_b_disabled")
	u := s.SignIn(t)
	if b := u.Balance(t); b != 7 {
		t.Errorf("balance %d, want SIGNUP_BONUS_CREDITS = 7", b)
	}
	claims := claimsOf(t, u.Token)
	if life := claims["exp"].(float64) - claims["iat"].(float64); life != 60 {
		t.Errorf("token lifetime %v s, want AUTH_JWT_EXPIRY_SECONDS = 60", life)
	}
	var got apitest.Purchased
	buyA(t, u, store.PurchaseA{ProductID: "large"}).Expect(200).JSON(&got)
	if got.Granted != 1000 {
		t.Errorf("CREDIT_PRODUCTS: %+v", got)
	}
	buyA(t, u, store.PurchaseA{ProductID: "credits.10"}).Error(400, "unknown_product")
}
