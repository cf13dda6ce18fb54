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

	mu        sync.Mutex
	current   fake.SigningKey
	retired   *fake.SigningKey  // a withdrawn key
	published []fake.SigningKey // the current one is the last
}

// NewProviderB returns a provider whose tokens are meant for clientID.
func NewProviderB(clientID string) *ProviderB {
	p := &ProviderB{Host: fake.NewHost(nil), clientID: clientID, current: firstKeyB(), published: []fake.SigningKey{firstKeyB()}}
	p.Handle(StepKeys, "GET /auth/keys", p.serveKeys)
	mountMint(p.Host, Claims{Email: "ann@example.com"}, p.Mint)
	return p
}

// KeysURL returns the key set's address. Call it after Listen.
func (p *ProviderB) KeysURL() string { return p.URL() + "/auth/keys" }

// Rotate generates a new signing key and publishes it. If keepOld is true, the old keys stay in the set, as in
// a planned rotation; otherwise they are withdrawn.
func (p *ProviderB) Rotate(keepOld bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if old := p.current; !keepOld {
		p.retired, p.published = &old, nil
	}
	p.current = fake.NewSigningKey()
	p.published = append(p.published, p.current)
}

// Mint returns an identity token. Like provider_b's, it never contains a name.
func (p *ProviderB) Mint(c Claims) (string, error) {
	if c.Subject == "" {
		sum := sha256.Sum256([]byte("provider_b:" + strings.ToLower(c.Email)))
		hexed := hex.EncodeToString(sum[:])
		c.Subject = "000" + hexed[60:63] + "." + hexed[:32] + "." + hexed[32:36]
	}
	p.mu.Lock()
	current, retired := p.current, p.retired
	p.mu.Unlock()
	return c.sign(c.build(jwt.MapClaims{
		"iss": IssuerB, "aud": p.clientID, "sub": c.Subject,
		"auth_time": time.Now().Unix() - 5, "nonce_supported": true,
	}), current, retired)
}

func (p *ProviderB) serveKeys(w http.ResponseWriter, _ *http.Request) {
	p.mu.Lock()
	set := []map[string]string{}
	for _, key := range p.published {
		set = append(set, key.JWK())
	}
	p.mu.Unlock()
	fake.WriteJSON(w, http.StatusOK, map[string]any{"keys": set})
}
