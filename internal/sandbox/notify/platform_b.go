package notify

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"cutroom/internal/sandbox/fake"
)

const (
	// StepDevice is platform_b's only step: POST /3/device/{token}.
	StepDevice = "device"
	// TeamID is the issuer of provider tokens.
	TeamID = "SANDBOXTEAM"
)

// PlatformB stands in for platform_b's push service, which supports only HTTP/2.
type PlatformB struct {
	*inbox
	topic, keyID string
	key          *ecdsa.PrivateKey
}

// NewPlatformB returns a service with one app, named by topic, and one key.
func NewPlatformB(topic string, arrive func(line string)) *PlatformB {
	s := &PlatformB{inbox: newInbox("push to platform_b", arrive), topic: topic,
		keyID: strings.ToUpper(fake.RandomHex(5)),
		key:   fake.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))}
	s.Handle(StepDevice, "POST /3/device/{token}", s.send)
	s.controlStale("410 Unregistered, as of agoMs before,", staleToken{Token: "c0ffee"})
	return s
}

// KeyID returns the id of the key.
func (s *PlatformB) KeyID() string { return s.keyID }

// KeyPEM returns the key that signs provider tokens.
func (s *PlatformB) KeyPEM() string { return fake.PrivatePEM(s.key) }

// The real service's limits.
const (
	maxPayload    = 4096
	maxCollapseID = 64
)

var (
	deviceToken = regexp.MustCompile(`^([0-9a-fA-F]{2})+$`)
	pushTypes   = []string{"alert", "background", "location", "voip", "complication", "fileprovider", "mdm", "liveactivity", "pushtotalk"}
)

func (s *PlatformB) send(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor != 2 {
		panic(http.ErrAbortHandler)
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxPayload+1))
	var payload struct {
		APS struct {
			Alert json.RawMessage `json:"alert"`
		} `json:"aps"`
		Type  string `json:"type"`
		JobID string `json:"jobId"`
	}
	expiration := r.Header.Get("apns-expiration")
	_, notNumber := strconv.ParseInt(expiration, 10, 64)
	token := r.PathValue("token")
	switch status, reason := s.checkProvider(r.Header.Get("Authorization")); {
	case reason != "":
		refuseB(w, status, reason)
	case len(body) > maxPayload:
		refuseB(w, http.StatusRequestEntityTooLarge, "PayloadTooLarge")
	case err != nil, len(body) == 0, json.Unmarshal(body, &payload) != nil:
		refuseB(w, http.StatusBadRequest, "PayloadEmpty")
	case r.Header.Get("apns-topic") != s.topic:
		refuseB(w, http.StatusBadRequest, "BadTopic")
	case !slices.Contains(pushTypes, r.Header.Get("apns-push-type")):
		refuseB(w, http.StatusBadRequest, "InvalidPushType")
	case len(r.Header.Get("apns-collapse-id")) > maxCollapseID:
		refuseB(w, http.StatusBadRequest, "BadCollapseId")
	case expiration != "" && notNumber != nil:
		refuseB(w, http.StatusBadRequest, "BadExpirationDate")
	case !deviceToken.MatchString(token):
		refuseB(w, http.StatusBadRequest, "BadDeviceToken")
	case s.isStale(token):
		fake.WriteJSON(w, http.StatusGone, map[string]any{"reason": "Unregistered", "timestamp": s.staleSince(token).UnixMilli()})
	default:
		s.accept(Message{Token: token, Type: payload.Type, JobID: payload.JobID, Body: string(body)})
		w.Header().Set("apns-id", fake.RandomHex(16))
		w.WriteHeader(http.StatusOK)
	}
}

// checkProvider returns why a provider token is refused, or "" if it is valid.
func (s *PlatformB) checkProvider(header string) (status int, reason string) {
	raw, found := strings.CutPrefix(header, "bearer ")
	if !found {
		return http.StatusForbidden, "MissingProviderToken"
	}
	claims := jwt.MapClaims{}
	_, err := jwt.NewParser(jwt.WithValidMethods([]string{"ES256"}), jwt.WithIssuer(TeamID), jwt.WithIssuedAt(),
		jwt.WithLeeway(time.Minute)).
		ParseWithClaims(raw, claims, func(t *jwt.Token) (any, error) {
			if t.Header["kid"] != s.keyID {
				return nil, jwt.ErrTokenUnverifiable
			}
			return &s.key.PublicKey, nil
		})
	issued, issuedErr := claims.GetIssuedAt()
	switch {
	case err != nil, issuedErr != nil, issued == nil:
		return http.StatusForbidden, "InvalidProviderToken"
	case time.Since(issued.Time) > time.Hour:
		return http.StatusForbidden, "ExpiredProviderToken"
	}
	return 0, ""
}

func refuseB(w http.ResponseWriter, status int, reason string) {
	fake.WriteJSON(w, status, map[string]string{"reason": reason})
}
