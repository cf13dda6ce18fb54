package receipt_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"cutroom/internal/httpcall/calltest"
	"cutroom/internal/upstream/receipt"
)

const (
	purchaseToken = "abcdefghijklmnop.AO-J1Ox/with spaces%2F&more?x=y#z"
	orderID       = "GPA.3333-4444-5555-66666"
	accountEmail  = "verifier@project.example"
)

var accountKey = sync.OnceValue(func() *rsa.PrivateKey { return must(rsa.GenerateKey(rand.Reader, 2048)) })

func goodA() receipt.Purchase {
	return receipt.Purchase{TransactionID: orderID, ProductID: product, Receipt: purchaseToken, AccountID: account}
}

// recordA is a valid record of the store with changes applied; a nil change removes the
// member.
func recordA(changes map[string]any) string {
	record := map[string]any{
		"kind": "androidpublisher#productPurchase", "purchaseTimeMillis": "1772366400000",
		"purchaseState": 0, "consumptionState": 0, "acknowledgementState": 1,
		"orderId": orderID, "regionCode": "DE", "obfuscatedExternalAccountId": account,
	}
	maps.Copy(record, changes)
	for name, value := range record {
		if value == nil {
			delete(record, name)
		}
	}
	return string(must(json.Marshal(record)))
}

// storeA is a token endpoint and the purchases API in one server, behaving as the vendor
// does. The test may replace either handler.
type storeA struct {
	t *testing.T

	mu       sync.Mutex
	uri      string
	record   string
	life     string // seconds of a granted access token, as JSON
	refuse   int    // how many API calls to answer with 401
	grants   int    // access tokens given out
	lookups  int    // API calls that arrived
	tokenFn  http.HandlerFunc
	lookupFn http.HandlerFunc
}

func (s *storeA) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	handler := s.lookupFn
	if r.URL.Path == "/token" {
		if handler = s.tokenFn; r.URL.RawQuery != "" {
			handler = nil
		}
	}
	s.mu.Unlock()
	if handler != nil {
		handler(w, r)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.URL.Path == "/token" {
		s.grant(w, r)
		return
	}
	s.lookup(w, r)
}

// counts returns how many access tokens were given out and how many API calls
// arrived.
func (s *storeA) counts() (grants, lookups int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.grants, s.lookups
}

