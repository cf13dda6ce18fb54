// Pushes to both platforms' stand-ins: payloads, the meaning of each answer, and the renewal of tokens.

package push_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"cutroom/internal/base/httpcall/calltest"
	"cutroom/internal/sandbox/fake"
	"cutroom/internal/sandbox/notify"
	"cutroom/internal/upstream/push"
)

const device = "00c0ffee00c0ffee"

// registered is in milliseconds when the app registered the device of completed.
const registered = 1_790_000_000_123

var completed = push.Message{Token: device, Registered: time.UnixMilli(registered), Type: "render.completed", JobID: "rnd-1",
	Expires: time.Unix(1_800_000_000, 0)}

func listen(t *testing.T, h *fake.Host) {
	t.Helper()
	if err := h.Listen(""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
}

func serviceA(t *testing.T) (*notify.PlatformA, *push.PlatformA) {
	t.Helper()
	s := notify.NewPlatformA(nil)
	listen(t, s.Host)
	p, err := push.NewPlatformA(push.PlatformAConfig{BaseURL: s.URL(), ServiceAccountJSON: []byte(s.ServiceAccountJSON()),
		HTTP: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}})
	if err != nil {
		t.Fatal(err)
	}
	return s, p
}

func serviceB(t *testing.T, now func() time.Time) (*notify.PlatformB, *push.PlatformB) {
	t.Helper()
	s := notify.NewPlatformB("app.example", nil)
	listen(t, s.Host)
	return s, clientB(t, s, s.URL(), nil, now)
}

