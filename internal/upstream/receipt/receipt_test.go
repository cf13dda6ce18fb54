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

	"cutroom/internal/upstream/receipt"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	account = "7f1c2e7a-53a4-4b1e-9d0c-0a4d3b2c1e5f"
	product = "credits.50"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// wantOnly checks that err is want and not the other of the two errors, and
// that it repeats none of the secrets.
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

// verdict drops the quantity of a verification whose error is tested.
func verdict(_ int64, err error) error { return err }

// judged checks the result for a purchase: "" expects success, anything else a refusal.
func judged(t *testing.T, quantity int64, err error, wantQuantity int64, want receipt.Reason, secrets ...string) {
	t.Helper()
	if want == "" {
		wantOnly(t, err, nil)
	} else if wantOnly(t, err, receipt.ErrInvalid, secrets...); receipt.ReasonOf(err) != want {
		t.Errorf("refused as %q, want %q: %v", receipt.ReasonOf(err), want, err)
	}
	if quantity != wantQuantity {
		t.Errorf("quantity %d, want %d", quantity, wantQuantity)
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

// failures are the ways in which a store or a token endpoint gives no usable answer, with
// the resulting error. echo stands for the content of the request.
var failures = map[string]struct {
	handler http.HandlerFunc
	want    error
	timeout time.Duration // of the client; 0 is none
}{
	"500":           {status(500), receipt.ErrUnavailable, 0},
	"502":           {status(502), receipt.ErrUnavailable, 0},
	"503":           {status(503), receipt.ErrUnavailable, 0},
	"429":           {status(429), receipt.ErrUnavailable, 0},
	"408":           {status(408), receipt.ErrUnavailable, 0},
	"400":           {status(400), receipt.ErrInvalid, 0},
	"403":           {status(403), receipt.ErrInvalid, 0},
	"404":           {status(404), receipt.ErrInvalid, 0},
	"204":           {status(204), receipt.ErrInvalid, 0},
	"not JSON":      {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") }, receipt.ErrInvalid, 0},
	"empty":         {func(http.ResponseWriter, *http.Request) {}, receipt.ErrInvalid, 0},
	"empty object":  {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") }, receipt.ErrInvalid, 0},
	"too long":      {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 1<<20+1)) }, receipt.ErrInvalid, 0},
	"hangs":         {hang, receipt.ErrUnavailable, time.Second},
	"body hangs":    {hangInBody, receipt.ErrUnavailable, time.Second},
	"cut off":       {cutOff, receipt.ErrUnavailable, 0},
	"drops":         {drop, receipt.ErrUnavailable, 0},
	"echoes at us":  {echo, receipt.ErrUnavailable, 0},
	"sends us away": {redirect, receipt.ErrInvalid, 0},
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

// hang answers nothing until the client goes away. The server only notices that
// once the request's body has been read.
func hang(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	<-r.Context().Done()
}

func hangInBody(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Length", "100")
	_, _ = io.WriteString(w, "{")
	_ = http.NewResponseController(w).Flush()
	hang(w, r)
}

func cutOff(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Length", "100")
	_, _ = io.WriteString(w, "{}")
}

func drop(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

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

// redirect points back to the same server, which would accept any other request.
func redirect(w http.ResponseWriter, r *http.Request) {
	http.Redirect(w, r, r.URL.String()+"?again", http.StatusTemporaryRedirect)
}
