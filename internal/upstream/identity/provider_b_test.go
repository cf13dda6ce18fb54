// Sign-in with provider_b: claims, forged signatures, key rotation, and how long a key set outlives an outage.

package identity_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"math/big"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"cutroom/internal/base/httpcall/calltest"
	"cutroom/internal/upstream/identity"
)

const issuerB = "https://issuer.example"

// rsaKeys are made once: a 2048-bit key takes a noticeable while.
var rsaKeys = sync.OnceValue(func() (keys [3]*rsa.PrivateKey) {
	for i := range keys {
		key, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			panic(err)
		}
		keys[i] = key
	}
	return keys
})

func b64(data []byte) string { return base64.RawURLEncoding.EncodeToString(data) }

// publicEntry is a key set entry as provider_b publishes it.
func publicEntry(kid string, key *rsa.PublicKey) map[string]any {
	return map[string]any{
		"kty": "RSA", "kid": kid, "use": "sig", "alg": "RS256",
		"n": b64(key.N.Bytes()), "e": b64(big.NewInt(int64(key.E)).Bytes()),
	}
}

// providerBServer publishes a key set that the test changes.
type providerBServer struct {
	entries       atomic.Pointer[[]any]
	status, calls atomic.Int64
}

func (s *providerBServer) publish(entries ...any) {
	s.entries.Store(&entries)
	s.status.Store(http.StatusOK)
}

func (s *providerBServer) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	s.calls.Add(1)
	w.WriteHeader(int(s.status.Load()))
	_ = json.NewEncoder(w).Encode(map[string]any{"keys": *s.entries.Load()})
}

// newProviderB returns a verifier over a server that publishes key 0 as "k0".
func newProviderB(t *testing.T) (*identity.ProviderB, *providerBServer, *calltest.Clock) {
	t.Helper()
	server := &providerBServer{}
	server.publish(publicEntry("k0", &rsaKeys()[0].PublicKey))
	p, at := providerB(t, server.ServeHTTP)
	return p, server, at
}

// providerB returns a verifier over a server that answers a request for the keys.
func providerB(t *testing.T, keys http.HandlerFunc) (*identity.ProviderB, *calltest.Clock) {
	t.Helper()
	address, client := calltest.Serve(t, keys)
	at := calltest.NewClock(start)
	return identity.NewProviderB(identity.ProviderBConfig{
		KeysURL: address, Issuer: issuerB, ClientIDs: []string{clientID}, HTTP: client, Now: at.Now}), at
}

// claimsB are good claims with changes applied; a nil change removes a claim.
func claimsB(at time.Time, changes map[string]any) jwt.MapClaims {
	claims := jwt.MapClaims{
		"iss": issuerB, "aud": clientID, "sub": "000123.abc", "email": "ada@example.org",
		"email_verified": "true", "iat": at.Unix(), "exp": at.Unix() + 600,
	}
	maps.Copy(claims, changes)
	for name, value := range claims {
		if value == nil {
			delete(claims, name)
		}
	}
	return claims
}

