package config

import "cutroom/internal/upstream/credentials"

// maxCertificatesBytes is far more than a file of root certificates needs.
const maxCertificatesBytes = 1 << 20

// certificates reads the PEM file of certificates that a key names, or nothing for a blank path.
func (r *reader) certificates(key, path string) []byte {
	if path == "" {
		return nil
	}
	text, err := readFile(path, maxCertificatesBytes)
	certificates, parseErr := credentials.ParseCertificates(text)
	switch {
	case err != nil:
		r.problem(key, unreadable)
	case len(text) > maxCertificatesBytes, parseErr != nil, len(certificates) == 0:
		r.problem(key, "must name a file of PEM certificates")
	}
	return text
}

func (r *reader) checkP256(key string, pem Secret) {
	if _, err := credentials.ParseP256([]byte(pem.Reveal())); err != nil {
		r.problem(key, err.Error())
	}
}

func (r *reader) serviceAccount(key string, json Secret) (account credentials.ServiceAccount, ok bool) {
	account, err := credentials.ParseServiceAccount([]byte(json.Reveal()))
	if err != nil {
		r.problem(key, err.Error())
	}
	return account, err == nil
}
