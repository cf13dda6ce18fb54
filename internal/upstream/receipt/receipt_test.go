// What the tests of both stores share: keys, failures with the errors that they cause, and checks that errors hold no
// secret.

package receipt_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"cutroom/internal/base/httpcall/calltest"
	"cutroom/internal/sandbox/fake"
	"cutroom/internal/upstream/receipt"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	account = "7f1c2e7a-53a4-4b1e-9d0c-0a4d3b2c1e5f"
	product = "credits.50"
)

// start is the time of the verifiers. It is about now, because the stand-ins go by the real time.
var start = time.Now().Truncate(time.Second)

// wantOnly checks that err is want and not the other of the two errors, and that it repeats none of the secrets.
func wantOnly(t *testing.T, err, want error, secrets ...string) {
	t.Helper()
	for _, sentinel := range []error{receipt.ErrInvalid, receipt.ErrUnavailable} {
		if got := errors.Is(err, sentinel); got != (sentinel == want) {
			t.Errorf("errors.Is(%v, %v) = %t", err, sentinel, got)
		}
	}
	for _, secret := range secrets {
		if err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("the error repeats a secret: %v", err)
		}
	}
}

// verdict drops the sale of a verification whose error is tested.
func verdict(_ receipt.Sale, err error) error { return err }

// judged checks the result for a purchase: "" expects success, anything else a refusal.
func judged(t *testing.T, sold receipt.Sale, err error, wantSold receipt.Sale, want receipt.Reason, secrets ...string) {
	t.Helper()
	if want == "" {
		wantOnly(t, err, nil)
	} else if wantOnly(t, err, receipt.ErrInvalid, secrets...); receipt.ReasonOf(err) != want {
		t.Errorf("refused as %q, want %q: %v", receipt.ReasonOf(err), want, err)
	}
	if sold != wantSold {
		t.Errorf("sold %+v, want %+v", sold, wantSold)
	}
}

// must returns the value of a call that cannot fail in a sound test.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func newECKey(curve elliptic.Curve) *ecdsa.PrivateKey {
	return must(ecdsa.GenerateKey(curve, rand.Reader))
}

func pkcs8PEM(key any) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: must(x509.MarshalPKCS8PrivateKey(key))})
}

// failures are the ways in which a store or a token endpoint gives no usable answer, with the resulting error.
var failures = map[string]struct {
	rule    fake.Rule
	want    error
	timeout time.Duration // of the client; 0 is none
}{
	"500":           {rule: status(500), want: receipt.ErrUnavailable},
	"429":           {rule: status(429), want: receipt.ErrUnavailable},
	"408":           {rule: status(408), want: receipt.ErrUnavailable},
	"400":           {rule: status(400), want: receipt.ErrInvalid},
	"401":           {rule: status(401), want: receipt.ErrUnavailable},
	"403":           {rule: status(403), want: receipt.ErrUnavailable},
	"404":           {rule: status(404), want: receipt.ErrInvalid},
	"204":           {rule: status(204), want: receipt.ErrInvalid},
	"not JSON":      {rule: fake.Rule{Kind: fake.KindGarbage}, want: receipt.ErrInvalid},
	"blank":         {rule: answering(" "), want: receipt.ErrInvalid},
	"empty object":  {rule: answering("{}"), want: receipt.ErrInvalid},
	"too long":      {rule: fake.Rule{Kind: fake.KindHuge, SizeBytes: 1<<20 + 1}, want: receipt.ErrInvalid},
	"hangs":         {rule: fake.Rule{Kind: fake.KindStall}, want: receipt.ErrUnavailable, timeout: time.Second},
	"body hangs":    {rule: fake.Rule{Kind: fake.KindSlow}, want: receipt.ErrUnavailable, timeout: time.Second},
	"cut off":       {rule: fake.Rule{Kind: fake.KindCut}, want: receipt.ErrUnavailable},
	"drops":         {rule: fake.Rule{Kind: fake.KindClose}, want: receipt.ErrUnavailable},
	"sends us away": {rule: fake.Rule{Kind: fake.KindRedirect, Location: "/elsewhere", Status: 307}, want: receipt.ErrInvalid},
}

func status(code int) fake.Rule { return fake.Rule{Kind: fake.KindStatus, Status: code} }

func answering(body string) fake.Rule { return fake.Rule{Kind: fake.KindGarbage, Body: body} }

// fail makes every call of a step fail, instead of what failed before.
func fail(t *testing.T, h *fake.Host, step string, rule fake.Rule) {
	t.Helper()
	h.Faults.Clear()
	rule.Step = step
	if err := h.Faults.Add(rule); err != nil {
		t.Fatal(err)
	}
}

// listen starts a stand-in and returns a client for it.
func listen(t *testing.T, h *fake.Host) *http.Client {
	t.Helper()
	if err := h.Listen(""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
}

// echo answers with the request itself, which is not HTTP.
func echo(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	_, _ = io.WriteString(conn, r.URL.Path+" "+r.Header.Get("Authorization")+" "+string(body)+"\r\n\r\n")
	_ = conn.Close()
}

// An answer that repeats our request must not bring its secrets into an error.
func TestEchoesAreNotQuoted(t *testing.T) {
	address, client := calltest.Serve(t, echo)
	there := func(cfg *receipt.PlatformAConfig) { cfg.BaseURL = address }
	tokens := func(cfg *receipt.PlatformAConfig) {
		cfg.ServiceAccountJSON = accountJSON(map[string]any{"token_uri": address + "/token"})
	}
	for _, change := range []func(*receipt.PlatformAConfig){there, tokens} {
		p, _, _ := newPlatformA(t, change, func(cfg *receipt.PlatformAConfig) { cfg.HTTP = client })
		wantOnly(t, verdict(p.Verify(t.Context(), goodA())), receipt.ErrUnavailable, purchaseToken, "AO-J1Ox", "ya29.", "assertion=")
	}
	p, _ := newPlatformB(t, func(cfg *receipt.PlatformBConfig) { cfg.BaseURL, cfg.HTTP = address, client })
	wantOnly(t, verdict(p.Verify(t.Context(), goodB())), receipt.ErrUnavailable, "Bearer")
}
