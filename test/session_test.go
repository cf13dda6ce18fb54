package test

import (
	"maps"
	"net/http"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"cutroom/internal/testkit/apitest"
)

func renew(t testing.TB, s *apitest.Server, token string) *apitest.Response {
	t.Helper()
	return s.Do(t, apitest.Request{Method: "POST", Path: "/api/v2/auth/refresh", Token: token})
}

func TestRenewalKeepsTheTimeOfSignIn(t *testing.T) {
	t.Parallel()
	u := apitest.Shared(t).SignIn(t)
	began := claimsOf(t, u.Token)["auth_time"]
	token := u.Token
	for range 3 {
		var auth apitest.Auth
		renew(t, u.Server, token).Expect(200).JSON(&auth)
		token = auth.AccessToken
		claims := claimsOf(t, token)
		if claims["auth_time"] != began || began == nil {
			t.Errorf("auth_time %v, want the sign-in's %v", claims["auth_time"], began)
		}
		if exp, iat := claims["exp"].(float64), claims["iat"].(float64); exp-iat != 604800 || auth.ExpiresAt != int64(exp)*1000 {
			t.Errorf("the renewed token is valid for %v s, expiresAt %d", exp-iat, auth.ExpiresAt)
		}
		if auth.User.Sub != u.Sub || auth.User.Email != u.Email || auth.User.Role != "user" || auth.User.Picture == nil {
			t.Errorf("user %+v", auth.User)
		}
		u.Token = token
		u.Get(t, "/api/v2/credits").Expect(200)
	}
}

// signedToken returns an access token of a user, issued an hour ago for two hours, with other claims added.
func signedToken(t testing.TB, secret string, u *apitest.User, more jwt.MapClaims) string {
	t.Helper()
	claims := jwt.MapClaims{"sub": u.Sub, "iss": "cutroom", "aud": "cutroom-mobile", "role": "admin",
		"iat": time.Now().Add(-time.Hour).Unix(), "exp": time.Now().Add(time.Hour).Unix()}
	maps.Copy(claims, more)
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString([]byte(secret))
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func TestASessionEnds(t *testing.T) {
	t.Parallel()
	s := apitest.Shared(t)
	u := s.SignIn(t)
	now := time.Now()
	sign := func(change jwt.MapClaims) string { return signedToken(t, s.Config("AUTH_JWT_SECRET"), u, change) }
	const day = 24 * time.Hour
	for name, tt := range map[string]struct {
		token  string
		status int
		code   string
	}{
		"91 days ago":         {sign(jwt.MapClaims{"auth_time": now.Add(-91 * day).Unix()}), 401, "session_over"},
		"89 days ago":         {sign(jwt.MapClaims{"auth_time": now.Add(-89 * day).Unix()}), 200, ""},
		"of an old release":   {sign(nil), 200, ""},
		"auth_time no number": {sign(jwt.MapClaims{"auth_time": "yesterday"}), 401, "invalid_token"},
	} {
		res := renew(t, s, tt.token).Expect(tt.status)
		if tt.status != 200 {
			res.Error(tt.status, tt.code)
			continue
		}
		var auth apitest.Auth
		res.JSON(&auth)
		// The token claims a role that the user does not have.
		if auth.User.Role != "user" || claimsOf(t, auth.AccessToken)["role"] != "user" {
			t.Errorf("%s: renewed as %s", name, auth.User.Role)
		}
	}
	u.Send(t, apitest.Request{Method: "DELETE", Path: "/api/v2/auth/account"}).Expect(204)
	renew(t, s, u.Token).Error(401, "account_deleted")
}

func TestATokenFromTheCommandLineIsNotRenewed(t *testing.T) {
	t.Parallel()
	s := apitest.Shared(t)
	admin := s.Admin(t)
	renew(t, s, admin.Token).Expect(200)
	var minted struct{ AccessToken string }
	command(t, s, &minted, "admin", "token", admin.Email)
	renew(t, s, minted.AccessToken).Error(401, "session_over")
	succeeds(t, s, "user", "sign-out", admin.Email)
	// The renewal fails even before the process has read the sign-out.
	renew(t, s, admin.Token).Error(401, "invalid_token")
}

func TestAContentTypeWithoutABodyIsFine(t *testing.T) {
	t.Parallel()
	u := apitest.Shared(t).SignIn(t)
	// The mobile client sends it with every request.
	header := http.Header{"Content-Type": {"application/json"}}
	u.Send(t, apitest.Request{Path: "/api/v2/credits", Header: header}).Expect(200)
	u.Send(t, apitest.Request{Method: "DELETE", Path: "/api/v2/auth/account", Header: header}).Expect(204)
}
