// Purchases at platform_b: forged chains and signatures, transactions that are refused, the sandbox, and failures of
// the store.

package receipt_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"cutroom/internal/base/httpcall/calltest"
	"cutroom/internal/sandbox/fake"
	"cutroom/internal/sandbox/store"
	"cutroom/internal/upstream/receipt"
)

const transactionID = "2000000123456789"

var (
	p256               = elliptic.P256()
	leafMarker         = asn1.ObjectIdentifier{1, 2, 840, 113635, 100, 6, 11, 1}
	intermediateMarker = asn1.ObjectIdentifier{1, 2, 840, 113635, 100, 6, 2, 1}
)

func goodB() receipt.Purchase {
	return receipt.Purchase{TransactionID: transactionID, ProductID: product, Receipt: "whatever", AccountID: account}
}

// authority is a certificate with its key.
type authority struct {
	certificate *x509.Certificate
	key         crypto.Signer
}

// issue makes a certificate that parent signs, or that signs itself when parent is nil. It is valid around start unless
// change says otherwise.
func issue(parent *authority, key crypto.Signer, name string, isCA bool, marker asn1.ObjectIdentifier, change func(*x509.Certificate)) *authority {
	template := &x509.Certificate{
		SerialNumber: must(rand.Int(rand.Reader, big.NewInt(1<<62))),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    start.Add(-24 * time.Hour), NotAfter: start.Add(24 * time.Hour),
		IsCA: isCA, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature,
	}
	if isCA {
		template.KeyUsage = x509.KeyUsageCertSign
	}
	if marker != nil {
		template.ExtraExtensions = []pkix.Extension{{Id: marker, Value: []byte{5, 0}}}
	}
	if change != nil {
		change(template)
	}
	signer := &authority{template, key}
	if parent != nil {
		signer = parent
	}
	der := must(x509.CreateCertificate(rand.Reader, template, signer.certificate, key.Public(), signer.key))
	return &authority{must(x509.ParseCertificate(der)), key}
}

// chain is a store's signing chain.
type chain struct{ root, intermediate, leaf *authority }

func newChain() chain {
	var c chain
	c.root = issue(nil, newECKey(elliptic.P384()), "Root", true, nil, nil)
	c.intermediate = issue(c.root, newECKey(elliptic.P384()), "Intermediate", true, intermediateMarker, nil)
	c.leaf = issue(c.intermediate, newECKey(p256), "Leaf", false, leafMarker, nil)
	return c
}

// trusted is the chain whose root the verifiers under test are told to trust.
var trusted = sync.OnceValue(newChain)

func x5c(certificates ...*authority) []string {
	entries := make([]string, 0, len(certificates))
	for _, c := range certificates {
		entries = append(entries, base64.StdEncoding.EncodeToString(c.certificate.Raw))
	}
	return entries
}

func (c chain) x5c() []string { return x5c(c.leaf, c.intermediate, c.root) }

func (c chain) sign(payload map[string]any) string {
	return signJWS(jwt.SigningMethodES256, c.leaf.key, map[string]any{"x5c": c.x5c()}, payload)
}

// signJWS makes a JWS; the header's changes are applied before signing.
func signJWS(method jwt.SigningMethod, key any, header, payload map[string]any) string {
	token := jwt.NewWithClaims(method, jwt.MapClaims(payload))
	delete(token.Header, "typ")
	maps.Copy(token.Header, header)
	return must(token.SignedString(key))
}

// payloadB is a valid transaction with changes applied; a nil change removes the member.
func payloadB(changes map[string]any) map[string]any {
	payload := map[string]any{
		"transactionId": transactionID, "originalTransactionId": transactionID, "bundleId": "com.cutroom.app",
		"productId": product, "purchaseDate": start.UnixMilli(), "signedDate": start.UnixMilli(), "quantity": 1,
		"type": "Consumable", "inAppOwnershipType": "PURCHASED", "environment": "Production", "appAccountToken": account,
	}
	maps.Copy(payload, changes)
	for name, value := range payload {
		if value == nil {
			delete(payload, name)
		}
	}
	return payload
}

func rootPEM(c chain) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.root.certificate.Raw})
}

