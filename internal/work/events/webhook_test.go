package events

import (
	"context"
	"encoding/base64"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	webhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"cutroom/internal/base/httpcall/calltest"
)

func secretOf(t *testing.T, text string) []byte {
	t.Helper()
	raw, err := DecodeSecret(text)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func secretText(fill byte) string {
	return secretPrefix + base64.StdEncoding.EncodeToString([]byte(strings.Repeat(string(fill), 32)))
}

func failedRender() message {
	code := "source_unreadable"
	return message{eventID: "evt-1", kind: RenderFailed, jobID: "rnd-1", userID: "u-1", errorCode: &code, created: time.UnixMilli(1_767_225_600_123)}
}

// The Standard Webhooks library accepts our signatures with each of two secrets, and no other body.
func TestWebhookSignatureFollowsStandardWebhooks(t *testing.T) {
	current, previous, stranger := secretText('a'), secretText('b'), secretText('c')
	type call struct {
		header http.Header
		body   string
	}
	var calls []call
	address, client := calltest.Serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.Method != http.MethodPost || r.URL.String() != "/hook?of=mine" || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %s %v, %v", r.Method, r.URL, r.Header, err)
		}
		calls = append(calls, call{r.Header, string(body)})
		w.WriteHeader(http.StatusAccepted)
	})
	hook := &Webhook{URL: address + "/hook?of=mine", Secrets: [][]byte{secretOf(t, current), secretOf(t, previous)}, HTTP: client}
	for range 2 {
		if err := hook.send(t.Context(), failedRender()); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range calls {
		if c.body != calls[0].body || c.header.Get("webhook-id") != "evt-1" {
			t.Errorf("%s %s", c.header.Get("webhook-id"), c.body)
		}
		for secret, good := range map[string]bool{current: true, previous: true, stranger: false} {
			verifier, err := webhooks.NewWebhook(secret)
			if err != nil {
				t.Fatal(err)
			}
			if err := verifier.Verify([]byte(c.body), c.header); (err == nil) != good {
				t.Errorf("secret %s: %v", secret, err)
			}
			if verifier.Verify([]byte(c.body+" "), c.header) == nil {
				t.Error("the signature is accepted with another body")
			}
		}
		first, _, _ := strings.Cut(c.header.Get("webhook-signature"), " ")
		if alone := (&Webhook{Secrets: hook.Secrets[:1]}).sign("evt-1", c.header.Get("webhook-timestamp"), []byte(c.body)); first != alone {
			t.Errorf("the first signature is not the new secret's: %s", c.header.Get("webhook-signature"))
		}
		if at, err := strconv.ParseInt(c.header.Get("webhook-timestamp"), 10, 64); err != nil || time.Since(time.Unix(at, 0)).Abs() > time.Minute {
			t.Errorf("timestamp %q", c.header.Get("webhook-timestamp"))
		}
	}
}

func TestWhatIsNotDelivered(t *testing.T) {
	redirected := false
	for name, handler := range map[string]http.HandlerFunc{
		"redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/other", http.StatusTemporaryRedirect)
		},
		"client error": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) },
		"server error": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) },
		"cut off":      func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		address, client := calltest.Serve(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/other" {
				redirected = true
				return
			}
			handler(w, r)
		})
		if err := (&Webhook{URL: address, HTTP: client}).send(t.Context(), failedRender()); err == nil || strings.Contains(err.Error(), address) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if redirected {
		t.Error("a redirect was followed")
	}
	// A response that does not end in time does not count, whatever its status.
	ctx, end := context.WithCancel(t.Context())
	address, client := calltest.Serve(t, func(w http.ResponseWriter, r *http.Request) {
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
		end()
		<-r.Context().Done()
	})
	if err := (&Webhook{URL: address, HTTP: client}).send(ctx, failedRender()); err == nil {
		t.Error("a response that does not end counts as delivered")
	}
}
