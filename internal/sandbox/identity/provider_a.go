package identity

import (
	"crypto/sha256"
	"fmt"
	"math/big"
	"net/http"
	"strings"

	"github.com/golang-jwt/jwt/v5"

	"cutroom/internal/sandbox/fake"
)

// IssuerA is the issuer of provider_a's tokens.
const IssuerA = "https://accounts.google.com"

// StepTokenInfo is provider_a's only step.
const StepTokenInfo = "tokeninfo"

// ProviderA stands in for provider_a: GET /tokeninfo?id_token=…
//
// It keeps no list of its tokens: like the original it trusts its own signature.
type ProviderA struct {
	*fake.Host
	clientID string
	key      fake.SigningKey
}

// NewProviderA returns a provider whose tokens are meant for clientID.
func NewProviderA(clientID string) *ProviderA {
	p := &ProviderA{Host: fake.NewHost(nil), clientID: clientID, key: firstKeyA()}
	p.Handle(StepTokenInfo, "/tokeninfo", p.tokenInfo)
	mountMint(p.Host, Claims{Email: "ann@example.com", Name: "Ann"}, p.Mint)
	return p
}

// TokenInfoURL returns the endpoint's address. Call it after Listen.
func (p *ProviderA) TokenInfoURL() string { return p.URL() + "/tokeninfo" }

// Mint returns an identity token.
func (p *ProviderA) Mint(c Claims) (string, error) {
	if c.Subject == "" {
		// 21 digits, as the original's
		sum := sha256.Sum256([]byte("provider_a:" + strings.ToLower(c.Email)))
		c.Subject = "1" + new(big.Int).SetBytes(sum[:]).String()[:20]
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
	return c.sign(c.build(defaults), p.key)
}

// tokenInfo answers like the public endpoint: every value is a string, and a token that is expired or from another
// issuer is a 400.
func (p *ProviderA) tokenInfo(w http.ResponseWriter, r *http.Request) {
	raw := r.FormValue("id_token")
	if raw == "" {
		fake.WriteJSON(w, http.StatusBadRequest, map[string]string{
			"error": "invalid_request", "error_description": "Either access_token, id_token, or token_handle required"})
		return
	}
	claims := jwt.MapClaims{}
	token, err := jwt.NewParser(jwt.WithValidMethods([]string{"RS256"}), jwt.WithoutClaimsValidation(), jwt.WithJSONNumber()).
		ParseWithClaims(raw, claims, func(*jwt.Token) (any, error) { return &p.key.Private.PublicKey, nil })
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
		answer[name] = fmt.Sprint(value)
	}
	for _, name := range []string{"alg", "kid", "typ"} {
		answer[name] = fmt.Sprint(token.Header[name])
	}
	fake.WriteJSON(w, http.StatusOK, answer)
}