// newPlatformB returns a verifier, which also trusts the chain of the tests, and a store that knows a valid
// transaction.
func newPlatformB(t *testing.T, change func(*receipt.PlatformBConfig)) (*receipt.PlatformB, *store.PlatformB) {
	t.Helper()
	s := store.NewPlatformB("com.cutroom.app")
	client := listen(t, s.Host)
	s.Register(store.TransactionB{TransactionID: transactionID, ProductID: product, AccountToken: account, Environment: "Production"})
	cfg := receipt.PlatformBConfig{BaseURL: s.URL(), IssuerID: s.IssuerID(), KeyID: s.KeyID(), PrivateKeyPEM: []byte(s.PrivateKeyPEM()),
		BundleID: "com.cutroom.app", ExtraRootsPEM: slices.Concat([]byte(s.RootPEM()), rootPEM(trusted())), HTTP: client,
		Now: calltest.NewClock(start).Now}
	if change != nil {
		change(&cfg)
	}
	p, err := receipt.NewPlatformB(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p, s
}

// answerSigned makes the store answer with a text in place of a signed transaction.
func answerSigned(t *testing.T, s *store.PlatformB, signed string) {
	t.Helper()
	fail(t, s.Host, store.StepTransaction, answering(string(must(json.Marshal(map[string]string{"signedTransactionInfo": signed})))))
}

func TestPlatformBJudgesTheTransaction(t *testing.T) {
	for name, test := range map[string]struct {
		changes map[string]any
		sandbox bool
		want    receipt.Reason
		sold    receipt.Sale
	}{
		"purchased":             {nil, false, "", one},
		"account in capitals":   {map[string]any{"appAccountToken": strings.ToUpper(account)}, false, "", one},
		"no account named":      {map[string]any{"appAccountToken": nil}, false, "", one},
		"account null":          {map[string]any{"appAccountToken": json.RawMessage("null")}, false, "", one},
		"revocation null":       {map[string]any{"revocationDate": json.RawMessage("null")}, false, "", one},
		"four bought":           {map[string]any{"quantity": 4}, false, "", receipt.Sale{Quantity: 4}},
		"none stated":           {map[string]any{"quantity": nil}, false, "", one},
		"none bought":           {map[string]any{"quantity": 0}, false, receipt.Unverified, none},
		"quantity as text":      {map[string]any{"quantity": "1"}, false, receipt.Unverified, none},
		"sandbox in sandbox":    {map[string]any{"environment": "Sandbox"}, true, "", one},
		"sandbox in production": {map[string]any{"environment": "Sandbox"}, false, receipt.Mismatch, none},
		"production in sandbox": {nil, true, receipt.Mismatch, none},
		"other transaction":     {map[string]any{"transactionId": "2000000123456780"}, false, receipt.Mismatch, none},
		"original transaction":  {map[string]any{"transactionId": "1", "originalTransactionId": transactionID}, false, receipt.Mismatch, none},
		"transaction as number": {map[string]any{"transactionId": 2000000123456789}, false, receipt.Unverified, none},
		"other bundle":          {map[string]any{"bundleId": "com.somebody.else"}, false, receipt.Mismatch, none},
		"other product":         {map[string]any{"productId": "credits.10"}, false, receipt.Mismatch, none},
		"family sharing":        {map[string]any{"inAppOwnershipType": "FAMILY_SHARED"}, false, receipt.OtherAccount, none},
		"no ownership":          {map[string]any{"inAppOwnershipType": nil}, false, receipt.Unverified, none},
		"revoked":               {map[string]any{"revocationDate": start.UnixMilli(), "revocationReason": 0}, false, receipt.Revoked, none},
		"revoked at the epoch":  {map[string]any{"revocationDate": 0}, false, receipt.Revoked, none},
		"a third refunded": {map[string]any{"revocationDate": start.UnixMilli(), "revocationPercentage": 33333, "quantity": 3}, false, "",
			receipt.Sale{Quantity: 3, Refunded: receipt.Share{Part: 33333, Of: 100000}}},
		"all refunded, as a share": {map[string]any{"revocationDate": start.UnixMilli(), "revocationPercentage": 100000}, false, receipt.Revoked, none},
		"share without a refund":   {map[string]any{"revocationPercentage": 33333}, false, "", one},
		"another account":          {map[string]any{"appAccountToken": "00000000-0000-4000-8000-000000000000"}, false, receipt.OtherAccount, none},
		"account that is no UUID":  {map[string]any{"appAccountToken": "somebody"}, false, receipt.OtherAccount, none},
		"account of a wrong kind":  {map[string]any{"appAccountToken": 7}, false, receipt.Unverified, none},
	} {
		t.Run(name, func(t *testing.T) {
			p, s := newPlatformB(t, func(cfg *receipt.PlatformBConfig) { cfg.Sandbox = test.sandbox })
			if test.changes != nil || test.sandbox { // else as the store itself signs it
				answerSigned(t, s, trusted().sign(payloadB(test.changes)))
			}
			sold, err := p.Verify(t.Context(), goodB())
			judged(t, sold, err, test.sold, test.want)
		})
	}
}

// The store's review and TestFlight buy in the sandbox with the released app. The production address does not know such
// a transaction, and answers 401 until the app is released.
func TestPlatformBAsksTheSandboxAboutTests(t *testing.T) {
	denied := func(status, code int) *fake.Rule {
		r := fake.Rule{Step: store.StepTransaction, Kind: fake.KindStatus, Status: status, Body: fmt.Sprintf(`{"errorCode":%d}`, code)}
		return &r
	}
	unknown, refused := denied(404, 4040010), denied(401, 0)
	inSandbox := map[string]any{"environment": "Sandbox"}
	test := receipt.Sale{Quantity: 1, Test: true}
	for name, c := range map[string]struct {
		production, sandbox *fake.Rule     // nil: knows the transaction
		changes             map[string]any // of the transaction in the sandbox
		off                 bool
		sold                receipt.Sale
		want                error
		reason              receipt.Reason
		asked               int // calls of the sandbox
	}{
		"known in production":           {sandbox: unknown, sold: one},
		"known in the sandbox":          {production: unknown, changes: inSandbox, sold: test, asked: 1},
		"app not released":              {production: refused, changes: inSandbox, sold: test, asked: 1},
		"off":                           {production: unknown, changes: inSandbox, off: true, want: receipt.ErrInvalid, reason: receipt.Unverified},
		"off, and refused":              {production: refused, changes: inSandbox, off: true, want: receipt.ErrUnavailable},
		"another environment":           {production: unknown, asked: 1, want: receipt.ErrInvalid, reason: receipt.Mismatch},
		"environment of a tool":         {production: refused, changes: map[string]any{"environment": "Xcode"}, asked: 1, want: receipt.ErrInvalid, reason: receipt.Mismatch},
		"unknown at both":               {production: unknown, sandbox: unknown, asked: 1, want: receipt.ErrInvalid, reason: receipt.Unverified},
		"refused at both":               {production: refused, sandbox: refused, asked: 1, want: receipt.ErrUnavailable},
		"refused, unknown":              {production: refused, sandbox: unknown, asked: 1, want: receipt.ErrUnavailable},
		"unknown, refused":              {production: unknown, sandbox: refused, asked: 1, want: receipt.ErrUnavailable},
		"unknown, down":                 {production: unknown, sandbox: denied(503, 0), asked: 1, want: receipt.ErrUnavailable},
		"403 is not asked further":      {production: denied(403, 0), changes: inSandbox, want: receipt.ErrUnavailable},
		"another 404":                   {production: denied(404, 4040005), changes: inSandbox, want: receipt.ErrInvalid, reason: receipt.Unverified},
		"the code with another status":  {production: denied(400, 4040010), changes: inSandbox, want: receipt.ErrInvalid, reason: receipt.Unverified},
		"retryable, account":            {production: denied(404, 4040002), changes: inSandbox, want: receipt.ErrUnavailable},
		"retryable, app":                {production: denied(404, 4040004), changes: inSandbox, want: receipt.ErrUnavailable},
		"retryable, transaction":        {production: denied(404, 4040006), changes: inSandbox, want: receipt.ErrUnavailable},
		"revoked in the sandbox":        {production: unknown, changes: map[string]any{"environment": "Sandbox", "revocationDate": 1}, asked: 1, want: receipt.ErrInvalid, reason: receipt.Revoked},
		"another's app, in the sandbox": {production: unknown, changes: map[string]any{"environment": "Sandbox", "bundleId": "com.else"}, asked: 1, want: receipt.ErrInvalid, reason: receipt.Mismatch},
	} {
		t.Run(name, func(t *testing.T) {
			tests := store.NewPlatformB("com.cutroom.app")
			listen(t, tests.Host)
			p, s := newPlatformB(t, func(cfg *receipt.PlatformBConfig) {
				if !c.off {
					cfg.SandboxURL = tests.URL()
				}
			})
			answerSigned(t, tests, trusted().sign(payloadB(c.changes)))
			for host, rule := range map[*fake.Host]*fake.Rule{s.Host: c.production, tests.Host: c.sandbox} {
				if rule != nil {
					fail(t, host, rule.Step, *rule)
				}
			}
			sold, err := p.Verify(t.Context(), goodB())
			if wantOnly(t, err, c.want); sold != c.sold || errors.Is(err, receipt.ErrInvalid) && receipt.ReasonOf(err) != c.reason {
				t.Errorf("sold %+v, %v; want %+v, %s", sold, err, c.sold, c.reason)
			}
			if n := tests.Faults.Count(store.StepTransaction); n != c.asked {
				t.Errorf("%d calls of the sandbox, want %d", n, c.asked)
			}
		})
	}
}

func TestPlatformBRefusesForgedChains(t *testing.T) {
	good, forged := trusted(), newChain()
	payload := payloadB(nil)
	es256, leafKey := jwt.SigningMethodES256, good.leaf.key
	with := func(entries ...string) string {
		return signJWS(es256, leafKey, map[string]any{"x5c": entries}, payload)
	}
	// leafOf and under build chains that are valid except for one thing.
	leafOf := func(parent *authority, marker asn1.ObjectIdentifier, change func(*x509.Certificate)) string {
		leaf := issue(parent, newECKey(p256), "Leaf", false, marker, change)
		return signJWS(es256, leaf.key, map[string]any{"x5c": x5c(leaf, parent, good.root)}, payload)
	}
	under := func(marker asn1.ObjectIdentifier, isCA bool, change func(*x509.Certificate)) string {
		return leafOf(issue(good.root, newECKey(elliptic.P384()), "Intermediate", isCA, marker, change), leafMarker, nil)
	}
	expired := func(c *x509.Certificate) {
		c.NotBefore, c.NotAfter = start.Add(-48*time.Hour), start.Add(-time.Second)
	}
	early := func(c *x509.Certificate) { c.NotBefore = start.Add(time.Second) }
	// A root with the same name but another key, in place of the real one.
	namesake := issue(nil, newECKey(elliptic.P384()), "Root", true, nil, nil)
	rsaKey := must(rsa.GenerateKey(rand.Reader, 2048))
	rsaLeaf := issue(good.intermediate, rsaKey, "Leaf", false, leafMarker, nil)
	bigLeaf := issue(good.intermediate, newECKey(elliptic.P384()), "Leaf", false, leafMarker, nil)
	direct := issue(good.root, newECKey(p256), "Leaf", false, leafMarker, nil)

	for name, signed := range map[string]string{
		"another root":                    forged.sign(payload),
		"another leaf under our issuers":  signJWS(es256, forged.leaf.key, map[string]any{"x5c": x5c(forged.leaf, good.intermediate, good.root)}, payload),
		"our chain, another key":          signJWS(es256, forged.leaf.key, map[string]any{"x5c": good.x5c()}, payload),
		"root of the same name":           with(x5c(good.leaf, good.intermediate, namesake)...),
		"root itself under the namesake":  forgedUnder(namesake, payload),
		"leaf without marker":             leafOf(good.intermediate, nil, nil),
		"intermediate without marker":     under(nil, true, nil),
		"intermediate is no authority":    under(intermediateMarker, false, nil),
		"leaf expired":                    leafOf(good.intermediate, leafMarker, expired),
		"leaf expired, dated back":        expiredAndDatedBack(good, expired),
		"leaf not yet valid":              leafOf(good.intermediate, leafMarker, early),
		"intermediate expired":            under(intermediateMarker, true, expired),
		"leaf not for signatures":         leafOf(good.intermediate, leafMarker, func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageKeyAgreement }),
		"intermediate and leaf swapped":   with(x5c(good.intermediate, good.leaf, good.root)...),
		"root first":                      with(x5c(good.root, good.intermediate, good.leaf)...),
		"leaf right under the root":       signJWS(es256, direct.key, map[string]any{"x5c": x5c(direct, good.intermediate, good.root)}, payload),
		"without root":                    with(x5c(good.leaf, good.intermediate)...),
		"with a fourth":                   with(append(good.x5c(), x5c(good.root)...)...),
		"no chain":                        with(),
		"chain of something else":         with("AAAA", "AAAA", "AAAA"),
		"trailing bytes in a certificate": with(slices.Concat([]string{base64.StdEncoding.EncodeToString(append(slices.Clone(good.leaf.certificate.Raw), 0))}, good.x5c()[1:])...),
		"RSA leaf called ES256":           signJWS(jwt.SigningMethodRS256, rsaKey, map[string]any{"alg": "ES256", "x5c": x5c(rsaLeaf, good.intermediate, good.root)}, payload),
		"P-384 leaf called ES256":         signJWS(jwt.SigningMethodES384, bigLeaf.key, map[string]any{"alg": "ES256", "x5c": x5c(bigLeaf, good.intermediate, good.root)}, payload),
		"P-224 leaf called ES256":         signedBySmallLeaf(good, payload),
	} {
		t.Run(name, func(t *testing.T) {
			p, s := newPlatformB(t, nil)
			answerSigned(t, s, signed)
			wantOnly(t, verdict(p.Verify(t.Context(), goodB())), receipt.ErrInvalid)
		})
	}
}

