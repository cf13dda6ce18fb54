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

type certificate struct {
	*x509.Certificate
	private *ecdsa.PrivateKey
}

// issue returns a certificate signed by parent, or a self-signed one if parent is nil. Without a marker it has none.
func issue(name string, ca bool, marker asn1.ObjectIdentifier, parent *certificate) *certificate {
	now := time.Now()
	cert := &x509.Certificate{
		Subject:   pkix.Name{CommonName: name, Organization: []string{"Sandbox Inc."}},
		NotBefore: now.Add(-48 * time.Hour), NotAfter: now.Add(10 * 365 * 24 * time.Hour),
		BasicConstraintsValid: true, IsCA: ca, KeyUsage: x509.KeyUsageDigitalSignature,
	}
	if ca {
		cert.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	}
	if marker != nil {
		cert.ExtraExtensions = []pkix.Extension{{Id: marker, Value: asn1.NullBytes}}
	}
	private := fake.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	if parent == nil {
		parent = &certificate{cert, private}
	}
	der := fake.Must(x509.CreateCertificate(rand.Reader, cert, parent.Certificate, &private.PublicKey, parent.private))
	return &certificate{fake.Must(x509.ParseCertificate(der)), private}
}

// chain is a leaf that signs transactions, and the certificates that vouch for it.
type chain struct {
	x5c  []string // leaf, intermediate and root in standard base64 (RFC 7515, 4.1.6)
	key  *ecdsa.PrivateKey
	root *certificate
}

// newChain creates a complete chain. All chains have the same names, as a forger's would.
func newChain() chain {
	root := issue("Sandbox Root CA - G3", true, nil, nil)
	intermediate := issue("Sandbox Store Relations CA", true, oidIntermediateMarker, root)
	leaf := issue("Sandbox Store Receipt Signing", false, oidLeafMarker, intermediate)
	c := chain{key: leaf.private, root: root}
	for _, cert := range []*certificate{leaf, intermediate, root} {
		c.x5c = append(c.x5c, base64.StdEncoding.EncodeToString(cert.Raw))
	}
	return c
}
