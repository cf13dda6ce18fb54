// Package credentials parses the key files that vendors issue to us, and their certificates, and gets access tokens.
// Its errors never quote a key, a token or a vendor's answer.
package credentials

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/url"

	jwtkey "github.com/golang-jwt/jwt/v5"
	"golang.org/x/oauth2/jwt"
)

// ServiceAccount is the key file of a service account of platform_a's vendor.
type ServiceAccount struct {
	ProjectID string // may be empty
	signer    jwt.Config
}

// ParseServiceAccount parses a key file as downloaded. The error says what is missing.
func ParseServiceAccount(file []byte) (ServiceAccount, error) {
	var f struct {
		Type      string `json:"type"`
		ProjectID string `json:"project_id"`
		Email     string `json:"client_email"`
		KeyID     string `json:"private_key_id"` // may be empty
		Key       string `json:"private_key"`
		TokenURI  string `json:"token_uri"`
	}
	if json.Unmarshal(file, &f) != nil {
		return ServiceAccount{}, errors.New("must be a JSON object, the key file of a service account")
	}
	switch _, err := jwtkey.ParseRSAPrivateKeyFromPEM([]byte(f.Key)); {
	case f.Type != "" && f.Type != "service_account":
		return ServiceAccount{}, errors.New("must have the type service_account")
	case f.Email == "":
		return ServiceAccount{}, errors.New("must have a client_email")
	case !isHTTP(f.TokenURI):
		return ServiceAccount{}, errors.New("must have a token_uri that is an http or https address")
	case err != nil:
		return ServiceAccount{}, errors.New("must have a private_key that is an RSA key in PEM")
	}
	return ServiceAccount{f.ProjectID, jwt.Config{
		Email: f.Email, PrivateKeyID: f.KeyID, PrivateKey: []byte(f.Key), TokenURL: f.TokenURI}}, nil
}

func isHTTP(address string) bool {
	u, err := url.Parse(address)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != "" && u.User == nil &&
		u.RawQuery == "" && u.Fragment == ""
}

// ParseP256 reads a PEM private key with real line breaks, PKCS #8 or SEC 1.
func ParseP256(text []byte) (*ecdsa.PrivateKey, error) {
	key, err := jwtkey.ParseECPrivateKeyFromPEM(text)
	if err != nil || key.Curve != elliptic.P256() {
		return nil, errors.New("must be a PEM private key on the curve P-256")
	}
	return key, nil
}

// ParseCertificates reads PEM certificates. Text around the blocks is ignored.
func ParseCertificates(text []byte) (certificates []*x509.Certificate, err error) {
	for {
		block, rest := pem.Decode(text)
		if block == nil {
			return certificates, nil
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil || block.Type != "CERTIFICATE" {
			return nil, errors.New("must be PEM certificates")
		}
		certificates, text = append(certificates, certificate), rest
	}
}