// Anybody may send a chain, and verifying with a huge key takes minutes. No key may be used before the root has signed
// it.
func TestPlatformBUsesNoStrangersKey(t *testing.T) {
	good, forged := trusted(), newChain()
	signed := signJWS(jwt.SigningMethodES256, forged.leaf.key, map[string]any{"x5c": x5c(forged.leaf, forged.intermediate, good.root)}, payloadB(nil))
	p, _ := newPlatformB(t, nil)
	_, err := p.Notification(t.Context(), "", must(json.Marshal(map[string]string{"signedPayload": signed})))
	if !errors.Is(err, receipt.ErrForged) || !strings.Contains(err.Error(), "intermediate: ") {
		t.Errorf("it is the intermediate that nobody vouches for, but: %v", err)
	}
}

// signedBySmallLeaf has a mathematically correct signature of ES256's length by a leaf on a smaller curve.
func signedBySmallLeaf(good chain, payload map[string]any) string {
	key := newECKey(elliptic.P224())
	leaf := issue(good.intermediate, key, "Leaf", false, leafMarker, nil)
	head := must(json.Marshal(map[string]any{"alg": "ES256", "x5c": x5c(leaf, good.intermediate, good.root)}))
	encode := base64.RawURLEncoding.EncodeToString
	input := encode(head) + "." + encode(must(json.Marshal(payload)))
	digest := sha256.Sum256([]byte(input))
	r, s, err := ecdsa.Sign(rand.Reader, key, digest[:])
	if err != nil {
		panic(err)
	}
	return input + "." + encode(append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...))
}

