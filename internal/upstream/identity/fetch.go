package identity

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
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
		return 0, nil, errors.New("cannot form a request") // the cause quotes the address
	}
	req.Header.Set("Accept", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return 0, nil, transportCause(err)
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

// transportCause makes the error of a call fit for the log. It drops the layer
// that quotes the address. Beneath it, errors of the network and of the context
// are kept; any other may quote the bytes of a broken answer, which can echo the
// token, so only its kind is kept.
func transportCause(err error) error {
	var located *url.Error
	if errors.As(err, &located) {
		err = located.Err
	}
	var network net.Error
	var certificate *tls.CertificateVerificationError
	if errors.As(err, &network) || errors.As(err, &certificate) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, context.Canceled) {
		return err
	}
	return fmt.Errorf("broken answer (%T)", err)
}
