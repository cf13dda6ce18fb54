package notify

import (
	"cmp"
	"encoding/json"
	"io"
	"net/http"
	"strings"

	"cutroom/internal/sandbox/fake"
)

// Steps of platform_a.
const (
	StepToken = "token" // POST /token
	StepSend  = "send"  // POST /v1/projects/{project}/messages:send
)

// PlatformA stands in for platform_a's push service: an OAuth2 token endpoint for service accounts, and messages:send.
type PlatformA struct {
	*inbox
	account *fake.ServiceAccount
}

// NewPlatformA returns a service with one project and one service account.
func NewPlatformA(arrive func(line string)) *PlatformA {
	s := &PlatformA{inbox: newInbox("push to platform_a", arrive),
		account: fake.NewServiceAccount("push", ProjectID, "https://www.googleapis.com/auth/firebase.messaging")}
	s.Handle(StepToken, "POST /token", s.account.IssueToken)
	s.Handle(StepSend, "POST /v1/projects/{project}/messages:send", s.send)
	s.controlStale("404 UNREGISTERED, or with the why SENDER_ID_MISMATCH (403) or INVALID_ARGUMENT (400),", staleToken{Token: "example"})
	return s
}

// ServiceAccountJSON returns the key file of the service account, on one line. Call it after Listen: its token_uri is
// this stand-in's address.
func (s *PlatformA) ServiceAccountJSON() string { return s.account.JSON(s.URL()) }

// sent is a message. Like the real service, the stand-in refuses unknown fields.
type sent struct {
	Message struct {
		Token        string            `json:"token"`
		Data         map[string]string `json:"data"`
		Notification map[string]string `json:"notification"`
		Android      struct {
			TTL          string `json:"ttl"`
			Notification struct {
				TitleLocKey string `json:"title_loc_key"`
			} `json:"notification"`
		} `json:"android"`
	} `json:"message"`
}

func (s *PlatformA) send(w http.ResponseWriter, r *http.Request) {
	raw, err := io.ReadAll(io.LimitReader(r.Body, 64<<10))
	var m sent
	dec := json.NewDecoder(strings.NewReader(string(raw)))
	dec.DisallowUnknownFields()
	if err == nil {
		err = dec.Decode(&m)
	}
	switch {
	case !s.account.Admits(r):
		refuseA(w, http.StatusUnauthorized, "UNAUTHENTICATED", "")
	case r.PathValue("project") != ProjectID:
		refuseA(w, http.StatusForbidden, "PERMISSION_DENIED", "")
	case err != nil, m.Message.Token == "", m.Message.Android.Notification.TitleLocKey == "":
		refuseA(w, http.StatusBadRequest, "INVALID_ARGUMENT", "INVALID_ARGUMENT")
	case s.isStale(m.Message.Token):
		switch s.whyStale(m.Message.Token) {
		case "SENDER_ID_MISMATCH":
			refuseA(w, http.StatusForbidden, "PERMISSION_DENIED", "SENDER_ID_MISMATCH")
		case "INVALID_ARGUMENT":
			refuseA(w, http.StatusBadRequest, "INVALID_ARGUMENT", "INVALID_ARGUMENT", "The registration token is not a valid FCM registration token")
		default:
			refuseA(w, http.StatusNotFound, "NOT_FOUND", "UNREGISTERED")
		}
	default:
		s.accept(Message{Token: m.Message.Token, Type: m.Message.Data["type"], JobID: m.Message.Data["jobId"], Body: string(raw)})
		fake.WriteJSON(w, http.StatusOK, map[string]string{"name": "projects/" + ProjectID + "/messages/" + fake.RandomHex(8)})
	}
}

func refuseA(w http.ResponseWriter, status int, word, code string, message ...string) {
	body := map[string]any{"code": status, "message": cmp.Or(strings.Join(message, ""), "refused"), "status": word}
	if code != "" {
		body["details"] = []map[string]string{{"@type": "type.googleapis.com/google.firebase.fcm.v1.FcmError", "errorCode": code}}
	}
	fake.WriteJSON(w, status, map[string]any{"error": body})
}