// forgedUnder signs with a whole chain under a root that only has the name of the trusted root.
func forgedUnder(root *authority, payload map[string]any) string {
	intermediate := issue(root, newECKey(elliptic.P384()), "Intermediate", true, intermediateMarker, nil)
	leaf := issue(intermediate, newECKey(p256), "Leaf", false, leafMarker, nil)
	return chain{root, intermediate, leaf}.sign(payload)
}

// expiredAndDatedBack claims that it was signed while the leaf was valid.
func expiredAndDatedBack(good chain, expired func(*x509.Certificate)) string {
	leaf := issue(good.intermediate, newECKey(p256), "Leaf", false, leafMarker, expired)
	payload := payloadB(map[string]any{"signedDate": start.Add(-time.Hour).UnixMilli()})
	return signJWS(jwt.SigningMethodES256, leaf.key, map[string]any{"x5c": x5c(leaf, good.intermediate, good.root)}, payload)
}

func TestPlatformBRefusesForgedSignatures(t *testing.T) {
	good := trusted()
	payload := payloadB(nil)
	header := map[string]any{"x5c": good.x5c()}
	parts := strings.Split(good.sign(payload), ".")
	unsigned := func(algorithm string) string {
		head := must(json.Marshal(map[string]any{"alg": algorithm, "x5c": good.x5c()}))
		return base64.RawURLEncoding.EncodeToString(head) + "." + parts[1] + "."
	}
	other := base64.RawURLEncoding.EncodeToString(must(json.Marshal(payloadB(map[string]any{"productId": "credits.150"}))))
	public := must(x509.MarshalPKIXPublicKey(good.leaf.key.Public()))

	for name, signed := range map[string]string{
		"no algorithm":        unsigned("none"),
		"unsigned ES256":      unsigned("ES256"),
		"HMAC with leaf key":  signJWS(jwt.SigningMethodHS256, public, header, payload),
		"zero signature":      parts[0] + "." + parts[1] + "." + base64.RawURLEncoding.EncodeToString(make([]byte, 64)),
		"other payload":       parts[0] + "." + other + "." + parts[2],
		"demanded extension":  signJWS(jwt.SigningMethodES256, good.leaf.key, map[string]any{"x5c": good.x5c(), "crit": []string{"b64"}}, payload),
		"padding":             strings.Join(parts, ".") + "=",
		"line break":          parts[0] + "." + parts[1] + "." + parts[2][:10] + "\n" + parts[2][10:],
		"header is no object": base64.RawURLEncoding.EncodeToString([]byte("[]")) + "." + parts[1] + "." + parts[2],
		"text":                "text",
	} {
		t.Run(name, func(t *testing.T) {
			p, s := newPlatformB(t, nil)
			answerSigned(t, s, signed)
			wantOnly(t, verdict(p.Verify(t.Context(), goodB())), receipt.ErrInvalid)
		})
	}
}

