package receipt

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// The extensions that mark the certificates with which platform_b signs transactions. Other certificates under the same
// root lack them and belong to other parties.
var (
	leafMarker         = asn1.ObjectIdentifier{1, 2, 840, 113635, 100, 6, 11, 1}
	intermediateMarker = asn1.ObjectIdentifier{1, 2, 840, 113635, 100, 6, 2, 1}
)

// chainLength counts leaf, intermediate and root.
const chainLength = 3

// verifySigned returns the payload of a JWS that the store signed.
//
// It checks the certificates' validity at now. The store recommends the time of signing, which suits a transaction that
// a device has kept for months. Ours was signed and fetched a moment ago, and the time of signing is part of the
// unverified payload: the holder of an expired key could choose a time at which the key was valid.
func verifySigned(text string, roots []*x509.Certificate, now time.Time) ([]byte, error) {
	// The decoder skips line breaks, which a compact JWS must not contain.
	if strings.ContainsAny(text, "\r\n") {
		return nil, errors.New("line break")
	}
	_, err := signedParser.Parse(text, func(token *jwt.Token) (any, error) {
		chain, err := chainOf(token.Header)
		if err != nil {
			return nil, err
		}
		return verifyChain(chain, roots, now)
	})
	if err != nil {
		return nil, err
	}
	return signedParser.DecodeSegment(strings.Split(text, ".")[1])
}

// signedParser accepts one algorithm and does not check claims; the callers do.
var signedParser = jwt.NewParser(jwt.WithValidMethods([]string{jwt.SigningMethodES256.Alg()}),
	jwt.WithStrictDecoding(), jwt.WithoutClaimsValidation())

// chainOf returns the certificate chain in a header, and refuses a header with a critical extension.
func chainOf(header map[string]any) ([]*x509.Certificate, error) {
	if _, ok := header["crit"]; ok {
		return nil, errors.New("header demands an extension")
	}
	entries, _ := header["x5c"].([]any)
	if len(entries) != chainLength {
		return nil, fmt.Errorf("%d certificates instead of %d", len(entries), chainLength)
	}
	var chain []*x509.Certificate
	for i, entry := range entries {
		text, _ := entry.(string)
		der, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return nil, fmt.Errorf("certificate %d: %w", i, err)
		}
		certificate, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, fmt.Errorf("certificate %d: %w", i, err)
		}
		chain = append(chain, certificate)
	}
	return chain, nil
}

// verifyChain checks that chain is exactly leaf, intermediate and one of our roots, and returns the leaf's key. The
// root in the chain is only compared with ours, never trusted.
func verifyChain(chain []*x509.Certificate, roots []*x509.Certificate, now time.Time) (*ecdsa.PublicKey, error) {
	leaf, intermediate, root := chain[0], chain[1], chain[2]
	if !slices.ContainsFunc(roots, root.Equal) {
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

	// Check the intermediate against the root first: verifying a signature with an attacker's key of a million bits
	// would take minutes.
	if err := intermediate.CheckSignatureFrom(root); err != nil {
		return nil, fmt.Errorf("intermediate: %w", err)
	}

	// Each pool holds one certificate, so only the presented path can verify, or one that skips the intermediate, which
	// is refused below.
	anchors, between := x509.NewCertPool(), x509.NewCertPool()
	anchors.AddCert(root)
	between.AddCert(intermediate)
	paths, err := leaf.Verify(x509.VerifyOptions{
		Roots: anchors, Intermediates: between, CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}, // the default requires a TLS server certificate
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
	return slices.ContainsFunc(certificate.Extensions, func(e pkix.Extension) bool { return e.Id.Equal(marker) })
}
