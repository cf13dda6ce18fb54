package test

import (
	"crypto/rand"
	"crypto/rsa"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"cutroom/internal/apitest"
	"cutroom/internal/sandbox/identity"
)

func TestForgedAccessTokensAreRefused(t *testing.T) {
	t.Parallel()
	s := apitest.Shared(t)
	u := s.SignIn(t)
	good := jwt.MapClaims{"sub": u.Sub, "iss": "cutroom", "aud": "cutroom-mobile", "role": "user",
		"iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix()}
	secret := []byte(s.Config("AUTH_JWT_SECRET"))
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	sign := func(method jwt.SigningMethod, key any, change jwt.MapClaims, omit ...string) string {
		t.Helper()
		claims := maps.Clone(good)
		maps.Copy(claims, change)
		for _, c := range omit {
			delete(claims, c)
		}
		token, err := jwt.NewWithClaims(method, claims).SignedString(key)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	hs := jwt.SigningMethodHS256
	get := func(token string) *apitest.Response {
		return s.Do(t, apitest.Request{Path: "/api/v2/credits", Token: token})
	}
	get(sign(hs, secret, nil)).Expect(200)
	get(sign(hs, secret, jwt.MapClaims{"aud": []string{"cutroom-mobile"}})).Expect(200)

	// The whole table is a test of the account package; these are the wire.
	for name, token := range map[string]string{
		"other secret":   sign(hs, []byte("another-secret-0123456789abcdef0123456789"), nil),
		"alg none":       sign(jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, nil),
		"RS256":          sign(jwt.SigningMethodRS256, key, nil),
		"no audience":    sign(hs, secret, nil, "aud"),
		"no expiry":      sign(hs, secret, nil, "exp"),
		"identity token": s.World.MintA(t, identity.Claims{Email: u.Email}),
		"no dots":        "x",
	} {
		t.Run(name, func(t *testing.T) {
			s.Do(t, apitest.Request{Path: "/api/v2/credits", Token: token}).Error(401, "invalid_token")
		})
	}
	expired := get(sign(hs, secret, jwt.MapClaims{"exp": time.Now().Add(-time.Minute).Unix()}))
	expired.Error(401, "invalid_token")
	if got := string(expired.Body); !strings.Contains(got, `"detail":"expired"`) {
		t.Errorf("an expired token: %s", got)
	}
	// A missing role reads as user; a role nobody knows is not admin.
	for _, token := range []string{sign(hs, secret, nil, "role"), sign(hs, secret, jwt.MapClaims{"role": "superuser"})} {
		get(token).Expect(200)
		s.Do(t, apitest.Request{Path: "/api/v2/admin/overview", Token: token}).Error(403, "admin_required")
	}
	for _, header := range []string{"", "Basic dXNlcjpwYXNz", "Bearer", "Bearer "} {
		res := s.Do(t, apitest.Request{Path: "/api/v2/credits", Header: http.Header{"Authorization": {header}}})
		if code := res.Expect(401).ErrorText(); code != "missing_token" && code != "invalid_token" {
			t.Errorf("Authorization %q: error %q", header, code)
		}
	}
	s.Do(t, apitest.Request{Path: "/api/v2/credits", Header: http.Header{"Authorization": {"bearer " + u.Token}}}).Expect(200)
}

func TestAContentTypeWithoutABodyIsFine(t *testing.T) {
	t.Parallel()
	u := apitest.Shared(t).SignIn(t)
	// The mobile client sends it with every request.
	header := http.Header{"Content-Type": {"application/json"}}
	u.Send(t, apitest.Request{Path: "/api/v2/credits", Header: header}).Expect(200)
	u.Send(t, apitest.Request{Method: "DELETE", Path: "/api/v2/auth/account", Header: header}).Expect(204)
}
