package identity

import (
	"crypto/sha256"
	"fmt"
	"math/big"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/golang-jwt/jwt/v5"

	"cutroom/internal/sandbox/fake"
)

// IssuerA is the issuer of provider_a's tokens.
const IssuerA = "https://accounts.google.com"

// StepTokenInfo is provider_a's only step.
const StepTokenInfo = "tokeninfo"

// ProviderA stands in for provider_a: GET /tokeninfo?id_token=…
//
// It keeps no list of the tokens it minted: like the original it believes its
// own signature.
type ProviderA struct {
	*fake.Host
	clientID string
	mu       sync.Mutex // guards keys.stranger
	keys     keyring
}

// NewProviderA makes a provider whose tokens are meant for clientID.
func NewProviderA(clientID string) (*ProviderA, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	p := &ProviderA{Host: fake.NewHost(nil), clientID: clientID, keys: keyring{current: key}}
	p.Handle(StepTokenInfo, "/tokeninfo", p.tokenInfo)
	p.HandleControl("POST", "mint", "make an identity token, as good or as bad as the claims say; answers idToken",
		Claims{Email: "ann@example.com", Name: "Ann"}, mintCall(p.Mint))
	return p, nil
}

// TokenInfoURL is the endpoint's address, after Listen.
func (p *ProviderA) TokenInfoURL() string { return p.URL() + "/tokeninfo" }

// Mint makes an identity token.
func (p *ProviderA) Mint(c Claims) (string, error) {
	if c.Subject == "" {
		c.Subject = numericSubject(c.Email)
	}
	defaults := jwt.MapClaims{"iss": IssuerA, "aud": p.clientID, "azp": p.clientID, "sub": c.Subject}
	if c.Name != "" {
		given, family, _ := strings.Cut(c.Name, " ")
		defaults["name"], defaults["given_name"] = c.Name, given
		if family != "" {
			defaults["family_name"] = family
		}
	}
	if c.Picture != "" {
		defaults["picture"] = c.Picture
	}
	if c.Lenient {
		header := map[string]any{"lenient": true}
		for name, value := range c.Header {
			header[name] = value
		}
		c.Header = header
	}
	keys, err := withStranger(&p.mu, &p.keys, c.Forge)
	if err != nil {
		return "", err
	}
	return c.sign(c.build(defaults), keys)
}

// tokenInfo answers like the public endpoint: every value is a string, and a
// token that is expired or not the provider's own is 400.
func (p *ProviderA) tokenInfo(w http.ResponseWriter, r *http.Request) {
	raw := r.FormValue("id_token")
	if raw == "" {
		fake.WriteJSON(w, http.StatusBadRequest, map[string]string{
			"error": "invalid_request", "error_description": "Either access_token, id_token, or token_handle required"})
		return
	}
	claims := jwt.MapClaims{}
	token, err := jwt.NewParser(jwt.WithValidMethods([]string{"RS256"}), jwt.WithoutClaimsValidation()).
		ParseWithClaims(raw, claims, func(*jwt.Token) (any, error) { return &p.keys.current.private.PublicKey, nil })
	if err == nil && token.Header["lenient"] != true {
		err = jwt.NewValidator(jwt.WithExpirationRequired()).Validate(claims)
	}
	if err != nil {
		fake.WriteJSON(w, http.StatusBadRequest, map[string]string{
			"error": "invalid_token", "error_description": "Invalid Value"})
		return
	}
	answer := map[string]string{}
	for name, value := range claims {
		answer[name] = asString(value)
	}
	for _, name := range []string{"alg", "kid", "typ"} {
		answer[name] = asString(token.Header[name])
	}
	fake.WriteJSON(w, http.StatusOK, answer)
}

func asString(value any) string {
	switch v := value.(type) {
	case string:
		return v
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	case nil:
		return ""
	default:
		return fmt.Sprint(v)
	}
}

// numericSubject derives a stable subject of 21 digits, provider_a's form.
func numericSubject(email string) string {
	sum := sha256.Sum256([]byte("provider_a:" + strings.ToLower(email)))
	digits := new(big.Int).SetBytes(sum[:]).String()
	return "1" + digits[:20]
}

// mintCall is the control call behind Mint.
func mintCall(mint func(Claims) (string, error)) func(*http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		var c Claims
		if err := fake.ReadJSON(r, &c); err != nil {
			return nil, err
		}
		token, err := mint(c)
		if err != nil {
			return nil, err
		}
		return map[string]string{"idToken": token}, nil
	}
}

// withStranger copies the keys, making the outsider's key when it is needed.
func withStranger(mu *sync.Mutex, keys *keyring, forge Forge) (keyring, error) {
	mu.Lock()
	defer mu.Unlock()
	if forge.needsStranger() && keys.stranger.private == nil {
		key, err := newKey()
		if err != nil {
			return keyring{}, err
		}
		keys.stranger = key
	}
	return *keys, nil
}
