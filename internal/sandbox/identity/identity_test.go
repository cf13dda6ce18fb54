package identity_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"testing"

	"cutroom/internal/sandbox/identity"
)

func getJSON(t *testing.T, address string) (int, map[string]any) {
	t.Helper()
	res, err := http.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	body := map[string]any{}
	if err := json.NewDecoder(res.Body).Decode(&body); err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, body
}

func TestTokenInfo(t *testing.T) {
	p := identity.NewProviderA("client-1")
	if err := p.Listen(""); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Close() }()

	tests := []struct {
		name   string
		claims identity.Claims
		status int
		want   map[string]string // values, or absence where ""
	}{
		{"good", identity.Claims{Email: "ada@example.com", Name: "Ada Lovelace"}, 200,
			map[string]string{"aud": "client-1", "iss": identity.IssuerA, "email_verified": "true", "email": "ada@example.com", "name": "Ada Lovelace", "alg": "RS256"}},
		{"unverified e-mail", identity.Claims{Email: "a@b.c", EmailVerified: false}, 200, map[string]string{"email_verified": "false"}},
		{"other audience", identity.Claims{Email: "a@b.c", Audience: "client-2"}, 200, map[string]string{"aud": "client-2"}},
		{"claim missing", identity.Claims{Email: "a@b.c", Omit: []string{"aud"}}, 200, map[string]string{"aud": ""}},
		{"expired", identity.Claims{Email: "a@b.c", ExpiresInSec: -60}, 400, nil},
		{"expired, endpoint lenient", identity.Claims{Email: "a@b.c", ExpiresInSec: -60, Lenient: true}, 200, map[string]string{"email": "a@b.c"}},
		{"no signature", identity.Claims{Email: "a@b.c", Forge: identity.ForgeNone}, 400, nil},
		{"stranger's signature", identity.Claims{Email: "a@b.c", Forge: identity.ForgeStranger}, 400, nil},
		{"tampered", identity.Claims{Email: "a@b.c", Forge: identity.ForgeTampered}, 400, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			token, err := p.Mint(tt.claims)
			if err != nil {
				t.Fatal(err)
			}
			status, body := getJSON(t, p.TokenInfoURL()+"?id_token="+url.QueryEscape(token))
			if status != tt.status {
				t.Fatalf("status %d, want %d: %v", status, tt.status, body)
			}
			if status == 400 && body["error"] != "invalid_token" {
				t.Errorf("body %v", body)
			}
			for name, value := range body {
				if _, isString := value.(string); !isString {
					t.Errorf("%s is not a string: %v", name, value)
				}
			}
			for name, want := range tt.want {
				if got, _ := body[name].(string); got != want {
					t.Errorf("%s = %q, want %q", name, got, want)
				}
			}
		})
	}
	if status, _ := getJSON(t, p.TokenInfoURL()); status != 400 {
		t.Errorf("without a token: %d", status)
	}
}