func TestPlatformBRefusesASignedTextThatIsNoTransaction(t *testing.T) {
	good := trusted()
	p, s := newPlatformB(t, nil)
	head := base64.RawURLEncoding.EncodeToString(must(json.Marshal(map[string]any{"alg": "ES256", "x5c": good.x5c()})))
	for _, payload := range []string{"", "null", "[]", "text", "{}"} {
		input := head + "." + base64.RawURLEncoding.EncodeToString([]byte(payload))
		signature := must(jwt.SigningMethodES256.Sign(input, good.leaf.key))
		answerSigned(t, s, input+"."+base64.RawURLEncoding.EncodeToString(signature))
		wantOnly(t, verdict(p.Verify(t.Context(), goodB())), receipt.ErrInvalid)
	}
}

// Without extra roots only the store's own root is trusted, whatever a header says.
func TestPlatformBTrustsExtraRootsOnlyWhenSet(t *testing.T) {
	for _, none := range [][]byte{nil, []byte(" \n")} {
		p, s := newPlatformB(t, func(cfg *receipt.PlatformBConfig) { cfg.ExtraRootsPEM = none })
		answerSigned(t, s, trusted().sign(payloadB(nil)))
		wantOnly(t, verdict(p.Verify(t.Context(), goodB())), receipt.ErrInvalid)
	}
	second := newChain()
	p, s := newPlatformB(t, func(cfg *receipt.PlatformBConfig) {
		cfg.ExtraRootsPEM = slices.Concat(rootPEM(second), rootPEM(trusted()))
	})
	for _, c := range []chain{trusted(), second} {
		answerSigned(t, s, c.sign(payloadB(nil)))
		if err := verdict(p.Verify(t.Context(), goodB())); err != nil {
			t.Error(err)
		}
	}
}

