package fake

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"maps"
	"math/big"
	"net/http"
)

// Must returns the value of a call that fails only because of a bug in this program.
func Must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// SigningKey is a vendor's key for signing tokens.
type SigningKey struct {
	ID      string
	Private *rsa.PrivateKey
}

// NewSigningKey generates a key.
func NewSigningKey() SigningKey {
	return SigningKey{ID: RandomHex(20), Private: Must(rsa.GenerateKey(rand.Reader, 2048))}
}

// jwk returns the public half as an entry of a key set.
func (k SigningKey) jwk() map[string]string {
	encode := base64.RawURLEncoding.EncodeToString
	return map[string]string{"kty": "RSA", "kid": k.ID, "use": "sig", "alg": "RS256",
		"n": encode(k.Private.N.Bytes()), "e": encode(big.NewInt(int64(k.Private.E)).Bytes())}
}

// ServeKeys answers with a key set of the one key.
func (k SigningKey) ServeKeys(w http.ResponseWriter, _ *http.Request) {
	WriteJSON(w, http.StatusOK, map[string]any{"keys": []map[string]string{k.jwk()}})
}

// PrivatePEM returns a private key in the file format in which vendors offer it for download.
func PrivatePEM(private any) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: Must(x509.MarshalPKCS8PrivateKey(private))}))
}

// Adjust adds or replaces fields, and then removes others.
func Adjust(fields, set map[string]any, omit []string) {
	maps.Copy(fields, set)
	for _, name := range omit {
		delete(fields, name)
	}
}