// sign makes a token; header changes are applied before signing.
func sign(t *testing.T, method jwt.SigningMethod, key any, header map[string]any, claims jwt.Claims) string {
	t.Helper()
	token := jwt.NewWithClaims(method, claims)
	maps.Copy(token.Header, header)
	text, err := token.SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func signRS(t *testing.T, kid string, key *rsa.PrivateKey, at time.Time) string {
	t.Helper()
	return sign(t, jwt.SigningMethodRS256, key, map[string]any{"kid": kid}, claimsB(at, nil))
}

func TestProviderBAcceptsAGoodToken(t *testing.T) {
	p, server, at := newProviderB(t)
	for range 3 {
		got, err := p.Verify(t.Context(), signRS(t, "k0", rsaKeys()[0], at.Now()))
		if err != nil {
			t.Fatal(err)
		}
		if want := (identity.Claims{Subject: "000123.abc", Email: "ada@example.org"}); got != want {
			t.Errorf("claims = %+v, want %+v", got, want)
		}
	}
	if server.calls.Load() != 1 {
		t.Errorf("%d fetches of the key set, want 1", server.calls.Load())
	}
}

func TestProviderBJudgesTheClaims(t *testing.T) {
	now := start.Unix()
	rejected := identity.ErrRejected
	for name, test := range map[string]struct {
		changes map[string]any
		want    error
	}{
		"audience as list of ours": {map[string]any{"aud": []string{clientID}}, nil},
		"other issuer":             {map[string]any{"iss": issuerB + "/"}, rejected},
		"fractional expiry":        {map[string]any{"exp": float64(now) + 10.5}, nil},
		"no issue time":            {map[string]any{"iat": nil}, nil},
		"issued within the leeway": {map[string]any{"iat": now + 60}, nil},
		"issued in the future":     {map[string]any{"iat": now + 61}, rejected},
		"begins within the leeway": {map[string]any{"nbf": now + 60}, nil},
		"begins in the future":     {map[string]any{"nbf": now + 61}, rejected},
		"unreadable start":         {map[string]any{"nbf": "soon"}, rejected},

		"no address":                 {map[string]any{"email": nil, "email_verified": nil}, nil},
		"null address":               {map[string]any{"email": json.RawMessage("null"), "email_verified": nil}, nil},
		"empty address":              {map[string]any{"email": "", "email_verified": "false"}, nil},
		"no address, but verified":   {map[string]any{"email": nil}, nil},
		"unreadable address":         {map[string]any{"email": 7, "email_verified": nil}, rejected},
		"address not verified":       {map[string]any{"email_verified": false}, rejected},
		"no address and no subject":  {map[string]any{"email": nil, "email_verified": nil, "sub": nil}, rejected},
		"no address, other audience": {map[string]any{"email": nil, "email_verified": nil, "aud": "somebody.else"}, rejected},
	} {
		t.Run(name, func(t *testing.T) { judgeB(t, test.changes, test.want) })
	}
}

func TestProviderBRefusesForgedSignatures(t *testing.T) {
	p, _, at := newProviderB(t)
	good := signRS(t, "k0", rsaKeys()[0], at.Now())
	parts := strings.Split(good, ".")
	claims := claimsB(at.Now(), nil)
	kid := map[string]any{"kid": "k0"}

	der, err := x509.MarshalPKIXPublicKey(&rsaKeys()[0].PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	publicPEM := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	ecKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	other, err := json.Marshal(claimsB(at.Now(), map[string]any{"sub": "somebody-else"}))
	if err != nil {
		t.Fatal(err)
	}

	for name, token := range map[string]string{
		"no algorithm":             sign(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, kid, claims),
		"HMAC with the public PEM": sign(t, jwt.SigningMethodHS256, publicPEM, kid, claims),
		"PS256":                    sign(t, jwt.SigningMethodPS256, rsaKeys()[0], kid, claims),
		"ES256":                    sign(t, jwt.SigningMethodES256, ecKey, kid, claims),
		"another key":              sign(t, jwt.SigningMethodRS256, rsaKeys()[1], kid, claims),
		"other claims":             parts[0] + "." + b64(other) + "." + parts[2],
		"signature removed":        parts[0] + "." + parts[1] + ".",
		"padding":                  good + "=",
		"four parts":               good + "." + parts[2],
		"text":                     "not a token at all",
		"no key id":                sign(t, jwt.SigningMethodRS256, rsaKeys()[0], nil, claims),
		"key id of a wrong kind":   sign(t, jwt.SigningMethodRS256, rsaKeys()[0], map[string]any{"kid": 1}, claims),
		"unknown key id":           sign(t, jwt.SigningMethodRS256, rsaKeys()[0], map[string]any{"kid": "k9"}, claims),
		"own key in the header": sign(t, jwt.SigningMethodRS256, rsaKeys()[1],
			map[string]any{"kid": "k0", "jwk": publicEntry("k0", &rsaKeys()[1].PublicKey)}, claims),
		"demanded extension": sign(t, jwt.SigningMethodRS256, rsaKeys()[0],
			map[string]any{"kid": "k0", "crit": []string{"b64"}, "b64": false}, claims),
		"null claims": sign(t, jwt.SigningMethodRS256, rsaKeys()[0], kid, jwt.MapClaims(nil)),
		"too long": sign(t, jwt.SigningMethodRS256, rsaKeys()[0], kid,
			claimsB(at.Now(), map[string]any{"name": strings.Repeat("x", 16<<10)})),
		"empty": "",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := p.Verify(t.Context(), token)
			wantOnly(t, err, identity.ErrRejected, token)
		})
	}
	if _, err := p.Verify(t.Context(), good); err != nil {
		t.Errorf("the genuine token: %v", err)
	}
}

