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
	req, _ := http.NewRequestWithContext(t.Context(), "GET", s.URL()+"/androidpublisher/v3/applications/com.example.editor/purchases/products/p/tokens/t", nil)
	req.Header.Set("Authorization", "Bearer nonsense")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if _ = res.Body.Close(); res.StatusCode != 401 {
		t.Errorf("another access token: %d", res.StatusCode)
	}
}

func startB(t *testing.T) *store.PlatformB {
	t.Helper()
	s := store.NewPlatformB("com.example.editor")
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
