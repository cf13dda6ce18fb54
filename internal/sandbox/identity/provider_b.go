package identity

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"math/big"
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
	keys      keyring
	published []signingKey // the current key is among them, unless it was withdrawn
}

// NewProviderB makes a provider whose tokens are meant for clientID.
func NewProviderB(clientID string) (*ProviderB, error) {
	p := &ProviderB{Host: fake.NewHost(nil), clientID: clientID}
	if err := p.Rotate(true); err != nil {
		return nil, err
	}
	p.Handle(StepKeys, "GET /auth/keys", p.serveKeys)
	p.HandleControl("POST", "mint", "make an identity token, as good or as bad as the claims say; answers idToken",
		Claims{Email: "ann@example.com"}, mintCall(p.Mint))
	return p, nil
}

// KeysURL is the key set's address, after Listen.
func (p *ProviderB) KeysURL() string { return p.URL() + "/auth/keys" }

// Rotate makes a new signing key and publishes it. The old keys stay in the
// set when keepOld is true, as in a planned rotation; else they are withdrawn.
func (p *ProviderB) Rotate(keepOld bool) error {
	key, err := newKey()
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if old := p.keys.current; !keepOld && old.private != nil {
		p.keys.retired = &old
		p.published = nil
	}
	p.keys.current = key
	p.published = append(p.published, key)
	return nil
}

// Mint makes an identity token. It never holds a name, as provider_b's do not.
func (p *ProviderB) Mint(c Claims) (string, error) {
	if c.Subject == "" {
		sum := sha256.Sum256([]byte("provider_b:" + strings.ToLower(c.Email)))
		hexed := hex.EncodeToString(sum[:])
		c.Subject = "000" + hexed[60:63] + "." + hexed[:32] + "." + hexed[32:36]
	}
	keys, err := withStranger(&p.mu, &p.keys, c.Forge)
	if err != nil {
		return "", err
	}
	return c.sign(c.build(jwt.MapClaims{
		"iss": IssuerB, "aud": p.clientID, "sub": c.Subject,
		"auth_time": time.Now().Unix() - 5, "nonce_supported": true,
	}), keys)
}

func (p *ProviderB) serveKeys(w http.ResponseWriter, _ *http.Request) {
	p.mu.Lock()
	set := make([]map[string]string, 0, len(p.published))
	for _, key := range p.published {
		set = append(set, jwk(key))
	}
	p.mu.Unlock()
	fake.WriteJSON(w, http.StatusOK, map[string]any{"keys": set})
}

func jwk(key signingKey) map[string]string {
	public := key.private.PublicKey
	return map[string]string{
		"kty": "RSA", "kid": key.kid, "use": "sig", "alg": "RS256",
		"n": base64.RawURLEncoding.EncodeToString(public.N.Bytes()),
		"e": base64.RawURLEncoding.EncodeToString(big.NewInt(int64(public.E)).Bytes()),
	}
}