func (s *storeA) grant(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost || r.PostFormValue("grant_type") != "urn:ietf:params:oauth:grant-type:jwt-bearer" {
		s.t.Errorf("unexpected grant request %s %v", r.Method, r.PostForm)
	}
	var claims struct {
		jwt.RegisteredClaims
		Scope string `json:"scope"`
	}
	token, err := jwt.ParseWithClaims(r.PostFormValue("assertion"), &claims,
		func(*jwt.Token) (any, error) { return &accountKey().PublicKey, nil },
		jwt.WithValidMethods([]string{"RS256"}), jwt.WithAudience(s.uri), jwt.WithIssuer(accountEmail),
		jwt.WithExpirationRequired(), jwt.WithIssuedAt())
	if err != nil || token.Header["kid"] != "key-1" || claims.Scope != "https://www.googleapis.com/auth/androidpublisher" ||
		claims.ExpiresAt.Sub(claims.IssuedAt.Time) > time.Hour {
		s.t.Errorf("assertion: %v %+v", err, claims)
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	s.grants++
	_, _ = fmt.Fprintf(w, `{"access_token":"access-%d","expires_in":%s,"token_type":"Bearer"}`, s.grants, s.life)
}

func (s *storeA) lookup(w http.ResponseWriter, r *http.Request) {
	s.lookups++
	want := "/androidpublisher/v3/applications/com.cutroom.app/purchases/products/" + product + "/tokens/" + purchaseToken
	if r.Method != http.MethodGet || r.URL.Path != want || r.URL.RawQuery != "" {
		s.t.Errorf("unexpected call %s %s", r.Method, r.URL)
	}
	if s.refuse > 0 {
		s.refuse--
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	if got := r.Header.Get("Authorization"); got != fmt.Sprintf("Bearer access-%d", s.grants) {
		s.t.Errorf("Authorization = %q after %d grants", got, s.grants)
	}
	_, _ = io.WriteString(w, s.record)
}

func accountJSON(changes map[string]any) []byte {
	fields := map[string]any{
		"type": "service_account", "client_email": accountEmail, "private_key_id": "key-1",
		"private_key": string(pkcs8PEM(accountKey())), "token_uri": "https://tokens.example/token",
	}
	maps.Copy(fields, changes)
	return must(json.Marshal(fields))
}

func newPlatformA(t *testing.T, change ...func(*receipt.PlatformAConfig)) (*receipt.PlatformA, *storeA, *calltest.Clock) {
	t.Helper()
	at := calltest.NewClock(start)
	store := &storeA{t: t, record: recordA(nil), life: "3600"}
	address, client := calltest.Serve(t, store.ServeHTTP)
	store.uri = address + "/token"
	cfg := receipt.PlatformAConfig{BaseURL: address, PackageName: "com.cutroom.app",
		ServiceAccountJSON: accountJSON(map[string]any{"token_uri": store.uri}), HTTP: client, Now: at.Now}
	for _, c := range change {
		c(&cfg)
	}
	p, err := receipt.NewPlatformA(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p, store, at
}

func TestPlatformAJudgesTheRecord(t *testing.T) {
	for name, test := range map[string]struct {
		record string
		want   receipt.Reason
	}{
		"purchased":               {recordA(nil), ""},
		"no account recorded":     {recordA(map[string]any{"obfuscatedExternalAccountId": nil}), ""},
		"product repeated":        {recordA(map[string]any{"productId": product}), ""},
		"by promotion code":       {recordA(map[string]any{"purchaseType": 1}), ""},
		"licence tester":          {recordA(map[string]any{"purchaseType": 0}), receipt.TestPurchase},
		"pending, no order yet":   {recordA(map[string]any{"purchaseState": 2, "orderId": nil}), receipt.Pending},
		"unknown state":           {recordA(map[string]any{"purchaseState": 3}), receipt.Unverified},
		"none bought":             {recordA(map[string]any{"quantity": 0}), receipt.Unverified},
		"absurdly many bought":    {recordA(map[string]any{"quantity": 1001}), receipt.Unverified},
		"cancelled":               {recordA(map[string]any{"purchaseState": 1}), receipt.Cancelled},
		"pending":                 {recordA(map[string]any{"purchaseState": 2}), receipt.Pending},
		"state missing":           {recordA(map[string]any{"purchaseState": nil}), receipt.Unverified},
		"state null":              {recordA(map[string]any{"purchaseState": json.RawMessage("null")}), receipt.Unverified},
		"state as text":           {recordA(map[string]any{"purchaseState": "0"}), receipt.Unverified},
		"other order":             {recordA(map[string]any{"orderId": "GPA.1"}), receipt.Mismatch},
		"order missing":           {recordA(map[string]any{"orderId": nil}), receipt.Mismatch},
		"order differs in case":   {recordA(map[string]any{"orderId": strings.ToLower(orderID)}), receipt.Mismatch},
		"another account":         {recordA(map[string]any{"obfuscatedExternalAccountId": "somebody-else"}), receipt.OtherAccount},
		"token of other product":  {recordA(map[string]any{"productId": "credits.10"}), receipt.Mismatch},
		"an error in place of it": {`{"error":{"code":404}}`, receipt.Unverified},
		"null":                    {`null`, receipt.Unverified},
	} {
		t.Run(name, func(t *testing.T) {
			p, store, _ := newPlatformA(t)
			store.record = test.record
			quantity, err := p.Verify(t.Context(), goodA())
			judged(t, quantity, err, map[bool]int64{test.want == "": 1}[true], test.want, purchaseToken)
		})
	}
}

func TestPlatformACountsWhatWasBought(t *testing.T) {
	p, store, _ := newPlatformA(t)
	store.record = recordA(map[string]any{"quantity": 3})
	quantity, err := p.Verify(t.Context(), goodA())
	judged(t, quantity, err, 3, "")
}

func TestPlatformALetsTestersBuyWhereTheyMay(t *testing.T) {
	p, store, _ := newPlatformA(t, func(cfg *receipt.PlatformAConfig) { cfg.AllowTest = true })
	store.record = recordA(map[string]any{"purchaseType": 0})
	quantity, err := p.Verify(t.Context(), goodA())
	judged(t, quantity, err, 1, "")
}

func TestPlatformATellsAWrongProductFromAWrongToken(t *testing.T) {
	p, store, _ := newPlatformA(t)
	for reason, want := range map[string]receipt.Reason{
		"purchaseTokenDoesNotMatchProductId": receipt.Mismatch, "purchaseTokenDoesNotMatchPackageName": receipt.Mismatch,
		"invalid": receipt.Unverified, "": receipt.Unverified,
	} {
		store.lookupFn = func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = fmt.Fprintf(w, `{"error":{"code":400,"message":%q,"errors":[{"reason":%q}]}}`, purchaseToken, reason)
		}
		quantity, err := p.Verify(t.Context(), goodA())
		judged(t, quantity, err, 0, want, purchaseToken)
	}
}

func TestPlatformAClassifiesFailures(t *testing.T) {
	t.Parallel()
	for name, failure := range failures {
		timeout := func(cfg *receipt.PlatformAConfig) { cfg.HTTP.Timeout = failure.timeout }
		t.Run("api "+name, func(t *testing.T) {
			p, store, _ := newPlatformA(t, timeout)
			store.lookupFn = func(w http.ResponseWriter, r *http.Request) {
				if r.URL.RawQuery == "again" {
					t.Error("a redirect was followed")
				}
				failure.handler(w, r)
			}
			wantOnly(t, verdict(p.Verify(t.Context(), goodA())), failure.want, purchaseToken, "AO-J1Ox", "access-1")
		})
		t.Run("token endpoint "+name, func(t *testing.T) {
			p, store, _ := newPlatformA(t, timeout)
			store.tokenFn = failure.handler
			wantOnly(t, verdict(p.Verify(t.Context(), goodA())), failure.want, purchaseToken, "assertion=")
			if _, lookups := store.counts(); lookups != 0 {
				t.Error("the API was called without an access token")
			}
			if failure.timeout > 0 {
				return // a busy machine may be as slow
			}
			store.mu.Lock()
			store.tokenFn = nil
			store.mu.Unlock()
			if err := verdict(p.Verify(t.Context(), goodA())); err != nil {
				t.Errorf("after recovery: %v", err)
			}
		})
	}
}

func TestPlatformAOutOfReach(t *testing.T) {
	p := must(receipt.NewPlatformA(receipt.PlatformAConfig{
		BaseURL: calltest.DeadAddress(t), PackageName: "p", ServiceAccountJSON: accountJSON(map[string]any{"token_uri": calltest.DeadAddress(t) + "/token"}),
	}))
	wantOnly(t, verdict(p.Verify(t.Context(), goodA())), receipt.ErrUnavailable, purchaseToken)
}

func TestPlatformACallerGivesUp(t *testing.T) {
	p, store, _ := newPlatformA(t)
	store.tokenFn = hang
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := verdict(p.Verify(ctx, goodA()))
	wantOnly(t, err, receipt.ErrUnavailable, purchaseToken)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the cause is lost: %v", err)
	}
}

func TestPlatformAKeepsItsAccessTokenUntilShortlyBeforeItsEnd(t *testing.T) {
	p, store, at := newPlatformA(t)
	for _, step := range []struct {
		wait   time.Duration
		grants int
	}{{0, 1}, {30 * time.Minute, 1}, {29*time.Minute - time.Second, 1}, {time.Second, 2}, {0, 2}} {
		at.Advance(step.wait)
		if err := verdict(p.Verify(t.Context(), goodA())); err != nil {
			t.Fatal(err)
		}
		if grants, _ := store.counts(); grants != step.grants {
			t.Errorf("%s: %d grants, want %d", at.Now().Sub(start), grants, step.grants)
		}
	}
}

func TestPlatformADoesNotKeepATokenOfUnknownLife(t *testing.T) {
	p, store, _ := newPlatformA(t)
	store.life = "0"
	for want := 1; want <= 2; want++ {
		if err := verdict(p.Verify(t.Context(), goodA())); err != nil {
			t.Fatal(err)
		}
		if grants, _ := store.counts(); grants != want {
			t.Errorf("%d grants, want %d", grants, want)
		}
	}
}

func TestPlatformARetriesOnceWithAFreshTokenWhenRefused(t *testing.T) {
	p, store, _ := newPlatformA(t)
	store.refuse = 1
	if err := verdict(p.Verify(t.Context(), goodA())); err != nil {
		t.Error(err)
	}
	if grants, lookups := store.counts(); grants != 2 || lookups != 2 {
		t.Errorf("%d grants and %d calls, want 2 and 2", grants, lookups)
	}
	store.mu.Lock()
	store.refuse = 10
	store.mu.Unlock()
	wantOnly(t, verdict(p.Verify(t.Context(), goodA())), receipt.ErrInvalid, purchaseToken)
	if _, lookups := store.counts(); lookups != 4 {
		t.Errorf("%d calls, want 4: one retry only", lookups)
	}
}

func TestPlatformAConcurrentCallersShareOneGrant(t *testing.T) {
	p, store, _ := newPlatformA(t)
	var callers sync.WaitGroup
	for range 12 {
		callers.Go(func() {
			if err := verdict(p.Verify(t.Context(), goodA())); err != nil {
				t.Error(err)
			}
		})
	}
	callers.Wait()
	if grants, _ := store.counts(); grants != 1 {
		t.Errorf("%d grants, want 1", grants)
	}
}

func TestPlatformARefusesPartsThatNameNothing(t *testing.T) {
	p, store, _ := newPlatformA(t)
	for name, change := range map[string]func(*receipt.Purchase){
		"no token":       func(in *receipt.Purchase) { in.Receipt = "" },
		"folder":         func(in *receipt.Purchase) { in.Receipt = ".." },
		"absurd token":   func(in *receipt.Purchase) { in.Receipt = strings.Repeat("x", 4<<10+1) },
		"no product":     func(in *receipt.Purchase) { in.ProductID = "" },
		"product folder": func(in *receipt.Purchase) { in.ProductID = "." },
	} {
		in := goodA()
		change(&in)
		if err := verdict(p.Verify(t.Context(), in)); !errors.Is(err, receipt.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if grants, lookups := store.counts(); grants+lookups != 0 {
		t.Error("the store was asked")
	}
}

func TestPlatformANeedsATransactionID(t *testing.T) {
	p, store, _ := newPlatformA(t)
	store.record = recordA(map[string]any{"orderId": ""})
	in := goodA()
	in.TransactionID = ""
	wantOnly(t, verdict(p.Verify(t.Context(), in)), receipt.ErrInvalid)
}

func TestKeysThatCannotBeReadAreNotQuoted(t *testing.T) {
	ecPEM := pkcs8PEM(newECKey(p256))
	for name, file := range map[string][]byte{
		"no JSON": []byte("MIIE"), "no PEM": accountJSON(map[string]any{"private_key": "MIIE"}),
		"EC in place of RSA": accountJSON(map[string]any{"private_key": string(ecPEM)}),
	} {
		if _, err := receipt.NewPlatformA(receipt.PlatformAConfig{ServiceAccountJSON: file}); err == nil || strings.Contains(err.Error(), "MI") {
			t.Errorf("platform_a, %s: %v", name, err)
		}
	}
	for name, key := range map[string][]byte{"no PEM": []byte("MIGHAgEA"), "RSA in place of EC": pkcs8PEM(accountKey())} {
		if _, err := receipt.NewPlatformB(receipt.PlatformBConfig{PrivateKeyPEM: key}); err == nil || strings.Contains(err.Error(), "MI") {
			t.Errorf("platform_b, %s: %v", name, err)
		}
	}
	sec1 := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: must(x509.MarshalECPrivateKey(requestKey()))})
	if _, err := receipt.NewPlatformB(receipt.PlatformBConfig{PrivateKeyPEM: sec1}); err != nil {
		t.Errorf("SEC 1 key: %v", err)
	}
}

// Without the token of a purchase, all pages of the store's list of reversed purchases
// are read.
func TestPlatformAReadsWhatWasTakenBack(t *testing.T) {
	t.Parallel()
	p, store, _ := newPlatformA(t)
	var pages []string
	store.lookupFn = func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/androidpublisher/v3/applications/com.cutroom.app/purchases/voidedpurchases" || r.URL.Query().Get("type") != "0" {
			t.Errorf("unexpected call %s", r.URL)
		}
		token := r.URL.Query().Get("token")
		pages = append(pages, token)
		next := map[string]string{"": "two", "two": "three"}[token]
		_, _ = fmt.Fprintf(w, `{"voidedPurchases":[{"orderId":"of %s"}],"tokenPagination":{"nextPageToken":%q}}`, token, next)
	}
	reversed, err := p.Reversed(t.Context(), []receipt.Transaction{{ID: "of two"}, {ID: "of nothing"}})
	if err != nil || len(reversed) != 3 || !reversed["of two"] || !reversed["of three"] || strings.Join(pages, ",") != ",two,three" {
		t.Errorf("%v, %v, pages %q", reversed, err, pages)
	}
	for name, failure := range failures {
		if name == "empty object" { // no purchase was reversed
			continue
		}
		store.mu.Lock()
		store.lookupFn = failure.handler
		store.mu.Unlock()
		ctx, cancel := context.WithTimeout(t.Context(), cmp.Or(failure.timeout, time.Minute))
		if reversed, err := p.Reversed(ctx, []receipt.Transaction{{ID: "x"}}); err == nil || len(reversed) != 0 {
			t.Errorf("%s: %v, %v", name, reversed, err)
		}
		cancel()
	}
}

func TestPlatformAKnowsACancelledPurchaseByItsToken(t *testing.T) {
	p, store, _ := newPlatformA(t)
	store.record = recordA(map[string]any{"purchaseState": 1})
	reversed, err := p.Reversed(t.Context(), []receipt.Transaction{{ID: orderID, ProductID: product, Token: purchaseToken}})
	if err != nil || len(reversed) != 1 || !reversed[orderID] {
		t.Errorf("%v, %v", reversed, err)
	}
}