func TestPlatformBClassifiesFailures(t *testing.T) {
	t.Parallel()
	for name, failure := range failures {
		t.Run(name, func(t *testing.T) {
			p, s := newPlatformB(t, func(cfg *receipt.PlatformBConfig) { cfg.HTTP.Timeout = failure.timeout })
			fail(t, s.Host, store.StepTransaction, failure.rule)
			wantOnly(t, verdict(p.Verify(t.Context(), goodB())), failure.want, "Bearer", fake.LeakMarker)
			if got := s.Faults.Count(fake.AnyStep); got != 1 {
				t.Errorf("%d calls, want 1", got)
			}
			s.Faults.Clear()
		})
	}
}

func TestPlatformBRefusesIDsThatNameNothing(t *testing.T) {
	p, s := newPlatformB(t, nil)
	for _, id := range []string{"", ".", "..", strings.Repeat("1", 4<<10+1)} {
		in := goodB()
		in.TransactionID = id
		wantOnly(t, verdict(p.Verify(t.Context(), in)), receipt.ErrInvalid)
	}
	if s.Faults.Count(fake.AnyStep) != 0 {
		t.Error("the store was asked")
	}
}

func TestPlatformBNeedsAProductID(t *testing.T) {
	p, s := newPlatformB(t, nil)
	answerSigned(t, s, trusted().sign(payloadB(map[string]any{"productId": ""})))
	in := goodB()
	in.ProductID = ""
	wantOnly(t, verdict(p.Verify(t.Context(), in)), receipt.ErrInvalid)
}

func TestPlatformBEscapesTheTransactionID(t *testing.T) {
	address, client := calltest.Serve(t, func(w http.ResponseWriter, r *http.Request) {
		if got := r.URL.EscapedPath(); got != "/inApps/v1/transactions/..%2Flookup%2F1%3Fx=%252F" {
			t.Errorf("path %s", got)
		}
		w.WriteHeader(http.StatusNotFound)
	})
	p, _ := newPlatformB(t, func(cfg *receipt.PlatformBConfig) { cfg.BaseURL, cfg.HTTP = address, client })
	in := goodB()
	in.TransactionID = "../lookup/1?x=%2F"
	wantOnly(t, verdict(p.Verify(t.Context(), in)), receipt.ErrInvalid)
}
