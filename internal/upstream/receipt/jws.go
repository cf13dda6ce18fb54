package receipt

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/asn1"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// The extensions by which platform_b marks the certificates that may sign
// transactions. Other certificates under the same root lack them, and other
// people hold the keys of those.
var (
	leafMarker         = asn1.ObjectIdentifier{1, 2, 840, 113635, 100, 6, 11, 1}
	intermediateMarker = asn1.ObjectIdentifier{1, 2, 840, 113635, 100, 6, 2, 1}
)

// chainLength counts leaf, intermediate and root.
const chainLength = 3

// trustedRoots are the certificates that a chain may end in.
type trustedRoots struct{ certificates []*x509.Certificate }

// newTrustedRoots reads PEM files, each of which holds at least one certificate
// and nothing but certificates.
func newTrustedRoots(files ...[]byte) (trustedRoots, error) {
	var roots trustedRoots
	for _, file := range files {
		before := len(roots.certificates)
		for rest := file; ; {
			var block *pem.Block
			if block, rest = pem.Decode(rest); block == nil {
				break
			}
			if block.Type != "CERTIFICATE" {
				return trustedRoots{}, fmt.Errorf("PEM block %.40q is not a certificate", block.Type)
			}
			certificate, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				return trustedRoots{}, fmt.Errorf("parse certificate: %w", err)
			}
			roots.certificates = append(roots.certificates, certificate)
		}
		if len(roots.certificates) == before {
			return trustedRoots{}, errors.New("no certificate in PEM")
		}
	}
	return roots, nil
}

func (r trustedRoots) expiry() time.Time {
	first := r.certificates[0].NotAfter
	for _, c := range r.certificates[1:] {
		if c.NotAfter.Before(first) {
			first = c.NotAfter
		}
	}
	return first
}

// signedMessage is a JWS in compact form, taken apart and not yet believed.
type signedMessage struct {
	signingInput string
	chain        []*x509.Certificate // leaf, intermediate, root, as the header names them
	payload      []byte
	signature    []byte
}

// parseSigned takes a JWS apart. It refuses every algorithm but ES256, every
// header extension, and a chain that is not three certificates long.
func parseSigned(text string) (signedMessage, error) {
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		return signedMessage{}, fmt.Errorf("%d parts instead of 3", len(parts))
	}
	encoding := base64.RawURLEncoding.Strict()
	var decoded [3][]byte
	for i, part := range parts {
		var err error
		// Decoding skips line breaks, which have no place in a compact JWS.
		if strings.ContainsAny(part, "\r\n") {
			return signedMessage{}, fmt.Errorf("part %d holds a line break", i)
		}
		if decoded[i], err = encoding.DecodeString(part); err != nil {
			return signedMessage{}, fmt.Errorf("part %d: %w", i, err)
		}
	}
	var header struct {
		Algorithm string          `json:"alg"`
		Chain     []string        `json:"x5c"`
		Critical  json.RawMessage `json:"crit"`
	}
	if err := json.Unmarshal(decoded[0], &header); err != nil {
		return signedMessage{}, fmt.Errorf("header: %w", err)
	}
	if header.Algorithm != jwt.SigningMethodES256.Alg() {
		return signedMessage{}, fmt.Errorf("algorithm %.20q", header.Algorithm)
	}
	if header.Critical != nil {
		return signedMessage{}, errors.New("header demands an extension")
	}
	if len(header.Chain) != chainLength {
		return signedMessage{}, fmt.Errorf("%d certificates instead of %d", len(header.Chain), chainLength)
	}
	message := signedMessage{signingInput: parts[0] + "." + parts[1], payload: decoded[1], signature: decoded[2]}
	for i, entry := range header.Chain {
		der, err := base64.StdEncoding.DecodeString(entry)
		if err != nil {
			return signedMessage{}, fmt.Errorf("certificate %d: %w", i, err)
		}
		certificate, err := x509.ParseCertificate(der)
		if err != nil {
			return signedMessage{}, fmt.Errorf("certificate %d: %w", i, err)
		}
		message.chain = append(message.chain, certificate)
	}
	return message, nil
}

// verifySigned returns the payload of a JWS that the store signed.
//
// Certificates are judged at now. The store advises to judge them at the time
// of signing, which is right for a transaction kept on a device for months; we
// fetch ours this moment and the store signs when it answers. Its signing time,
// moreover, stands in the very payload that is to be proven: believing it would
// let the holder of an expired key choose a date at which it was valid.
func verifySigned(text string, roots trustedRoots, now time.Time) ([]byte, error) {
	message, err := parseSigned(text)
	if err != nil {
		return nil, err
	}
	key, err := verifyChain(message.chain, roots, now)
	if err != nil {
		return nil, err
	}
	if err := jwt.SigningMethodES256.Verify(message.signingInput, message.signature, key); err != nil {
		return nil, errors.New("signature does not match the leaf's key")
	}
	return message.payload, nil
}

// verifyChain checks that chain is exactly leaf, intermediate and one of our
// roots, and returns the leaf's key. The root in the chain is compared, never
// trusted.
func verifyChain(chain []*x509.Certificate, roots trustedRoots, now time.Time) (*ecdsa.PublicKey, error) {
	if len(chain) != chainLength {
		return nil, fmt.Errorf("%d certificates instead of %d", len(chain), chainLength)
	}
	leaf, intermediate, root := chain[0], chain[1], chain[2]
	if !slices.ContainsFunc(roots.certificates, root.Equal) {
		return nil, errors.New("chain does not end in a trusted root")
	}
	if !marked(leaf, leafMarker) {
		return nil, errors.New("leaf is not marked for signing transactions")
	}
	if !marked(intermediate, intermediateMarker) {
		return nil, errors.New("intermediate is not marked")
	}
	if leaf.KeyUsage != 0 && leaf.KeyUsage&x509.KeyUsageDigitalSignature == 0 {
		return nil, errors.New("leaf is not for signatures")
	}

	// The pools hold one certificate each, so a path that verifies can only be
	// the one presented (or skip the intermediate, which is refused below).
	anchors, between := x509.NewCertPool(), x509.NewCertPool()
	anchors.AddCert(root)
	between.AddCert(intermediate)
	paths, err := leaf.Verify(x509.VerifyOptions{
		Roots: anchors, Intermediates: between, CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}, // the default asks for a web server's
	})
	if err != nil {
		return nil, fmt.Errorf("chain: %w", err)
	}
	presented := func(path []*x509.Certificate) bool {
		return len(path) == chainLength && path[1].Equal(intermediate) && path[2].Equal(root)
	}
	if !slices.ContainsFunc(paths, presented) {
		return nil, errors.New("the intermediate does not link leaf and root")
	}
	key, ok := leaf.PublicKey.(*ecdsa.PublicKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil, errors.New("leaf key is not on the curve P-256")
	}
	return key, nil
}

// marked reports whether a certificate carries an extension.
func marked(certificate *x509.Certificate, marker asn1.ObjectIdentifier) bool {
	for _, extension := range certificate.Extensions {
		if extension.Id.Equal(marker) {
			return true
		}
	}
	return false
}
