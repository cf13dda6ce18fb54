package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"

	"cutroom/internal/sandbox/fake"
	"cutroom/internal/sandbox/store"
)

const androidScope = "https://www.googleapis.com/auth/androidpublisher"

func startA(t *testing.T) *store.PlatformA {
	t.Helper()
	s := store.NewPlatformA("com.example.editor")
	if err := s.Listen(""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// tokenFor gets an access token with the vendor's own library.
func tokenFor(t *testing.T, file string, scope string) (*oauth2.Token, error) {
	t.Helper()
	conf, err := google.JWTConfigFromJSON([]byte(file), scope)
	if err != nil {
		t.Fatal(err)
	}
	return conf.TokenSource(context.WithoutCancel(t.Context())).Token()
}

func TestPlatformAPurchase(t *testing.T) {
	s := startA(t)
	file := s.ServiceAccountJSON()
	token, err := tokenFor(t, file, androidScope)
	if err != nil {
		t.Fatal(err)
	}
	p := s.Register(store.PurchaseA{ProductID: "credits.10", AccountID: "user-1"})
	get := func(bearer, pkg, product, purchase string) (int, map[string]any) {
		t.Helper()
		req, _ := http.NewRequestWithContext(t.Context(), "GET",
			s.URL()+"/androidpublisher/v3/applications/"+pkg+"/purchases/products/"+product+"/tokens/"+purchase, nil)
		req.Header.Set("Authorization", "Bearer "+bearer)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		body := map[string]any{}
		if err := json.NewDecoder(res.Body).Decode(&body); err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, body
	}
	status, body := get(token.AccessToken, "com.example.editor", "credits.10", p.Token)
	if status != 200 || body["orderId"] != p.OrderID || body["purchaseState"] != 0.0 || body["obfuscatedExternalAccountId"] != "user-1" {
		t.Errorf("purchase: %d %v", status, body)
	}
	for _, tt := range []struct {
		name                      string
		bearer, pkg, product, tok string
		status                    int
	}{
		{"no such bearer", "nonsense", "com.example.editor", "credits.10", p.Token, 401},
		{"other app", token.AccessToken, "com.other", "credits.10", p.Token, 404},
		{"other product", token.AccessToken, "com.example.editor", "credits.50", p.Token, 400},
		{"unknown token", token.AccessToken, "com.example.editor", "credits.10", "nope", 404},
	} {
		if status, body := get(tt.bearer, tt.pkg, tt.product, tt.tok); status != tt.status {
			t.Errorf("%s: %d %v, want %d", tt.name, status, body, tt.status)
		}
	}
	changed := s.Register(store.PurchaseA{ProductID: "credits.10", PurchaseState: 1, Omit: []string{"orderId"}})
	fresh, err := tokenFor(t, file, androidScope)
	if err != nil {
		t.Fatal(err)
	}
	_, body = get(fresh.AccessToken, "com.example.editor", "credits.10", changed.Token)
	if _, has := body["orderId"]; has || body["purchaseState"] != 1.0 {
		t.Errorf("adjusted purchase: %v", body)
	}
}

func TestPlatformARefusesBadAssertions(t *testing.T) {
	s := startA(t)
	file := s.ServiceAccountJSON()
	var account map[string]string
	if err := json.Unmarshal([]byte(file), &account); err != nil {
		t.Fatal(err)
	}
	account["private_key"] = fake.PrivatePEM(fake.NewSigningKey().Private)
	foreign, err := json.Marshal(account)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tokenFor(t, file, "https://www.googleapis.com/auth/drive"); err == nil {
		t.Error("a token for another scope was issued")
	}
	if _, err := tokenFor(t, string(foreign), androidScope); err == nil {
		t.Error("an assertion by another key was accepted")
	}
	var retrieve *oauth2.RetrieveError
	_, err = tokenFor(t, strings.ReplaceAll(file, "cutroom@", "somebody@"), androidScope)
	if !errors.As(err, &retrieve) || retrieve.Response.StatusCode != 400 {
		t.Errorf("another issuer: %v", err)
	}
}

func startB(t *testing.T) *store.PlatformB {
	t.Helper()
	s := store.NewPlatformB("com.example.editor", store.EnvironmentSandbox)
	if err := s.Listen(""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// requestToken makes the bearer token that a client of the store sends.
func requestToken(t *testing.T, s *store.PlatformB, change func(*jwt.Token)) string {
	t.Helper()
	key, err := jwt.ParseECPrivateKeyFromPEM([]byte(s.PrivateKeyPEM()))
	if err != nil {
		t.Fatal(err)
	}
	token := jwt.NewWithClaims(jwt.SigningMethodES256, jwt.MapClaims{"iss": s.IssuerID(), "aud": "appstoreconnect-v1",
		"bid": "com.example.editor", "iat": time.Now().Unix(), "exp": time.Now().Add(10 * time.Minute).Unix()})
	token.Header["kid"] = s.KeyID()
	if change != nil {
		change(token)
	}
	signed, err := token.SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

func fetchB(t *testing.T, s *store.PlatformB, bearer, id string) (int, string) {
	t.Helper()
	req, _ := http.NewRequestWithContext(t.Context(), "GET", s.URL()+"/inApps/v1/transactions/"+id, nil)
	req.Header.Set("Authorization", "Bearer "+bearer)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	raw, _ := io.ReadAll(res.Body)
	var body struct{ SignedTransactionInfo string }
	if res.StatusCode == 200 {
		if err := json.Unmarshal(raw, &body); err != nil {
			t.Fatal(err)
		}
	}
	return res.StatusCode, body.SignedTransactionInfo
}

func TestPlatformBRequestTokens(t *testing.T) {
	s := startB(t)
	tx := s.Register(store.TransactionB{ProductID: "credits.50"})
	for _, tt := range []struct {
		name   string
		change func(*jwt.Token)
		status int
	}{
		{"good", nil, 200},
		{"other kid", func(k *jwt.Token) { k.Header["kid"] = "OTHER" }, 401},
		{"other issuer", func(k *jwt.Token) { k.Claims.(jwt.MapClaims)["iss"] = "x" }, 401},
		{"other audience", func(k *jwt.Token) { k.Claims.(jwt.MapClaims)["aud"] = "x" }, 401},
		{"other bundle", func(k *jwt.Token) { k.Claims.(jwt.MapClaims)["bid"] = "x" }, 401},
		{"no issue time", func(k *jwt.Token) { delete(k.Claims.(jwt.MapClaims), "iat") }, 401},
		{"lives too long", func(k *jwt.Token) { k.Claims.(jwt.MapClaims)["exp"] = time.Now().Add(2 * time.Hour).Unix() }, 401},
	} {
		if status, _ := fetchB(t, s, requestToken(t, s, tt.change), tx.TransactionID); status != tt.status {
			t.Errorf("%s: %d, want %d", tt.name, status, tt.status)
		}
	}
	if status, _ := fetchB(t, s, requestToken(t, s, nil), "404"); status != 404 {
		t.Errorf("unknown transaction: %d", status)
	}
}

func TestControlCallsOfTheStores(t *testing.T) {
	a, b := startA(t), startB(t)
	post := func(address, body string) map[string]any {
		t.Helper()
		res, err := http.Post(address, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		answer := map[string]any{}
		if err := json.NewDecoder(res.Body).Decode(&answer); err != nil || res.StatusCode != 200 {
			t.Fatalf("%s: %d %v", address, res.StatusCode, err)
		}
		return answer
	}
	if got := post(a.URL()+"/__control/purchases", `{"productId":"credits.10"}`); got["token"] == "" || got["orderId"] == "" {
		t.Errorf("purchase: %v", got)
	}
	got := post(b.URL()+"/__control/transactions", `{"productId":"credits.10","transactionId":"77"}`)
	claims := jwt.MapClaims{}
	receipt, _ := got["receipt"].(string)
	if _, _, err := jwt.NewParser().ParseUnverified(receipt, claims); err != nil || claims["transactionId"] != "77" {
		t.Errorf("transaction: %v %v", got, err)
	}
	if _, err := b.Sign(store.TransactionB{Chain: "unheard of"}); err == nil {
		t.Error("an unknown chain was signed")
	}
}
