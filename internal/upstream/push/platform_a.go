package push

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/jwt"

	"cutroom/internal/httpcall"
)

const (
	platformAScope = "https://www.googleapis.com/auth/firebase.messaging"
	// tokenTimeout bounds a request for an access token, for which other messages wait.
	tokenTimeout = 10 * time.Second
)

// PlatformAConfig says through which project messages are sent, and as whom.
type PlatformAConfig struct {
	BaseURL            string // of the API, without a trailing slash
	ServiceAccountJSON []byte // key file of a service account, as downloaded
	HTTP               *http.Client
}

// PlatformA sends to the devices of platform_a. It is safe for concurrent use.
type PlatformA struct {
	sendURL string
	account jwt.Config
	client  *http.Client

	turn  chan struct{} // held while token is read or renewed
	token *oauth2.Token
}

// NewPlatformA reads the key file and makes no call. Its errors never quote the file.
func NewPlatformA(cfg PlatformAConfig) (*PlatformA, error) {
	var file struct {
		ProjectID string `json:"project_id"`
		Email     string `json:"client_email"`
		KeyID     string `json:"private_key_id"`
		Key       string `json:"private_key"`
		TokenURI  string `json:"token_uri"`
	}
	if json.Unmarshal(cfg.ServiceAccountJSON, &file) != nil {
		return nil, errors.New("not a JSON key file")
	}
	return &PlatformA{
		sendURL: cfg.BaseURL + "/v1/projects/" + url.PathEscape(file.ProjectID) + "/messages:send",
		account: jwt.Config{Email: file.Email, PrivateKeyID: file.KeyID, PrivateKey: []byte(file.Key), TokenURL: file.TokenURI, Scopes: []string{platformAScope}},
		client:  httpcall.Private(cfg.HTTP),
		turn:    make(chan struct{}, 1),
	}, nil
}

// Send delivers a message. The error is ErrUnregistered for a device that is gone,
// a [TemporaryError] where it may help to send again, and else final.
func (p *PlatformA) Send(ctx context.Context, m Message) error {
	return p.post(ctx, map[string]any{"message": map[string]any{
		"token":   m.Token,
		"android": map[string]any{"notification": map[string]string{"title_loc_key": m.Type}},
		"data":    map[string]string{"type": m.Type, "jobId": m.JobID},
	}})
}

// Check has the service validate a message to no device, which it does not send.
func (p *PlatformA) Check(ctx context.Context) error {
	err := p.post(ctx, map[string]any{"validate_only": true, "message": map[string]any{"token": "check"}})
	// Once the project accepts our messages, only the token is wrong.
	if refused := (*refusedError)(nil); errors.As(err, &refused) && refused.status == http.StatusBadRequest || errors.Is(err, ErrUnregistered) {
		return nil
	}
	return err
}

func (p *PlatformA) post(ctx context.Context, message map[string]any) error {
	access, err := p.accessToken(ctx)
	if err != nil {
		return err
	}
	body, err := json.Marshal(message)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.sendURL, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+access)
	req.Header.Set("Content-Type", "application/json")
	got, err := exchange(p.client, req)
	if err != nil || got.status == http.StatusOK {
		return err
	}
	reason := reasonA(got.body)
	switch {
	case got.status == http.StatusNotFound && reason == "UNREGISTERED":
		return ErrUnregistered
	case got.status == http.StatusUnauthorized:
		// An access token may be revoked before its time; the next try has a fresh one.
		p.discard(access)
		return &TemporaryError{Err: got.failed(reason)}
	}
	return got.failed(reason)
}

// accessToken returns a token that is good for a while. One message renews it while
// the others wait.
func (p *PlatformA) accessToken(ctx context.Context) (string, error) {
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return "", &TemporaryError{Err: fmt.Errorf("wait for an access token: %w", context.Cause(ctx))}
	}
	if p.token.Valid() {
		return p.token.AccessToken, nil
	}
	// The library does not heed the end of a context.
	client := *p.client
	client.Timeout = tokenTimeout
	token, err := p.account.TokenSource(context.WithValue(ctx, oauth2.HTTPClient, &client)).Token()
	if err != nil {
		return "", tokenError(err)
	}
	p.token = token
	return token.AccessToken, nil
}

// discard forgets an access token that was refused, unless it was renewed since.
func (p *PlatformA) discard(access string) {
	p.turn <- struct{}{}
	defer func() { <-p.turn }()
	if p.token != nil && p.token.AccessToken == access {
		p.token = nil
	}
}

// tokenError hides what the token endpoint said. Its refusal is as temporary as its
// silence: an operator who corrects the account's rights loses no message.
func tokenError(err error) error {
	if refused := (*oauth2.RetrieveError)(nil); errors.As(err, &refused) {
		return &TemporaryError{Err: fmt.Errorf("access token refused: status %d", refused.Response.StatusCode)}
	}
	return &TemporaryError{Err: errors.New("no access token: the token endpoint did not answer, or not as expected")}
}

// reasonWord is what a platform's reason looks like; anything else stays out of logs.
var reasonWord = regexp.MustCompile(`^[A-Za-z_]{1,64}$`)

// reasonA is the error code of an answer's body, or "".
func reasonA(body []byte) string {
	var said struct {
		Error struct {
			Status  string `json:"status"`
			Details []struct {
				ErrorCode string `json:"errorCode"`
			} `json:"details"`
		} `json:"error"`
	}
	if json.Unmarshal(body, &said) != nil {
		return ""
	}
	reason := said.Error.Status
	for _, d := range said.Error.Details {
		if d.ErrorCode != "" {
			reason = d.ErrorCode
		}
	}
	return reasonWord.FindString(reason)
}
