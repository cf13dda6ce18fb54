package config

import (
	"crypto/x509"
	"encoding/pem"
	"io"
	"os"
)

// maxCertificatesBytes is far more than a file of root certificates needs.
const maxCertificatesBytes = 1 << 20

// certificates reads a PEM file of certificates, or returns the rule that it breaks.
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
			return found // text around the blocks is ignored
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil || block.Type != "CERTIFICATE" {
			return false
		}
		text = rest
	}
}
