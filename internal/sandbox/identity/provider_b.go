package identity

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"cutroom/internal/sandbox/fake"
)

// IssuerB is the issuer of provider_b's tokens.
const IssuerB = "https://appleid.apple.com"

// StepKeys is provider_b's only step.
const StepKeys = "keys"

// ProviderB stands in for provider_b: GET /auth/keys.
type ProviderB struct {
	*fake.Host
	clientID string

	mu  sync.Mutex
	key fake.SigningKey
}

// NewProviderB returns a provider whose tokens are meant for clientID.
func NewProviderB(clientID string) *ProviderB {
	p := &ProviderB{Host: fake.NewHost(nil), clientID: clientID, key: firstKeyB()}
	p.Handle(StepKeys, "GET /auth/keys", func(w http.ResponseWriter, r *http.Request) { p.current().ServeKeys(w, r) })
	p.HandleControl("DELETE", "key", "sign with a new key from now on; the key set lists it alone", nil,
		func(*http.Request) (any, error) { p.Rotate(); return nil, nil })
	mountMint(p.Host, Claims{Email: "ann@example.com"}, p.Mint)
	return p
}

// Rotate replaces the key, in the key set too.
func (p *ProviderB) Rotate() {
	key := fake.NewSigningKey()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.key = key
}

func (p *ProviderB) current() fake.SigningKey {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.key
}

// KeysURL returns the key set's address. Call it after Listen.
func (p *ProviderB) KeysURL() string { return p.URL() + "/auth/keys" }

// Mint returns an identity token. Like provider_b's, it never contains a name.
func (p *ProviderB) Mint(c Claims) (string, error) {
	if c.Subject == "" {
		sum := sha256.Sum256([]byte("provider_b:" + strings.ToLower(c.Email)))
		hexed := hex.EncodeToString(sum[:])
		c.Subject = "000" + hexed[60:63] + "." + hexed[:32] + "." + hexed[32:36]
	}
	return c.sign(c.build(jwt.MapClaims{
		"iss": IssuerB, "aud": p.clientID, "sub": c.Subject,
		"auth_time": time.Now().Unix() - 5, "nonce_supported": true,
	}), p.current())
}
