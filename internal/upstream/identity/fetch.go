package identity

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

// maxAnswerBytes caps what is read of an answer. Real ones are a few KiB.
const maxAnswerBytes = 1 << 20

// errTooLong is a 200 answer beyond maxAnswerBytes.
var errTooLong = errors.New("answer too long")

// private returns a copy of client that follows no redirects and keeps no
// cookies. The copy shares the transport, so connections stay pooled.
func private(client *http.Client) *http.Client {
	if client == nil {
		client = http.DefaultClient
	}
	c := *client
	// A redirect would carry the token to a host that nobody configured.
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c.Jar = nil
	return &c
}

// get returns the status of an answer and, when that is 200, its whole body.
// An error means that no complete answer came, or errTooLong. It does not name
// the address, whose query may hold a token.
func get(ctx context.Context, client *http.Client, address string) (status int, body []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return 0, nil, withoutAddress(err)
	}
	req.Header.Set("Accept", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return 0, nil, withoutAddress(err)
	}
	defer func() { _ = resp.Body.Close() }() // nothing was written: closing loses nothing
	if resp.StatusCode != http.StatusOK {
		return resp.StatusCode, nil, nil
	}
	body, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes+1))
	if err != nil {
		return 0, nil, fmt.Errorf("read answer: %w", err)
	}
	if len(body) > maxAnswerBytes {
		return 0, nil, errTooLong
	}
	return resp.StatusCode, body, nil
}

// withoutAddress drops the layer of err that quotes the address.
func withoutAddress(err error) error {
	var located *url.Error
	if errors.As(err, &located) {
		return located.Err
	}
	return err
}
