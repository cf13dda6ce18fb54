package config

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"os"
)

// serviceAccountRule says which rule the text of a service account's key file
// breaks, or "".
func serviceAccountRule(text string) (rule string) {
	var account struct {
		Type        string `json:"type"`
		ClientEmail string `json:"client_email"`
		PrivateKey  string `json:"private_key"`
		TokenURI    string `json:"token_uri"`
	}
	err := json.Unmarshal([]byte(text), &account)
	switch {
	case err != nil:
		return "must be a JSON object, the key file of a service account"
	case account.Type != "" && account.Type != "service_account":
		return "must have the type service_account"
	case account.ClientEmail == "":
		return "must have a client_email"
	case !isHTTPURL(account.TokenURI):
		return "must have a token_uri that is an http or https address"
	}
	if _, ok := privateKey(account.PrivateKey).(*rsa.PrivateKey); !ok {
		return "must have a private_key that is an RSA key in PEM"
	}
	return ""
}

// namesProject reports whether a service account's key file says of which project it is.
func namesProject(text string) bool {
	var account struct {
		ProjectID string `json:"project_id"`
	}
	return json.Unmarshal([]byte(text), &account) == nil && account.ProjectID != ""
}

func isP256Key(text string) bool {
	key, ok := privateKey(text).(*ecdsa.PrivateKey)
	return ok && key.Curve == elliptic.P256()
}

// privateKey is the key of the first PEM block of text, nil where there is none
// of a form that is known.
func privateKey(text string) any {
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return nil
	}
	if key, err := x509.ParsePKCS8PrivateKey(block.Bytes); err == nil {
		return key
	}
	if key, err := x509.ParseECPrivateKey(block.Bytes); err == nil {
		return key
	}
	if key, err := x509.ParsePKCS1PrivateKey(block.Bytes); err == nil {
		return key
	}
	return nil
}

// maxCertificatesBytes is far more than a file of root certificates needs.
const maxCertificatesBytes = 1 << 20

// certificates reads a PEM file of certificates, or says which rule it breaks.
func certificates(path string) (text []byte, rule string) {
	const unreadable = "must name a file that can be read"
	f, err := os.Open(path)
	if err != nil {
		return nil, unreadable
	}
	defer f.Close()
	text, err = io.ReadAll(io.LimitReader(f, maxCertificatesBytes+1))
	if err != nil {
		return nil, unreadable
	}
	if len(text) > maxCertificatesBytes || !areCertificates(text) {
		return nil, "must name a file of PEM certificates"
	}
	return text, ""
}

func areCertificates(text []byte) bool {
	for found := false; ; found = true {
		block, rest := pem.Decode(text)
		if block == nil {
			return found // text around the blocks is for people
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil || block.Type != "CERTIFICATE" {
			return false
		}
		text = rest
	}
}
