// Sign-in with provider_a: the claims, every answer that refuses a token, and outages.

package identity_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"cutroom/internal/base/httpcall/calltest"
	"cutroom/internal/upstream/identity"
)

// answerA is a good token-info answer, all values strings as provider_a writes them, with changes applied; a nil change
// removes the member.
func answerA(changes map[string]any) string {
	answer := map[string]any{
		"iss": "https://accounts.google.com", "aud": clientID, "azp": "other",
		"sub": "1102233", "email": "ada@example.org", "email_verified": "true",
		"name": "Ada Lovelace", "picture": "https://pictures.example/ada",
		"iat": strconv.FormatInt(start.Unix()-10, 10),
		"exp": strconv.FormatInt(start.Unix()+3600, 10), "alg": "RS256", "kid": "k",
	}
	maps.Copy(answer, changes)
	for name, value := range answer {
		if value == nil {
			delete(answer, name)
		}
	}
	text, err := json.Marshal(answer)
	if err != nil {
		panic(err)
	}
	return string(text)
}

func providerA(t *testing.T, handler http.HandlerFunc) *identity.ProviderA {
	t.Helper()
	address, client := calltest.Serve(t, handler)
	return identity.NewProviderA(identity.ProviderAConfig{
		TokenInfoURL: address + "/tokeninfo", ClientIDs: []string{"android.cutroom.example", clientID},
		HTTP: client, Now: calltest.NewClock(start).Now,
	})
}

func TestProviderAAsksAndReturnsTheClaims(t *testing.T) {
	const token = "head.pay+load/&id_token=x.sig="
	p := providerA(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.URL.Path != "/tokeninfo" {
			t.Errorf("unexpected call %s %s", r.Method, r.URL)
		}
		if got := r.URL.Query()["id_token"]; len(got) != 1 || got[0] != token {
			t.Errorf("id_token = %q", got)
		}
		_, _ = io.WriteString(w, answerA(nil))
	})
	got, err := p.Verify(t.Context(), token)
	if err != nil {
		t.Fatal(err)
	}
	want := identity.Claims{Subject: "1102233", Email: "ada@example.org", Name: "Ada Lovelace", Picture: "https://pictures.example/ada"}
	if got != want {
		t.Errorf("claims = %+v, want %+v", got, want)
	}
}

func TestProviderAJudgesTheAnswer(t *testing.T) {
	rejected := identity.ErrRejected
	for name, test := range map[string]struct {
		body string
		want error
	}{
		"short issuer":               {answerA(map[string]any{"iss": "accounts.google.com"}), nil},
		"other issuer":               {answerA(map[string]any{"iss": "https://accounts.google.com.evil.example"}), rejected},
		"expiry in the next second":  {answerA(map[string]any{"exp": strconv.FormatInt(start.Unix()+1, 10)}), nil},
		"unreadable expiry":          {answerA(map[string]any{"exp": "tomorrow"}), rejected},
		"expiry beyond every number": {strings.Replace(answerA(map[string]any{"exp": 7}), `"exp":7`, `"exp":1e400`, 1), rejected},
		"no name, no picture":        {answerA(map[string]any{"name": nil, "picture": nil}), nil},
		"not JSON":                   {"<html>", rejected},
		"null":                       {"null", rejected},
		"something after the object": {answerA(nil) + "{}", rejected},
		"too long":                   {strings.Repeat(" ", 1<<20) + answerA(nil), rejected},
	} {
		t.Run(name, func(t *testing.T) { judgeA(t, test.body, test.want) })
	}
}

func TestProviderAClassifiesStatuses(t *testing.T) {
	for status, want := range map[int]error{201: identity.ErrRejected, 429: identity.ErrRejected, 500: identity.ErrUnavailable} {
		p := providerA(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, answerA(nil)) // a good body must not make up for the status
		})
		_, err := p.Verify(t.Context(), "a-long-identity-token")
		wantOnly(t, err, want, "a-long-identity-token")
	}
}

func TestProviderAFollowsNoRedirect(t *testing.T) {
	stolen := false
	elsewhere, _ := calltest.Serve(t, func(w http.ResponseWriter, _ *http.Request) {
		stolen = true
		_, _ = io.WriteString(w, answerA(nil))
	})
	p := providerA(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere+"/?"+r.URL.RawQuery, http.StatusTemporaryRedirect)
	})
	_, err := p.Verify(t.Context(), "a-long-identity-token")
	wantOnly(t, err, identity.ErrRejected, "a-long-identity-token")
	if stolen {
		t.Error("the token went to another host")
	}
}

func TestProviderAOutOfReach(t *testing.T) {
	const token = "a-long+identity/token"
	for name, test := range map[string]struct {
		handler http.HandlerFunc
		timeout time.Duration // of the client; 0 is none
	}{
		"client time-out": {handler: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, timeout: 50 * time.Millisecond},
		"cut off in the body": {handler: func(w http.ResponseWriter, _ *http.Request) {
			body := answerA(nil)
			w.Header().Set("Content-Length", strconv.Itoa(len(body)+1))
			_, _ = io.WriteString(w, body)
		}},
		"answer that echoes the token": {handler: func(w http.ResponseWriter, r *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.WriteString(conn, "NONSENSE "+r.URL.Query().Get("id_token")+"\r\n\r\n")
			_ = conn.Close()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			address, client := calltest.Serve(t, test.handler)
			client.Timeout = test.timeout
			p := identity.NewProviderA(identity.ProviderAConfig{TokenInfoURL: address, ClientIDs: []string{clientID}, HTTP: client})
			_, err := p.Verify(t.Context(), token)
			wantOnly(t, err, identity.ErrUnavailable, token)
		})
	}
	t.Run("caller gives up", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		p := providerA(t, func(_ http.ResponseWriter, r *http.Request) { cancel(); <-r.Context().Done() })
		_, err := p.Verify(ctx, token)
		wantOnly(t, err, identity.ErrUnavailable, token)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("the cause is lost: %v", err)
		}
	})
}

func TestProviderARefusesAbsurdTokensWithoutACall(t *testing.T) {
	p := providerA(t, func(http.ResponseWriter, *http.Request) { t.Error("called") })
	for _, token := range []string{"", strings.Repeat("x", 16<<10+1)} {
		_, err := p.Verify(t.Context(), token)
		wantOnly(t, err, identity.ErrRejected, token)
	}
}

func TestProviderAWithoutClientsRefusesEveryToken(t *testing.T) {
	address, client := calltest.Serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, answerA(nil)) })
	p := identity.NewProviderA(identity.ProviderAConfig{TokenInfoURL: address, HTTP: client, Now: calltest.NewClock(start).Now})
	_, err := p.Verify(t.Context(), "a-long-identity-token")
	wantOnly(t, err, identity.ErrRejected, "a-long-identity-token")
}
