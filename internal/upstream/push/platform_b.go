package push

import (
	"context"
	"crypto/ecdsa"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"cutroom/internal/base/httpcall"
	"cutroom/internal/upstream/credentials"
)

// The service refuses provider tokens older than an hour, and clients that renew theirs more often than every 20
// minutes.
const (
	renewAfter  = 40 * time.Minute
	renewAtMost = 20 * time.Minute
)

// PlatformBConfig names the app and the key that send messages.
type PlatformBConfig struct {
	BaseURL string           // of the service, without a trailing slash
	TeamID  string           // the team that signs
	KeyID   string           // the id of KeyPEM
	KeyPEM  []byte           // P-256 key, PKCS #8 or SEC 1, in PEM
	Topic   string           // the app's bundle id
	HTTP    *http.Client     // with a transport of [TransportB]
	Now     func() time.Time // nil means time.Now
}

// PlatformB sends to the devices of platform_b. It is safe for concurrent use.
type PlatformB struct {
	cfg       PlatformBConfig
	deviceURL string // up to and including "device/"
	key       *ecdsa.PrivateKey
	client    *http.Client

	mu     sync.Mutex
	bearer string
	signed time.Time // when bearer was signed
}

// NewPlatformB parses the key and makes no request.
func NewPlatformB(cfg PlatformBConfig) (*PlatformB, error) {
	key, err := credentials.ParseP256(cfg.KeyPEM)
	if err != nil {
		return nil, err
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &PlatformB{cfg: cfg, deviceURL: cfg.BaseURL + "/3/device/", key: key, client: httpcall.Private(cfg.HTTP)}, nil
}

// Send delivers a message. Its error is ErrUnregistered if the device is gone, a [TemporaryError] if a retry may help,
// and otherwise final.
func (p *PlatformB) Send(ctx context.Context, m Message) error {
	bearer, err := p.providerToken()
	if err != nil {
		return err
	}
	got, err := post(ctx, p.client, p.deviceURL+url.PathEscape(m.Token), map[string]string{
		"Authorization": "bearer " + bearer, "apns-topic": p.cfg.Topic, "apns-push-type": "alert",
		"apns-collapse-id": m.JobID, "apns-expiration": strconv.FormatInt(m.Expires.Unix(), 10),
	}, map[string]any{
		"aps":  map[string]any{"alert": map[string]string{"loc-key": m.Type}, "sound": "default"},
		"type": m.Type, "jobId": m.JobID,
	})
	if err != nil || got.status == http.StatusOK {
		return err
	}
	reason, since := reasonB(got.body)
	switch {
	case got.status == http.StatusGone && !since.IsZero() && since.Before(m.Registered):
		// The token was invalid at that time, but the app has registered it again since.
		return got.failed(reason)
	case got.status == http.StatusGone,
		got.status == http.StatusBadRequest && (reason == "BadDeviceToken" || reason == "DeviceTokenNotForTopic"):
		return ErrUnregistered
	case got.status == http.StatusForbidden && reason == "ExpiredProviderToken":
		p.discard(bearer)
		return &TemporaryError{Err: got.failed(reason)}
	}
	return got.failed(reason)
}

// Check sends a message to a device token that does not exist. The service complains about the device only after it has
// accepted our key, team and topic.
func (p *PlatformB) Check(ctx context.Context) error {
	err := p.Send(ctx, Message{Token: "check", Type: "check", JobID: "check", Expires: p.cfg.Now()})
	if errors.Is(err, ErrUnregistered) {
		return nil
	}
	return err
}

// providerToken returns the token that authenticates us, and renews it before it is too old.
func (p *PlatformB) providerToken() (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.cfg.Now()
	if p.bearer != "" && now.Sub(p.signed) < renewAfter {
		return p.bearer, nil
	}
	token := jwt.NewWithClaims(jwt.SigningMethodES256, jwt.MapClaims{"iss": p.cfg.TeamID, "iat": now.Unix()})
	token.Header["kid"] = p.cfg.KeyID
	bearer, err := token.SignedString(p.key)
	if err == nil {
		p.bearer, p.signed = bearer, now
	}
	return bearer, err
}

// discard drops a token that the service called expired, unless it is too young to renew.
func (p *PlatformB) discard(bearer string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bearer == bearer && p.cfg.Now().Sub(p.signed) >= renewAtMost {
		p.bearer = ""
	}
}

// reasonB returns the reason in an answer's body, or "", and since when the service knows that the token is invalid,
// zero if it does not say.
func reasonB(body []byte) (reason string, since time.Time) {
	var refusal struct {
		Reason    string `json:"reason"`
		Timestamp int64  `json:"timestamp"` // epoch ms
	}
	if json.Unmarshal(body, &refusal) != nil {
		return "", time.Time{}
	}
	if refusal.Timestamp > 0 {
		since = time.UnixMilli(refusal.Timestamp)
	}
	return reasonWord.FindString(refusal.Reason), since
}
