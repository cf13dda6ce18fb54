package demo

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"cutroom/internal/sandbox/api"
)

// client sends the same requests as the mobile app.
type client struct{ *api.Client }

func newClient(base string) *client { return &client{api.New(base)} }

func (c *client) balance(ctx context.Context) (int64, error) {
	var answer struct{ Balance *int64 }
	if err := c.Get(ctx, "/api/v2/credits", &answer); err != nil {
		return 0, err
	}
	if answer.Balance == nil {
		return 0, errors.New("GET /api/v2/credits: no balance in the answer")
	}
	return *answer.Balance, nil
}

// quote is the price of a separation.
type quote struct {
	Credits, Balance int64
	Sufficient       bool
}

func (c *client) quote(ctx context.Context, d time.Duration) (quote, error) {
	var q quote
	err := c.Get(ctx, "/api/v2/credits/cost?durationMs="+fmt.Sprint(d.Milliseconds()), &q)
	return q, err
}

// fetch downloads an address into a file and returns the file's path: stem plus the extension that the answer
// names.
func (c *client) fetch(ctx context.Context, address, stem string, report func(float64)) (path string, err error) {
	download := api.Request{Path: address, Token: c.Token}
	res, err := (&api.Client{HTTP: c.HTTP}).Open(ctx, download)
	if err != nil {
		return "", err
	}
	defer func() { _ = res.Body.Close() }()
	// If the body ends early, reading fails.
	body, err := io.ReadAll(io.TeeReader(res.Body, &api.Counter{Total: res.ContentLength, Report: report}))
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d: %s", res.StatusCode, bytes.TrimSpace(body[:min(len(body), 300)]))
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", download.Name(), err)
	}
	path = stem + extensionOf(res)
	return path, os.WriteFile(path, body, 0o644)
}

// extensionOf returns the extension of the file name in an answer, or else of the address.
func extensionOf(res *http.Response) string {
	_, params, _ := mime.ParseMediaType(res.Header.Get("Content-Disposition")) // an invalid header has no parameters
	return cmp.Or(filepath.Ext(params["filename"]), filepath.Ext(res.Request.URL.Path))
}

// mint requests an identity token from the sandbox's stand-in for provider_a.
func mint(ctx context.Context, identity, email, name string) (string, error) {
	var answer struct{ IDToken string }
	err := newClient(identity).Post(ctx, "/__control/mint", map[string]string{"email": email, "name": name}, &answer)
	if err != nil {
		return "", fmt.Errorf("ask the stand-in of provider_a for an identity token: %w", err)
	}
	return answer.IDToken, nil
}
