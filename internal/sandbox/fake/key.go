package fake

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"math/big"
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

// JWK returns the public half as an entry of a key set.
func (k SigningKey) JWK() map[string]string {
	encode := base64.RawURLEncoding.EncodeToString
	return map[string]string{"kty": "RSA", "kid": k.ID, "use": "sig", "alg": "RS256",
		"n": encode(k.Private.N.Bytes()), "e": encode(big.NewInt(int64(k.Private.E)).Bytes())}
}

// PublicPEM returns the public half as a PEM file.
func (k SigningKey) PublicPEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: Must(x509.MarshalPKIXPublicKey(&k.Private.PublicKey))})
}

// PrivatePEM returns a private key in the file format in which vendors offer it for download.
func PrivatePEM(private any) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: Must(x509.MarshalPKCS8PrivateKey(private))}))
}

// Adjust adds or replaces fields, and then removes others.
func Adjust(fields, set map[string]any, omit []string) {
	for name, value := range set {
		fields[name] = value
	}
	for _, name := range omit {
		delete(fields, name)
	}
}
