package fake

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"math/big"
)

// Must returns the value of a call that only fails because of our own mistake.
func Must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// SigningKey is a key with which a vendor signs tokens.
type SigningKey struct {
	ID      string
	Private *rsa.PrivateKey
}

// NewSigningKey draws a key.
func NewSigningKey() SigningKey {
	return SigningKey{ID: RandomHex(20), Private: Must(rsa.GenerateKey(rand.Reader, 2048))}
}

// JWK is the public half as it appears in a key set.
func (k SigningKey) JWK() map[string]string {
	encode := base64.RawURLEncoding.EncodeToString
	return map[string]string{"kty": "RSA", "kid": k.ID, "use": "sig", "alg": "RS256",
		"n": encode(k.Private.N.Bytes()), "e": encode(big.NewInt(int64(k.Private.E)).Bytes())}
}

// PublicPEM is the public half as a file.
func (k SigningKey) PublicPEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: Must(x509.MarshalPKIXPublicKey(&k.Private.PublicKey))})
}

// PrivatePEM is a private key in the file format in which vendors offer it for download.
func PrivatePEM(private any) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: Must(x509.MarshalPKCS8PrivateKey(private))}))
}

// Adjust adds or replaces fields, and then removes some.
func Adjust(fields, set map[string]any, omit []string) {
	for name, value := range set {
		fields[name] = value
	}
	for _, name := range omit {
		delete(fields, name)
	}
}