func clientB(t *testing.T, s *notify.PlatformB, address string, roots []byte, now func() time.Time) *push.PlatformB {
	t.Helper()
	base := &http.Transport{}
	if roots != nil {
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(roots)
		base.TLSClientConfig = &tls.Config{RootCAs: pool}
	}
	t.Cleanup(base.CloseIdleConnections)
	transport := push.TransportB(base, address)
	p, err := push.NewPlatformB(push.PlatformBConfig{BaseURL: address, TeamID: notify.TeamID, KeyID: s.KeyID(), KeyPEM: []byte(s.KeyPEM()),
		Topic: "app.example", HTTP: &http.Client{Transport: transport}, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestPayloads(t *testing.T) {
	a, pushA := serviceA(t)
	b, pushB := serviceB(t, nil)
	for range 2 {
		if err := errors.Join(pushA.Send(t.Context(), completed), pushB.Send(t.Context(), completed)); err != nil {
			t.Fatal(err)
		}
	}
	wantA := `{"message":{"android":{"notification":{"title_loc_key":"render.completed"},"ttl":"86400s"},"data":{"jobId":"rnd-1","type":"render.completed"},"token":"` + device + `"}}`
	wantB := `{"aps":{"alert":{"loc-key":"render.completed"},"sound":"default"},"jobId":"rnd-1","type":"render.completed"}`
	for _, got := range [][]notify.Message{a.Messages(), b.Messages()} {
		if len(got) != 2 || got[0].Token != device || got[0].Body != wantA && got[0].Body != wantB {
			t.Errorf("accepted %+v", got)
		}
	}
	if n := a.Faults.Count(notify.StepToken); n != 1 {
		t.Errorf("%d access tokens for two messages", n)
	}
}

// outcome is how the dispatcher treats a failure.
func outcome(err error) string {
	temporary := (*push.TemporaryError)(nil)
	switch {
	case err == nil:
		return "sent"
	case errors.Is(err, push.ErrUnregistered):
		return "gone"
	case errors.As(err, &temporary):
		return fmt.Sprint("again ", temporary.After)
	}
	return "refused"
}

func TestAnswers(t *testing.T) {
	a, pushA := serviceA(t)
	b, pushB := serviceB(t, nil)
	bodyA := func(word string) string {
		return `{"error":{"status":"X","details":[{"errorCode":"` + word + `"}]}}`
	}
	invalid := func(message, field string) string {
		violations := ""
		if field != "" {
			violations = `,{"@type":"type.googleapis.com/google.rpc.BadRequest","fieldViolations":[{"field":"` + field + `"}]}`
		}
		return `{"error":{"code":400,"message":"` + message + `","status":"INVALID_ARGUMENT","details":[{"errorCode":"INVALID_ARGUMENT"}` +
			violations + `]}}`
	}
	gone := func(ms int64) string { return fmt.Sprintf(`{"reason":"Unregistered","timestamp":%d}`, ms) }
	for _, c := range []struct {
		status             int
		bodyA, bodyB       string
		headers            map[string]string
		answersA, answersB string
	}{
		{status: 410, bodyB: `{"reason":"Unregistered"}`, answersA: "refused", answersB: "gone"},
		{status: 400, bodyB: `{"reason":"BadDeviceToken"}`, answersA: "refused", answersB: "gone"},
		{status: 400, bodyB: `{"reason":"DeviceTokenNotForTopic"}`, answersA: "refused", answersB: "gone"},
		{status: 400, bodyB: `{"reason":"BadTopic"}`, answersA: "refused", answersB: "refused"},
		{status: 404, bodyA: bodyA("UNREGISTERED"), answersA: "gone", answersB: "refused"},
		{status: 404, bodyA: bodyA("NOT_FOUND"), answersA: "refused", answersB: "refused"},
		{status: 403, bodyB: `{"reason":"InvalidProviderToken"}`, answersA: "refused", answersB: "refused"},
		{status: 401, bodyA: "{}", answersA: "again 0s", answersB: "refused"},
		{status: 403, bodyB: `{"reason":"ExpiredProviderToken"}`, answersA: "refused", answersB: "again 0s"},
		{status: 429, headers: map[string]string{"Retry-After": "90"}, answersA: "again 1m30s", answersB: "again 1m30s"},
		{status: 429, bodyA: bodyA("QUOTA_EXCEEDED"), bodyB: `{"reason":"TooManyRequests"}`, answersA: "again 1m0s", answersB: "again 0s"},
		{status: 410, bodyB: gone(registered - 1), answersA: "refused", answersB: "refused"},
		{status: 410, bodyB: gone(registered), answersA: "refused", answersB: "gone"},
		{status: 410, bodyB: gone(registered + 1), answersA: "refused", answersB: "gone"},
		{status: 403, bodyA: bodyA("SENDER_ID_MISMATCH"), answersA: "gone", answersB: "refused"},
		{status: 403, bodyA: bodyA("PERMISSION_DENIED"), answersA: "refused", answersB: "refused"},
		{status: 400, bodyA: invalid("The registration token is not a valid FCM registration token", ""), answersA: "gone", answersB: "refused"},
		{status: 400, bodyA: invalid("Request contains an invalid argument.", "message.token"), answersA: "gone", answersB: "refused"},
		{status: 400, bodyA: invalid("Request contains an invalid argument.", ""), answersA: "refused", answersB: "refused"},
		{status: 400, bodyA: invalid("Invalid JSON payload received. Unexpected token.", ""), answersA: "refused", answersB: "refused"},
		{status: 400, bodyA: invalid("The registration token is fine", "message.android.ttl"), answersA: "refused", answersB: "refused"},
		{status: 503, answersA: "again 0s", answersB: "again 0s"},
		{status: 302, headers: map[string]string{"Location": "http://192.0.2.1/"}, answersA: "refused", answersB: "refused"},
	} {
		for _, p := range []struct {
			host       *fake.Host
			step, body string
			send       func() error
			want       string
		}{
			{a.Host, notify.StepSend, c.bodyA, func() error { return pushA.Send(t.Context(), completed) }, c.answersA},
			{b.Host, notify.StepDevice, c.bodyB, func() error { return pushB.Send(t.Context(), completed) }, c.answersB},
		} {
			if err := p.host.Faults.Add(fake.Rule{Step: p.step, Kind: fake.KindStatus, Status: c.status, Body: p.body, Headers: c.headers, Times: 1}); err != nil {
				t.Fatal(err)
			}
			err := p.send()
			if got := outcome(err); got != p.want {
				t.Errorf("%s %d %s: %s (%v), want %s", p.step, c.status, p.body, got, err, p.want)
			}
			if err != nil && strings.Contains(err.Error(), fake.LeakMarker) {
				t.Errorf("the answer's text is in the error: %v", err)
			}
			p.host.Faults.Clear()
		}
	}
	a.Stale(device)
	b.Stale(device)
	if errA, errB := pushA.Send(t.Context(), completed), pushB.Send(t.Context(), completed); outcome(errA) != "gone" || outcome(errB) != "gone" {
		t.Errorf("a stale token: %v, %v", errA, errB)
	}
}

func TestChecksSendNothing(t *testing.T) {
	a, pushA := serviceA(t)
	b, pushB := serviceB(t, nil)
	for _, refused := range []bool{false, true} {
		if refused {
			for host, step := range map[*fake.Host]string{a.Host: notify.StepSend, b.Host: notify.StepDevice} {
				if err := host.Faults.Add(fake.Rule{Step: step, Kind: fake.KindStatus, Status: 403}); err != nil {
					t.Fatal(err)
				}
			}
		}
		if errA, errB := pushA.Check(t.Context()), pushB.Check(t.Context()); (errA != nil) != refused || (errB != nil) != refused {
			t.Errorf("refused %t: %v, %v", refused, errA, errB)
		}
	}
	if n := len(a.Messages()) + len(b.Messages()); n != 0 {
		t.Errorf("%d messages were sent", n)
	}
}

func TestAccessTokenIsRenewedWhenRefused(t *testing.T) {
	a, p := serviceA(t)
	for i, status := range []int{0, 401, 0} {
		if status != 0 {
			if err := a.Faults.Add(fake.Rule{Step: notify.StepSend, Kind: fake.KindStatus, Status: status, Times: 1}); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.Send(t.Context(), completed); (err == nil) != (status == 0) {
			t.Errorf("message %d: %v", i, err)
		}
	}
	if n := a.Faults.Count(notify.StepToken); n != 2 {
		t.Errorf("%d access tokens, want a second one after the refusal", n)
	}
	if err := a.Faults.Add(fake.Rule{Step: notify.StepToken, Kind: fake.KindStatus, Status: 403}); err != nil {
		t.Fatal(err)
	}
	fresh, err := push.NewPlatformA(push.PlatformAConfig{BaseURL: a.URL(), ServiceAccountJSON: []byte(a.ServiceAccountJSON())})
	if err != nil {
		t.Fatal(err)
	}
	if err := fresh.Send(t.Context(), completed); outcome(err) != "again 0s" || strings.Contains(err.Error(), fake.LeakMarker) {
		t.Errorf("refused access token: %v", err)
	}
}

// The service refuses tokens older than an hour, and tokens renewed within 20 minutes.
func TestProviderTokenIsRenewedBetween20And60Minutes(t *testing.T) {
	var mu sync.Mutex
	var issued []time.Time
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Method == "PRI" { // this is how a server without HTTP/2 sees the client's preface
			return
		}
		claims := jwt.MapClaims{}
		raw, _ := strings.CutPrefix(r.Header.Get("Authorization"), "bearer ")
		token, _, err := jwt.NewParser().ParseUnverified(raw, claims)
		at, iatErr := claims.GetIssuedAt()
		if err != nil || iatErr != nil || token.Header["alg"] != "ES256" || len(claims) != 2 {
			t.Errorf("token %v %v: %v, %v", token, claims, err, iatErr)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		issued = append(issued, at.Time)
	}))
	t.Cleanup(server.Close)
	clock := calltest.NewClock(time.Unix(1_700_000_000, 0))
	p := clientB(t, notify.NewPlatformB("app.example", nil), server.URL, nil, clock.Now)
	for range 13 {
		if err := p.Send(t.Context(), completed); err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		last := issued[len(issued)-1]
		if age := clock.Now().Sub(last); age >= time.Hour {
			t.Errorf("the token is %v old", age)
		}
		if n := len(issued); n > 1 && last != issued[n-2] && last.Sub(issued[n-2]) < 20*time.Minute {
			t.Errorf("renewed after %v", last.Sub(issued[n-2]))
		}
		mu.Unlock()
		clock.Advance(10 * time.Minute)
	}
}

func TestPlatformBSpeaksHTTP2(t *testing.T) {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "PRI" {
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil || len(body) == 0 || r.Header.Get("apns-topic") != "app.example" || r.Header.Get("apns-push-type") != "alert" ||
			r.Header.Get("apns-collapse-id") != "rnd-1" || r.Header.Get("apns-expiration") != "1800000000" || r.URL.Path != "/3/device/"+device {
			t.Errorf("%s %s %v %s %v", r.Method, r.URL, r.Header, body, err)
		}
		if r.ProtoMajor != 2 {
			w.WriteHeader(http.StatusTeapot)
		}
	})
	secure := httptest.NewUnstartedServer(handler)
	secure.EnableHTTP2 = true
	secure.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	secure.Config.ErrorLog = log.New(io.Discard, "", 0) // it logs the client that does not trust it
	secure.StartTLS()
	t.Cleanup(secure.Close)
	root := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw})
	keys := notify.NewPlatformB("app.example", nil)
	if err := clientB(t, keys, secure.URL, root, nil).Send(t.Context(), completed); err != nil {
		t.Errorf("over TLS: %v", err)
	}
	if err := clientB(t, keys, secure.URL, nil, nil).Send(t.Context(), completed); outcome(err) != "again 0s" {
		t.Errorf("a certificate that nobody trusts: %v", err)
	}
	// A stand-in without HTTP/2 gets HTTP/1.1 requests, as the handler's 418 shows.
	plain := httptest.NewServer(handler)
	t.Cleanup(plain.Close)
	if err := clientB(t, keys, plain.URL, nil, nil).Send(t.Context(), completed); err == nil || !strings.Contains(err.Error(), "418") {
		t.Errorf("without HTTP/2: %v", err)
	}
	if err := clientB(t, keys, calltest.DeadAddress(t), nil, nil).Send(t.Context(), completed); outcome(err) != "again 0s" {
		t.Errorf("nobody listens: %v", err)
	}
	// A lost connection does not mean that the server lacks HTTP/2.
	b, p := serviceB(t, nil)
	for i, kind := range []fake.Kind{"", fake.KindClose, ""} {
		if kind != "" {
			if err := b.Faults.Add(fake.Rule{Step: notify.StepDevice, Kind: kind, Times: 1}); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.Send(t.Context(), completed); (err == nil) != (kind == "") {
			t.Errorf("message %d: %v", i, err)
		}
	}
	if n := b.Faults.Count(notify.StepDevice); n != 3 {
		t.Errorf("three messages took %d calls", n)
	}
}