func TestProviderBIgnoresUnusableKeys(t *testing.T) {
	good := &rsaKeys()[0].PublicKey
	with := func(name string, value any) map[string]any {
		entry := publicEntry("k0", good)
		entry[name] = value
		if value == nil {
			delete(entry, name)
		}
		return entry
	}
	for name, test := range map[string]struct {
		entry  any
		usable bool
	}{
		"as published":        {with("kty", "RSA"), true},
		"without use":         {with("use", nil), true},
		"without algorithm":   {with("alg", nil), true},
		"other type":          {with("kty", "EC"), false},
		"for encryption":      {with("use", "enc"), false},
		"other algorithm":     {with("alg", "RS512"), false},
		"without id":          {with("kid", nil), false},
		"short modulus":       {with("n", b64(new(big.Int).Rsh(good.N, 1).Bytes())), false},
		"huge modulus":        {with("n", b64(append([]byte{1}, make([]byte, 1025)...))), false},
		"even modulus":        {with("n", b64(new(big.Int).Xor(good.N, big.NewInt(1)).Bytes())), false},
		"exponent one":        {with("e", "AQ"), false},
		"even exponent":       {with("e", "BA"), false},
		"huge exponent":       {with("e", b64([]byte{1, 0, 0, 0, 1})), false},
		"members of any kind": {map[string]any{"kty": 1, "kid": []int{2}}, false},
		"not an object":       {"k0", false},
	} {
		t.Run(name, func(t *testing.T) {
			p, server, at := newProviderB(t)
			// The second entry proves that a bad entry does not affect the others.
			server.publish(test.entry, publicEntry("k1", &rsaKeys()[1].PublicKey))
			_, err := p.Verify(t.Context(), signRS(t, "k0", rsaKeys()[0], at.Now()))
			if test.usable && err != nil {
				t.Errorf("usable key refused: %v", err)
			}
			if !test.usable {
				wantOnly(t, err, identity.ErrRejected, "")
			}
			if _, err := p.Verify(t.Context(), signRS(t, "k1", rsaKeys()[1], at.Now())); err != nil {
				t.Errorf("its neighbour: %v", err)
			}
		})
	}
}

func TestProviderBForgedKeyIDsDelayARotationByAMinuteAtMost(t *testing.T) {
	p, server, at := newProviderB(t)
	if _, err := p.Verify(t.Context(), signRS(t, "k0", rsaKeys()[0], at.Now())); err != nil {
		t.Fatal(err)
	}
	forge := func(n int) {
		t.Helper()
		for i := range n {
			_, err := p.Verify(t.Context(), signRS(t, fmt.Sprintf("forged-%d", i), rsaKeys()[2], at.Now()))
			wantOnly(t, err, identity.ErrRejected, "")
		}
	}
	forge(20) // the first of them causes a refetch at once
	if server.calls.Load() != 2 {
		t.Fatalf("%d fetches after a burst, want the first load and one refetch", server.calls.Load())
	}
	server.publish(publicEntry("k1", &rsaKeys()[1].PublicKey))
	// The forgeries continue for the whole minute and must not postpone its end.
	for range 59 {
		at.Advance(time.Second)
		forge(1)
	}
	if server.calls.Load() != 2 {
		t.Errorf("%d fetches within the minute, want 2", server.calls.Load())
	}
	at.Advance(time.Second)
	if _, err := p.Verify(t.Context(), signRS(t, "k1", rsaKeys()[1], at.Now())); err != nil {
		t.Errorf("the rotated key after a minute: %v", err)
	}
	if server.calls.Load() != 3 {
		t.Errorf("%d fetches, want 3", server.calls.Load())
	}
}

func TestProviderBSetLivesADayAndOutlivesAnOutage(t *testing.T) {
	p, server, at := newProviderB(t)
	unavailable, rejected := identity.ErrUnavailable, identity.ErrRejected
	for i, step := range []struct {
		wait    time.Duration
		publish func() // what the provider answers from now on; nil changes nothing
		key     int
		want    error
		fetches int64
	}{
		{0, nil, 0, nil, 1},
		{24*time.Hour - time.Second, nil, 0, nil, 1},
		// Old, and the provider is unreachable: the last good set serves, with one request a minute.
		{time.Second, func() { server.status.Store(http.StatusInternalServerError) }, 0, nil, 2},
		{0, nil, 0, nil, 2},
		{0, nil, 1, unavailable, 2}, // a key that may be new can be neither accepted nor rejected
		{time.Minute, nil, 0, nil, 3},
		// A set without a usable key is a failure too, not an empty set.
		{time.Minute, func() { server.publish() }, 0, nil, 4},
		{time.Minute, func() { server.publish(publicEntry("k1", &rsaKeys()[1].PublicKey)) }, 1, nil, 5},
		{0, nil, 0, rejected, 5},
	} {
		at.Advance(step.wait)
		if step.publish != nil {
			step.publish()
		}
		_, err := p.Verify(t.Context(), signRS(t, fmt.Sprint("k", step.key), rsaKeys()[step.key], at.Now()))
		wantOnly(t, err, step.want, "")
		if got := server.calls.Load(); got != step.fetches {
			t.Errorf("step %d: %d fetches, want %d", i, got, step.fetches)
		}
	}
}

