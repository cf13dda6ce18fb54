package fake

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// ServiceAccount is the account of the app's server at a vendor. Its handler IssueToken exchanges assertions that are
// signed with the account's key for access tokens (RFC 7523).
type ServiceAccount struct {
	Key SigningKey

	project, email, scope string

	mu      sync.Mutex
	bearers map[string]time.Time // access token -> expiry
}

// accountKey is the key of all service accounts of a process. Generating one takes longer than the rest of a start.
var accountKey = sync.OnceValue(NewSigningKey)

// NewServiceAccount returns an account of a project, whose tokens are for one scope.
func NewServiceAccount(name, project, scope string) *ServiceAccount {
	return &ServiceAccount{Key: accountKey(), project: project, email: name + "@" + project + ".iam.gserviceaccount.com", scope: scope,
		bearers: map[string]time.Time{}}
}

// JSON returns the credentials file of the account, on one line. base is the address of the host that has the token
// endpoint, at /token.
func (a *ServiceAccount) JSON(base string) string {
	return string(Must(json.Marshal(map[string]string{
		"type": "service_account", "project_id": a.project, "private_key_id": a.Key.ID, "private_key": PrivatePEM(a.Key.Private),
		"client_email": a.email, "client_id": "112233445566778899000", "auth_uri": base + "/auth", "token_uri": base + "/token",
	})))
}

// IssueToken checks the signed assertion as the vendor does.
func (a *ServiceAccount) IssueToken(w http.ResponseWriter, r *http.Request) {
	claims, err := CheckToken(r.FormValue("assertion"), "RS256", "http://"+r.Host+"/token", a.email, a.Key.ID, &a.Key.Private.PublicKey)
	scope, _ := claims["scope"].(string)
	problem := ""
	switch {
	case r.FormValue("grant_type") != "urn:ietf:params:oauth:grant-type:jwt-bearer":
		problem = "unsupported_grant_type"
	case err != nil:
		problem = "invalid_grant"
	case !slices.Contains(strings.Fields(scope), a.scope):
		problem = "invalid_scope"
	}
	if problem != "" {
		WriteJSON(w, http.StatusBadRequest, map[string]string{"error": problem})
		return
	}
	const life = time.Hour
	bearer := "ya29.c." + RandomHex(40)
	a.mu.Lock()
	a.bearers[bearer] = time.Now().Add(life)
	a.mu.Unlock()
	WriteJSON(w, http.StatusOK, map[string]any{"access_token": bearer, "expires_in": int(life.Seconds()), "token_type": "Bearer"})
}

// Admits reports whether a request has an access token that has not expired.
func (a *ServiceAccount) Admits(r *http.Request) bool {
	bearer, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	a.mu.Lock()
	defer a.mu.Unlock()
	return time.Now().Before(a.bearers[bearer])
}
