package notify

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"cutroom/internal/sandbox/fake"
)

// Steps of platform_a.
const (
	StepToken = "token" // POST /token
	StepSend  = "send"  // POST /v1/projects/{project}/messages:send
)

const (
	scopeA     = "https://www.googleapis.com/auth/firebase.messaging"
	grantTypeA = "urn:ietf:params:oauth:grant-type:jwt-bearer"
)

// PlatformA stands in for platform_a's push service: an OAuth2 token endpoint for
// service accounts, and messages:send.
type PlatformA struct {
	*inbox
	email string
	key   fake.SigningKey

	mu      sync.Mutex
	bearers map[string]time.Time // access token -> expiry
}

// pushKey is the service account's key, shared by all worlds of a process.
var pushKey = sync.OnceValue(fake.NewSigningKey)

// NewPlatformA returns a service with one project and one service account.
func NewPlatformA(arrive func(line string)) *PlatformA {
	s := &PlatformA{inbox: newInbox("push to platform_a", arrive), email: "push@" + ProjectID + ".iam.gserviceaccount.com",
		key: pushKey(), bearers: map[string]time.Time{}}
	s.Handle(StepToken, "POST /token", s.issueToken)
	s.Handle(StepSend, "POST /v1/projects/{project}/messages:send", s.send)
	fake.Control(s.Host, "POST", "stale", "answer a device's token with 404 UNREGISTERED from now on", staleToken{Token: "example"},
		func(_ context.Context, t staleToken) (any, error) { s.Stale(t.Token); return nil, nil })
	return s
}

// ServiceAccountJSON returns the key file of the service account, on one line. Call it
// after Listen: its token_uri is this stand-in's address.
func (s *PlatformA) ServiceAccountJSON() string {
	return string(fake.Must(json.Marshal(map[string]string{
		"type": "service_account", "project_id": ProjectID, "private_key_id": s.key.ID, "private_key": fake.PrivatePEM(s.key.Private),
		"client_email": s.email, "token_uri": s.URL() + "/token",
	})))
}

func (s *PlatformA) issueToken(w http.ResponseWriter, r *http.Request) {
	claims, err := fake.CheckToken(r.FormValue("assertion"), "RS256", "http://"+r.Host+"/token", s.email, s.key.ID, &s.key.Private.PublicKey)
	scope, _ := claims["scope"].(string)
	if err != nil || r.FormValue("grant_type") != grantTypeA || !slices.Contains(strings.Fields(scope), scopeA) {
		fake.WriteJSON(w, http.StatusBadRequest, map[string]string{"error": "invalid_grant"})
		return
	}
	const life = time.Hour
	bearer := "ya29.p." + fake.RandomHex(40)
	s.mu.Lock()
	s.bearers[bearer] = time.Now().Add(life)
	s.mu.Unlock()
	fake.WriteJSON(w, http.StatusOK, map[string]any{"access_token": bearer, "expires_in": int(life.Seconds()), "token_type": "Bearer"})
}

// sent is a message. Like the real service, the stand-in refuses unknown fields.
type sent struct {
	Message struct {
		Token        string            `json:"token"`
		Data         map[string]string `json:"data"`
		Notification map[string]string `json:"notification"`
		Android      struct {
			Notification struct {
				TitleLocKey string `json:"title_loc_key"`
			} `json:"notification"`
		} `json:"android"`
	} `json:"message"`
}

func (s *PlatformA) send(w http.ResponseWriter, r *http.Request) {
	bearer, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	s.mu.Lock()
	expiry := s.bearers[bearer]
	s.mu.Unlock()
	raw, err := io.ReadAll(io.LimitReader(r.Body, 64<<10))
	var m sent
	dec := json.NewDecoder(strings.NewReader(string(raw)))
	dec.DisallowUnknownFields()
	if err == nil {
		err = dec.Decode(&m)
	}
	switch {
	case time.Now().After(expiry):
		refuseA(w, http.StatusUnauthorized, "UNAUTHENTICATED", "")
	case r.PathValue("project") != ProjectID:
		refuseA(w, http.StatusForbidden, "PERMISSION_DENIED", "SENDER_ID_MISMATCH")
	case err != nil, m.Message.Token == "", m.Message.Android.Notification.TitleLocKey == "":
		refuseA(w, http.StatusBadRequest, "INVALID_ARGUMENT", "INVALID_ARGUMENT")
	case s.isStale(m.Message.Token):
		refuseA(w, http.StatusNotFound, "NOT_FOUND", "UNREGISTERED")
	default:
		s.accept(Message{Token: m.Message.Token, Type: m.Message.Data["type"], JobID: m.Message.Data["jobId"], Body: string(raw)})
		fake.WriteJSON(w, http.StatusOK, map[string]string{"name": "projects/" + ProjectID + "/messages/" + fake.RandomHex(8)})
	}
}

func refuseA(w http.ResponseWriter, status int, word, code string) {
	body := map[string]any{"code": status, "message": "refused", "status": word}
	if code != "" {
		body["details"] = []map[string]string{{"@type": "type.googleapis.com/google.firebase.fcm.v1.FcmError", "errorCode": code}}
	}
	fake.WriteJSON(w, status, map[string]any{"error": body})
}
