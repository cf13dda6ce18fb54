// Package api is a client of the service's public API.
package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// Client calls the service's public API as an app does.
type Client struct {
	Base  string // without a trailing slash
	Token string // access token; "" before SignIn
	HTTP  *http.Client
}

// New returns a client of the service at an address.
func New(base string) *Client {
	return &Client{Base: strings.TrimSuffix(base, "/"), HTTP: &http.Client{
		Transport: &http.Transport{MaxIdleConnsPerHost: 4, ResponseHeaderTimeout: 2 * time.Minute},
		// A download is redirected to the object store, which must not receive the
		// service's access token.
		CheckRedirect: func(next *http.Request, _ []*http.Request) error {
			next.Header.Del("Authorization")
			return nil
		},
	}}
}

// Error is the service's refusal of a request.
type Error struct {
	Call         string // method and path
	Status       int
	Code, Detail string
}

func (e *Error) Error() string {
	text := fmt.Sprintf("%s: the service answered %d %s", e.Call, e.Status, e.Code)
	if e.Detail != "" {
		text += " (" + e.Detail + ")"
	}
	return text
}

// Call sends a request and decodes the JSON answer into answer.
func (c *Client) Call(ctx context.Context, method, path string, body io.Reader, contentType string, answer any) error {
	req, err := c.Request(ctx, method, path, body)
	if err != nil {
		return err
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	_, err = c.Exchange(req, method+" "+strings.SplitN(path, "?", 2)[0], answer)
	return err
}

// Request makes a request with the access token.
func (c *Client) Request(ctx context.Context, method, path string, body io.Reader) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.Base+path, body)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	if c.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.Token)
	}
	return req, nil
}

// Exchange is Call for a request that the caller built; name identifies it in errors. It also returns the
// answer's header.
func (c *Client) Exchange(req *http.Request, name string, answer any) (http.Header, error) {
	res, err := c.HTTP.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	defer func() { _ = res.Body.Close() }()
	raw, err := io.ReadAll(io.LimitReader(res.Body, 4<<20))
	if err != nil {
		return nil, fmt.Errorf("%s: read the answer: %w", name, err)
	}
	if res.StatusCode/100 != 2 {
		var e struct{ Error, Detail string }
		if json.Unmarshal(raw, &e) != nil {
			e.Error = strings.TrimSpace(string(raw[:min(len(raw), 200)]))
		}
		return res.Header, &Error{name, res.StatusCode, e.Error, e.Detail}
	}
	if answer == nil {
		return res.Header, nil
	}
	if err := json.Unmarshal(raw, answer); err != nil {
		return nil, fmt.Errorf("%s: read the answer: %w", name, err)
	}
	return res.Header, nil
}

// Get is Call without a body.
func (c *Client) Get(ctx context.Context, path string, answer any) error {
	return c.Call(ctx, http.MethodGet, path, nil, "", answer)
}

// Post is Call with a JSON body.
func (c *Client) Post(ctx context.Context, path string, body, answer any) error {
	raw, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("POST %s: %w", path, err)
	}
	return c.Call(ctx, http.MethodPost, path, bytes.NewReader(raw), "application/json", answer)
}

// User is a signed-in user.
type User struct{ Sub, Email, Role string }

// SignIn exchanges an identity token of provider_a for an access token, which the
// client's later calls use.
func (c *Client) SignIn(ctx context.Context, idToken string) (User, error) {
	var answer struct {
		AccessToken string
		User        User
	}
	if err := c.Post(ctx, "/api/v2/auth/provider_a", map[string]string{"idToken": idToken}, &answer); err != nil {
		return User{}, err
	}
	if answer.AccessToken == "" {
		return User{}, errors.New("sign in: the service answered no access token")
	}
	c.Token = answer.AccessToken
	return answer.User, nil
}
