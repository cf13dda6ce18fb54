package store

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"time"
)

// Marker extensions of platform_b's certificates (value: ASN.1 NULL).
var (
	oidLeafMarker         = asn1.ObjectIdentifier{1, 2, 840, 113635, 100, 6, 11, 1}
	oidIntermediateMarker = asn1.ObjectIdentifier{1, 2, 840, 113635, 100, 6, 2, 1}
)

// Chain says with which certificates a transaction is signed.
type Chain string

// The chains. Only ChainGood shall be accepted.
const (
	ChainGood                 Chain = ""                       // leaf, intermediate, root with both markers
	ChainOtherRoot            Chain = "other_root"             // complete and marked, but another root
	ChainGraftedRoot          Chain = "grafted_root"           // other leaf and intermediate, the true root put at the end
	ChainNoLeafMarker         Chain = "no_leaf_marker"         // true root, leaf without its marker
	ChainNoIntermediateMarker Chain = "no_intermediate_marker" // true root, intermediate without its marker
	ChainExpired              Chain = "expired"                // true root, leaf's time is over
	ChainWrongKey             Chain = "wrong_key"              // good x5c, signed by a key that is not the leaf's
	ChainLeafOnly             Chain = "leaf_only"              // x5c holds the good leaf alone
	ChainEmpty                Chain = "empty"                  // x5c is an empty list
	ChainMissing              Chain = "missing"                // no x5c at all
	ChainReversed             Chain = "reversed"               // root, intermediate, leaf
	ChainSelfSigned           Chain = "self_signed"            // one self-signed certificate with both markers
	ChainGarbage              Chain = "garbage"                // x5c entries that are no certificates
	ChainAlgNone              Chain = "alg_none"               // good x5c, alg none, no signature
	ChainAlgHMAC              Chain = "alg_hmac"               // good x5c, HS256 keyed with the leaf's public key
	ChainTampered             Chain = "tampered"               // good, but the payload was changed after signing
)

type certificate struct {
	der     []byte
	parsed  *x509.Certificate
	private *ecdsa.PrivateKey
}

// issuer makes certificates and remembers the first failure, so that a chain
// reads as a list.
type issuer struct {
	serial int64
	err    error
}

type template struct {
	name    string
	ca      bool
	markers []asn1.ObjectIdentifier
	expired bool
}

func (is *issuer) issue(t template, parent *certificate) *certificate {
	if is.err != nil {
		return nil
	}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		is.err = fmt.Errorf("generate key of %s: %w", t.name, err)
		return nil
	}
	is.serial++
	now := time.Now()
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano() + is.serial), Subject: pkix.Name{CommonName: t.name, Organization: []string{"Sandbox Inc."}},
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
	signer, above := private, cert
	if parent != nil {
		signer, above = parent.private, parent.parsed
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, above, &private.PublicKey, signer)
	if err != nil {
		is.err = fmt.Errorf("issue %s: %w", t.name, err)
		return nil
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		is.err = fmt.Errorf("parse %s: %w", t.name, err)
		return nil
	}
	return &certificate{der: der, parsed: parsed, private: private}
}

// authority holds the certificates of the store and those of forgers.
type authority struct {
	root, intermediate, leaf                *certificate
	strangerRoot, strangerMid, strangerLeaf *certificate
	plainLeaf, plainMid, plainMidLeaf       *certificate // without their markers
	expiredLeaf, selfSigned                 *certificate
}

func newAuthority() (*authority, error) {
	is := &issuer{}
	leafMark, midMark := []asn1.ObjectIdentifier{oidLeafMarker}, []asn1.ObjectIdentifier{oidIntermediateMarker}
	a := &authority{}
	a.root = is.issue(template{name: "Sandbox Root CA - G3", ca: true}, nil)
	a.intermediate = is.issue(template{name: "Sandbox Store Relations CA", ca: true, markers: midMark}, a.root)
	a.leaf = is.issue(template{name: "Sandbox Store Receipt Signing", markers: leafMark}, a.intermediate)
	// The forger copies every name.
	a.strangerRoot = is.issue(template{name: "Sandbox Root CA - G3", ca: true}, nil)
	a.strangerMid = is.issue(template{name: "Sandbox Store Relations CA", ca: true, markers: midMark}, a.strangerRoot)
	a.strangerLeaf = is.issue(template{name: "Sandbox Store Receipt Signing", markers: leafMark}, a.strangerMid)
	a.plainLeaf = is.issue(template{name: "Sandbox Some Other Service"}, a.intermediate)
	a.plainMid = is.issue(template{name: "Sandbox Some Other CA", ca: true}, a.root)
	a.plainMidLeaf = is.issue(template{name: "Sandbox Store Receipt Signing", markers: leafMark}, a.plainMid)
	a.expiredLeaf = is.issue(template{name: "Sandbox Store Receipt Signing", markers: leafMark, expired: true}, a.intermediate)
	both := []asn1.ObjectIdentifier{oidLeafMarker, oidIntermediateMarker}
	a.selfSigned = is.issue(template{name: "Sandbox Store Receipt Signing", ca: true, markers: both}, nil)
	return a, is.err
}

// pick is the x5c list and the signing key of a chain.
func (a *authority) pick(c Chain) (x5c []string, key *ecdsa.PrivateKey, err error) {
	good := []*certificate{a.leaf, a.intermediate, a.root}
	chain := good
	switch c {
	case ChainGood, ChainAlgNone, ChainAlgHMAC, ChainTampered, ChainMissing, ChainGarbage, ChainEmpty:
	case ChainWrongKey:
		return encodeChain(good), a.strangerLeaf.private, nil
	case ChainReversed:
		return encodeChain([]*certificate{a.root, a.intermediate, a.leaf}), a.leaf.private, nil
	case ChainOtherRoot:
		chain = []*certificate{a.strangerLeaf, a.strangerMid, a.strangerRoot}
	case ChainGraftedRoot:
		chain = []*certificate{a.strangerLeaf, a.strangerMid, a.root}
	case ChainNoLeafMarker:
		chain = []*certificate{a.plainLeaf, a.intermediate, a.root}
	case ChainNoIntermediateMarker:
		chain = []*certificate{a.plainMidLeaf, a.plainMid, a.root}
	case ChainExpired:
		chain = []*certificate{a.expiredLeaf, a.intermediate, a.root}
	case ChainLeafOnly:
		chain = []*certificate{a.leaf}
	case ChainSelfSigned:
		chain = []*certificate{a.selfSigned}
	default:
		return nil, nil, fmt.Errorf("unknown chain %q", c)
	}
	return encodeChain(chain), chain[0].private, nil
}

// encodeChain uses standard base64, as x5c does (RFC 7515, 4.1.6).
func encodeChain(chain []*certificate) []string {
	out := make([]string, 0, len(chain))
	for _, c := range chain {
		out = append(out, base64.StdEncoding.EncodeToString(c.der))
	}
	return out
}

func (c *certificate) pem() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.der}))
}
