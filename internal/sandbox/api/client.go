// Package api is a client of the service's public API.
package api

import (
	"cmp"
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
	Base  string // without a trailing slash; "" if each request's path is a whole URL
	Token string // access token for requests without one of their own; "" before SignIn
	HTTP  *http.Client
}

// New returns a client of the service at an address.
func New(base string) *Client {
	return &Client{Base: strings.TrimSuffix(base, "/"), HTTP: &http.Client{
		Transport: &http.Transport{MaxIdleConnsPerHost: 4, ResponseHeaderTimeout: 2 * time.Minute},
		// A download is redirected to the object store, which must not receive the service's access token.
		CheckRedirect: func(next *http.Request, _ []*http.Request) error {
			next.Header.Del("Authorization")
			return nil
		},
	}}
}

// Response is a complete response.
type Response struct {
	Status int
	Header http.Header
	Body   []byte
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

// Open sends a request and returns the response, whatever its status. The caller closes the body.
func (c *Client) Open(ctx context.Context, r Request) (*http.Response, error) {
	r.Token = cmp.Or(r.Token, c.Token)
	req, err := r.Build(ctx, c.Base)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.Name(), err)
	}
	res, err := c.HTTP.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.Name(), err)
	}
	return res, nil
}

// Send sends a request and reads the whole response, whatever its status.
func (c *Client) Send(ctx context.Context, r Request) (Response, error) {
	res, err := c.Open(ctx, r)
	if err != nil {
		return Response{}, err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return Response{}, fmt.Errorf("%s: read the answer: %w", r.Name(), err)
	}
	return Response{res.StatusCode, res.Header, body}, nil
}

// Call sends a request, decodes the JSON answer into answer unless that is nil, and returns the answer's header. A
// status other than 2xx is an *Error.
func (c *Client) Call(ctx context.Context, r Request, answer any) (http.Header, error) {
	res, err := c.Send(ctx, r)
	if err != nil {
		return nil, err
	}
	if res.Status/100 != 2 {
		var e struct{ Error, Detail string }
		if json.Unmarshal(res.Body, &e) != nil {
			e.Error = strings.TrimSpace(string(res.Body[:min(len(res.Body), 200)]))
		}
		return res.Header, &Error{r.Name(), res.Status, e.Error, e.Detail}
	}
	if answer == nil {
		return res.Header, nil
	}
	if err := json.Unmarshal(res.Body, answer); err != nil {
		return nil, fmt.Errorf("%s: read the answer: %w", r.Name(), err)
	}
	return res.Header, nil
}

// Get is Call without a body.
func (c *Client) Get(ctx context.Context, path string, answer any) error {
	_, err := c.Call(ctx, Request{Path: path}, answer)
	return err
}

// Post is Call with a JSON body.
func (c *Client) Post(ctx context.Context, path string, body, answer any) error {
	_, err := c.Call(ctx, Request{Method: http.MethodPost, Path: path, JSON: body}, answer)
	return err
}

// User is a signed-in user.
type User struct{ Sub, Email, Role string }

// SignIn exchanges an identity token of provider_a for an access token, which the client's later calls use.
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
