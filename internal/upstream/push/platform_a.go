// Pushes to platform_a's devices: the call, and what its errors mean for the device's registration.

package push

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"time"

	"cutroom/internal/base/httpcall"
	"cutroom/internal/upstream/credentials"
)

const platformAScope = "https://www.googleapis.com/auth/firebase.messaging"

const (
	// timeToLive is how long the service keeps a message for a phone that it cannot reach; without it, that is up to
	// four weeks. The job's files do not live longer than that.
	timeToLive = "86400s"
	// pauseA is how long to wait after a 429 without Retry-After. The service asks for at least a minute.
	pauseA = time.Minute
)

// PlatformAConfig names the project and the service account that send messages.
type PlatformAConfig struct {
	BaseURL            string // of the API, without a trailing slash
	ServiceAccountJSON []byte // key file of a service account, as downloaded
	HTTP               *http.Client
}

// PlatformA sends to the devices of platform_a. It is safe for concurrent use.
type PlatformA struct {
	sendURL string
	access  *credentials.AccessTokens
	client  *http.Client
}

// NewPlatformA parses the key file and makes no request. Its errors never quote the file.
func NewPlatformA(cfg PlatformAConfig) (*PlatformA, error) {
	account, err := credentials.ParseServiceAccount(cfg.ServiceAccountJSON)
	if err != nil {
		return nil, err
	}
	return &PlatformA{
		sendURL: cfg.BaseURL + "/v1/projects/" + url.PathEscape(account.ProjectID) + "/messages:send",
		access:  credentials.NewAccessTokens(account, platformAScope, cfg.HTTP, nil),
		client:  httpcall.Private(cfg.HTTP),
	}, nil
}

// Send delivers a message. Its error is ErrUnregistered if the device is gone, a [TemporaryError] if a retry may help,
// and otherwise final.
func (p *PlatformA) Send(ctx context.Context, m Message) error {
	return p.post(ctx, map[string]any{"message": map[string]any{
		"token":   m.Token,
		"android": map[string]any{"ttl": timeToLive, "notification": map[string]string{"title_loc_key": m.Type}},
		"data":    map[string]string{"type": m.Type, "jobId": m.JobID},
	}})
}

// Check asks the service to validate a message without sending it.
func (p *PlatformA) Check(ctx context.Context) error {
	err := p.post(ctx, map[string]any{"validate_only": true, "message": map[string]any{"token": "check"}})
	// If our account may send for the project, the service objects only to the device token.
	var refused *refusedError
	badRequest := errors.As(err, &refused) && refused.status == http.StatusBadRequest
	if badRequest || errors.Is(err, ErrUnregistered) {
		return nil
	}
	return err
}

func (p *PlatformA) post(ctx context.Context, message map[string]any) error {
	access, err := p.access.Get(ctx)
	if err != nil {
		// Treat a refusal as temporary: no message is lost if an operator corrects the account's permissions.
		return &TemporaryError{Err: err}
	}
	got, err := post(ctx, p.client, p.sendURL, map[string]string{"Authorization": "Bearer " + access}, message)
	if err != nil || got.status == http.StatusOK {
		return err
	}
	reason := reasonA(got.body)
	switch {
	case got.status == http.StatusNotFound && reason == "UNREGISTERED",
		got.status == http.StatusForbidden && reason == "SENDER_ID_MISMATCH",
		got.status == http.StatusBadRequest && reason == "INVALID_ARGUMENT" && blamesToken(got.body):
		return ErrUnregistered
	case got.status == http.StatusTooManyRequests && got.retryAfter == 0:
		got.retryAfter = pauseA
	case got.status == http.StatusUnauthorized:
		// An access token may be revoked early; the next attempt gets a fresh one.
		p.access.Discard(access)
		return &TemporaryError{Err: got.failed(reason)}
	}
	return got.failed(reason)
}

// blamesToken reports whether an INVALID_ARGUMENT is about the device's token and not about the rest of the message.
// The answer names the field, or, in its usual form, only mentions it in its text.
func blamesToken(body []byte) bool {
	var refusal struct {
		Error struct {
			Message string `json:"message"`
			Details []struct {
				Violations []struct {
					Field string `json:"field"`
				} `json:"fieldViolations"`
			} `json:"details"`
		} `json:"error"`
	}
	if json.Unmarshal(body, &refusal) != nil {
		return false
	}
	named := false
	for _, d := range refusal.Error.Details {
		for _, v := range d.Violations {
			if v.Field == "message.token" || v.Field == "token" {
				return true
			}
			named = true
		}
	}
	return !named && tokenText.MatchString(refusal.Error.Message)
}

// tokenText matches what the service calls a device's token.
var tokenText = regexp.MustCompile(`(?i)registration (token|id)\b|registration-token|instance id token`)

// reasonWord matches a platform's reason; anything else stays out of the log.
var reasonWord = regexp.MustCompile(`^[A-Za-z_]{1,64}$`)

// reasonA returns the error code of an answer's body, or "".
func reasonA(body []byte) string {
	var refusal struct {
		Error struct {
			Status  string `json:"status"`
			Details []struct {
				ErrorCode string `json:"errorCode"`
			} `json:"details"`
		} `json:"error"`
	}
	if json.Unmarshal(body, &refusal) != nil {
		return ""
	}
	reason := refusal.Error.Status
	for _, d := range refusal.Error.Details {
		if d.ErrorCode != "" {
			reason = d.ErrorCode
		}
	}
	return reasonWord.FindString(reason)
}
