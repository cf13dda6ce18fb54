package store

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"time"

	"cutroom/internal/sandbox/fake"
)

// Marker extensions of platform_b's certificates (value: ASN.1 NULL).
var (
	oidLeafMarker         = asn1.ObjectIdentifier{1, 2, 840, 113635, 100, 6, 11, 1}
	oidIntermediateMarker = asn1.ObjectIdentifier{1, 2, 840, 113635, 100, 6, 2, 1}
)

// Chain selects the certificates that sign a transaction.
type Chain string

// The chains. Only ChainGood must be accepted.
const (
	ChainGood                 Chain = ""                       // leaf, intermediate, root with both markers
	ChainOtherRoot            Chain = "other_root"             // complete and with markers, but another root
	ChainGraftedRoot          Chain = "grafted_root"           // other leaf and intermediate, true root appended
	ChainNoLeafMarker         Chain = "no_leaf_marker"         // true root, leaf without its marker
	ChainNoIntermediateMarker Chain = "no_intermediate_marker" // true root, intermediate without its marker
	ChainExpired              Chain = "expired"                // true root, but an expired leaf
	ChainWrongKey             Chain = "wrong_key"              // good x5c, signed by a key that is not the leaf's
	ChainLeafOnly             Chain = "leaf_only"              // x5c has only the valid leaf
	ChainEmpty                Chain = "empty"                  // x5c is an empty list
	ChainMissing              Chain = "missing"                // no x5c at all
	ChainReversed             Chain = "reversed"               // root, intermediate, leaf
	ChainSelfSigned           Chain = "self_signed"            // one self-signed certificate with both markers
	ChainGarbage              Chain = "garbage"                // x5c entries that are not certificates
	ChainAlgNone              Chain = "alg_none"               // good x5c, alg none, no signature
	ChainAlgHMAC              Chain = "alg_hmac"               // good x5c, HS256 keyed with the leaf's public key
	ChainTampered             Chain = "tampered"               // good, but the payload was changed after signing
)

type certificate struct {
	*x509.Certificate
	private *ecdsa.PrivateKey
}

type template struct {
	name    string
	ca      bool
	markers []asn1.ObjectIdentifier
	expired bool
}

// issue returns a certificate signed by parent, or self-signed if parent is nil.
func issue(t template, parent *certificate) *certificate {
	now := time.Now()
	cert := &x509.Certificate{
		Subject:   pkix.Name{CommonName: t.name, Organization: []string{"Sandbox Inc."}},
		NotBefore: now.Add(-48 * time.Hour), NotAfter: now.Add(10 * 365 * 24 * time.Hour),
		BasicConstraintsValid: true, IsCA: t.ca, KeyUsage: x509.KeyUsageDigitalSignature,
	}
	if t.ca {
		cert.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	}
	if t.expired {
		cert.NotAfter = now.Add(-24 * time.Hour)
	}
	for _, marker := range t.markers {
		cert.ExtraExtensions = append(cert.ExtraExtensions, pkix.Extension{Id: marker, Value: asn1.NullBytes})
	}
	private := fake.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	if parent == nil {
		parent = &certificate{cert, private}
	}
	der := fake.Must(x509.CreateCertificate(rand.Reader, cert, parent.Certificate, &private.PublicKey, parent.private))
	return &certificate{fake.Must(x509.ParseCertificate(der)), private}
}

// chain is the x5c list of a token and the signing key.
type chain struct {
	x5c []string // nil for none
	key *ecdsa.PrivateKey
}

// signedBy returns a chain of certificates that signs with signer's key. x5c uses standard base64 (RFC 7515,
// 4.1.6).
func signedBy(signer *certificate, certs ...*certificate) chain {
	c := chain{key: signer.private}
	for _, cert := range certs {
		c.x5c = append(c.x5c, base64.StdEncoding.EncodeToString(cert.Raw))
	}
	return c
}

// newChains creates the certificates of the store and of forgers.
func newChains() (root *certificate, chains map[Chain]chain) {
	leafMark, midMark := []asn1.ObjectIdentifier{oidLeafMarker}, []asn1.ObjectIdentifier{oidIntermediateMarker}
	const rootName, midName, leafName = "Sandbox Root CA - G3", "Sandbox Store Relations CA", "Sandbox Store Receipt Signing"
	root = issue(template{name: rootName, ca: true}, nil)
	mid := issue(template{name: midName, ca: true, markers: midMark}, root)
	leaf := issue(template{name: leafName, markers: leafMark}, mid)
	// The forger copies every name.
	otherRoot := issue(template{name: rootName, ca: true}, nil)
	otherMid := issue(template{name: midName, ca: true, markers: midMark}, otherRoot)
	otherLeaf := issue(template{name: leafName, markers: leafMark}, otherMid)
	plainLeaf := issue(template{name: "Sandbox Some Other Service"}, mid)
	plainMid := issue(template{name: "Sandbox Some Other CA", ca: true}, root)
	plainMidLeaf := issue(template{name: leafName, markers: leafMark}, plainMid)
	expired := issue(template{name: leafName, markers: leafMark, expired: true}, mid)
	self := issue(template{name: leafName, ca: true, markers: append(leafMark, midMark...)}, nil)

	good := signedBy(leaf, leaf, mid, root)
	return root, map[Chain]chain{
		ChainGood: good, ChainAlgNone: good, ChainAlgHMAC: good, ChainTampered: good,
		ChainOtherRoot:            signedBy(otherLeaf, otherLeaf, otherMid, otherRoot),
		ChainGraftedRoot:          signedBy(otherLeaf, otherLeaf, otherMid, root),
		ChainNoLeafMarker:         signedBy(plainLeaf, plainLeaf, mid, root),
		ChainNoIntermediateMarker: signedBy(plainMidLeaf, plainMidLeaf, plainMid, root),
		ChainExpired:              signedBy(expired, expired, mid, root),
		ChainWrongKey:             signedBy(otherLeaf, leaf, mid, root),
		ChainLeafOnly:             signedBy(leaf, leaf),
		ChainEmpty:                {[]string{}, leaf.private},
		ChainMissing:              {nil, leaf.private},
		ChainReversed:             signedBy(leaf, root, mid, leaf),
		ChainSelfSigned:           signedBy(self, self),
		ChainGarbage:              {[]string{"bm90IGEgY2VydA==", "!!!", ""}, leaf.private},
	}
}
