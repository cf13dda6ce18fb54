package receipt

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"testing"
	"time"

	"cutroom/internal/upstream/credentials"
)

// The embedded root matches the fingerprint that the store publishes with its root.
func TestEmbeddedRoot(t *testing.T) {
	roots, err := credentials.ParseCertificates(platformBRoot)
	if err != nil {
		t.Fatal(err)
	}
	if len(roots) != 1 {
		t.Fatalf("%d certificates, want 1", len(roots))
	}
	const want = "63343abfb89a6a03ebb57e9b3f5fa7be7c4f5c756f3017b3a8c488c3653e9179"
	sum := sha256.Sum256(roots[0].Raw)
	if got := hex.EncodeToString(sum[:]); got != want {
		t.Errorf("fingerprint %s, want %s", got, want)
	}
}

// FuzzVerifySigned checks that no input from outside passes.
func FuzzVerifySigned(f *testing.F) {
	roots, err := credentials.ParseCertificates(platformBRoot)
	if err != nil {
		f.Fatal(err)
	}
	encode := base64.RawURLEncoding.EncodeToString
	root := base64.StdEncoding.EncodeToString(roots[0].Raw)
	header := func(algorithm string) string {
		return encode([]byte(`{"alg":"` + algorithm + `","x5c":["` + root + `","` + root + `","` + root + `"]}`))
	}
	payload := encode([]byte(`{"transactionId":"1"}`))
	f.Add(header("ES256") + "." + payload + "." + encode(make([]byte, 64)))
	f.Add(header("none") + "." + payload + ".")
	f.Add(encode([]byte(`{"alg":"ES256","x5c":[]}`)) + "." + payload + ".")
	f.Add("..")
	f.Add("")
	now := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, text string) {
		if payload, err := verifySigned(text, roots, now); err == nil {
			t.Fatalf("accepted %q with payload %q", text, payload)
		}
	})
}
