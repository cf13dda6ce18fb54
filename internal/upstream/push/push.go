// Package push sends notifications to phones through the push services of the two platforms, one device at a time.
// Its caller decides which devices get a message and when to retry.
package push

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"cutroom/internal/base/httpcall"
)

// ErrUnregistered means that the platform no longer knows the device.
var ErrUnregistered = errors.New("the platform does not know the device")

// TemporaryError is a failure after which a retry may succeed.
type TemporaryError struct {
	After time.Duration // the platform's Retry-After, 0 without one
	Err   error
}

func (e *TemporaryError) Error() string { return e.Err.Error() }

func (e *TemporaryError) Unwrap() error { return e.Err }

// Message notifies a device that a job has ended.
type Message struct {
	Token string // of the device, as its app registered it
	// Registered is when the app registered the token last.
	Registered time.Time
	Type       string // of the event, such as render.completed
	JobID      string
	Expires    time.Time // the platform drops it afterwards
}

// maxAnswerBytes is how much of a platform's answer is read.
const maxAnswerBytes = 64 << 10

// answer is a platform's answer to one request.
type answer struct {
	status     int
	retryAfter time.Duration
	body       []byte
}

// post sends a message as JSON. A platform that cannot be reached is a [TemporaryError].
func post(ctx context.Context, client *http.Client, address string, header map[string]string, message any) (answer, error) {
	text, err := json.Marshal(message)
	if err != nil {
		return answer{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(text))
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	for name, value := range header {
		req.Header.Set(name, value)
	}
	resp, err := client.Do(req)
	if err != nil {
		return answer{}, &TemporaryError{Err: httpcall.WithoutURL(err)}
	}
	defer func() { _ = resp.Body.Close() }() // nothing was written: closing loses nothing
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes))
	if err != nil {
		return answer{}, &TemporaryError{Err: fmt.Errorf("read answer: %w", httpcall.WithoutURL(err))}
	}
	return answer{resp.StatusCode, httpcall.RetryAfter(resp.Header, time.Now()), body}, nil
}

// refusedError is an unsuccessful answer, with the platform's reason.
type refusedError struct {
	status int
	reason string
}

func (e *refusedError) Error() string { return fmt.Sprintf("status %d %s", e.status, e.reason) }

// failed returns the error of an unsuccessful answer.
func (a answer) failed(reason string) error {
	err := &refusedError{a.status, reason}
	if a.status == http.StatusTooManyRequests || a.status >= http.StatusInternalServerError {
		return &TemporaryError{After: a.retryAfter, Err: err}
	}
	return err
}