// Not every server of the provider lists every key, so a key that is missing from the newest set still counts, until 24
// hours after it was last seen.
func TestProviderBKeyCountsForADay(t *testing.T) {
	p, server, at := newProviderB(t)
	k := func(n int) map[string]any { return publicEntry(fmt.Sprint("k", n), &rsaKeys()[n].PublicKey) }
	for i, step := range []struct {
		wait    time.Duration
		publish []any // the set from now on; nil changes nothing
		key     int
		want    error
		fetches int64
	}{
		{0, nil, 0, nil, 1},
		{time.Minute, []any{k(1)}, 1, nil, 2},
		{0, nil, 0, nil, 2},
		{23 * time.Hour, nil, 0, nil, 2},
		{58 * time.Minute, []any{k(2)}, 2, nil, 3},
		{time.Minute - time.Second, nil, 0, nil, 3},
		{time.Second, nil, 0, identity.ErrRejected, 4}, // k0 was last seen a day ago, k1 a minute later
		{time.Minute - time.Second, nil, 1, nil, 4},
		{time.Second, nil, 1, identity.ErrRejected, 5},
		{0, nil, 2, nil, 5},
	} {
		at.Advance(step.wait)
		if step.publish != nil {
			server.publish(step.publish...)
		}
		_, err := p.Verify(t.Context(), signRS(t, fmt.Sprint("k", step.key), rsaKeys()[step.key], at.Now()))
		wantOnly(t, err, step.want, "")
		if got := server.calls.Load(); got != step.fetches {
			t.Errorf("step %d: %d fetches, want %d", i, got, step.fetches)
		}
	}
}

func TestProviderBWithoutAnySet(t *testing.T) {
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	var broken http.HandlerFunc
	p, at := providerB(t, func(w http.ResponseWriter, r *http.Request) { broken(w, r) })
	token := signRS(t, "k0", rsaKeys()[0], at.Now())
	for _, broken = range []http.HandlerFunc{status(500), status(404), status(302),
		func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") },
		func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 1<<20+1)) },
		func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, `{"keys":[`)
		},
	} {
		_, err := p.Verify(t.Context(), token)
		wantOnly(t, err, identity.ErrUnavailable, token)
	}
	// A token that can be rejected without a key is still rejected.
	_, err := p.Verify(t.Context(), sign(t, jwt.SigningMethodHS256, []byte("secret"), map[string]any{"kid": "k0"}, claimsB(at.Now(), nil)))
	wantOnly(t, err, identity.ErrRejected, "")
	// Verification works again as soon as the provider does.
	server := &providerBServer{}
	server.publish(publicEntry("k0", &rsaKeys()[0].PublicKey))
	broken = server.ServeHTTP
	_, err = p.Verify(t.Context(), token)
	wantOnly(t, err, nil, "")
}

func TestProviderBConcurrentFetchesCollapse(t *testing.T) {
	fetches, gate := make(chan struct{}, 2), make(chan struct{})
	p, at := providerB(t, func(w http.ResponseWriter, _ *http.Request) {
		fetches <- struct{}{}
		<-gate
		_ = json.NewEncoder(w).Encode(map[string]any{"keys": []any{publicEntry("k0", &rsaKeys()[0].PublicKey)}})
	})
	token := signRS(t, "k0", rsaKeys()[0], at.Now())

	// One caller gives up during the fetch that it started. The others must still get their keys from that fetch.
	impatient, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	gaveUp := make(chan error, 1)
	go func() {
		_, err := p.Verify(impatient, token)
		gaveUp <- err
	}()
	<-fetches
	giveUp()
	wantOnly(t, <-gaveUp, identity.ErrUnavailable, token)

	const callers = 16
	var entered, ended sync.WaitGroup
	for range callers {
		entered.Add(1)
		ended.Go(func() {
			entered.Done()
			if _, err := p.Verify(t.Context(), token); err != nil {
				t.Error(err)
			}
		})
	}
	entered.Wait()
	close(gate)
	ended.Wait()
	if n := len(fetches); n != 0 {
		t.Errorf("%d more fetches", n)
	}
}
