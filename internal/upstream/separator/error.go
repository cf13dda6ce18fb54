package separator

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"time"

	"cutroom/internal/base/fault"
)

// Error is a failure of the provider or of the connection to it. Failures of the local disk are ordinary errors.
type Error struct {
	Op     string // the call that failed, named as in Call.Endpoint
	Status int    // HTTP status of the answer; 0 if there was none
	// Transient means that the same call may succeed later: no answer, a 5xx or a malformed one, and for a poll also a
	// 408 or 429. Any other 4xx and a file with unexpected content are not transient.
	Transient bool
	// Busy means that the provider refused the call for now, with a 429 or with a 503 that has a Retry-After, and did
	// nothing.
	Busy bool
	// RetryAfter is how long a busy provider asks us to wait, 0 if it does not say.
	RetryAfter time.Duration
	Err        error // cause, for the log only; nil when Status is enough

	again bool // another attempt within the same call may succeed
	sent  bool // a connection was established, so the request may have been sent
}

// Error describes the failure for the log.
func (e *Error) Error() string {
	s := "separation provider: " + e.Op
	if e.Status != 0 {
		s += fmt.Sprintf(": status %d", e.Status)
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Public returns what the user reads. The sentence depends only on the provider's status. An answer that stays
// unusable after every retry counts as rejected by the provider: a link to a foreign host, an endless archive, a
// project without a voice. It does not prove that the audio has no voice, so it does not blame the audio.
func (e *Error) Public() *fault.Error {
	const down = "Provider service unavailable"
	switch {
	case e.Status == http.StatusUnauthorized:
		return fault.Failedf(fault.ProviderRejected, "Authentication failed with the provider")
	case e.Status == http.StatusPaymentRequired:
		return fault.Failedf(fault.ProviderQuota, "Insufficient provider quota")
	case e.Status == http.StatusTooManyRequests:
		return fault.Failedf(fault.ProviderUnavailable, "Provider rate limit exceeded, please try again later")
	case e.refused():
		return fault.Failedf(fault.ProviderRejected, "Invalid request to the provider")
	case e.Transient || e.Status >= 500:
		return fault.Failedf(fault.ProviderUnavailable, down)
	}
	return fault.Failedf(fault.ProviderRejected, down)
}

// refused reports whether the provider understood the request and refused it.
func (e *Error) refused() bool { return e.Status >= 400 && e.Status < 500 }

// NotReceived reports whether the provider has certainly done nothing: it refused, or the request was not sent.
func (e *Error) NotReceived() bool { return e.Busy || e.refused() || e.Status == 0 && !e.sent }

// maxRetryAfter bounds how long a provider may ask us to wait.
const maxRetryAfter = 24 * time.Hour

var (
	errForbidden = errors.New("address not allowed")
	errTimeout   = errors.New("request time-out")
	errNoVoice   = errors.New("the project has no voice stem")
)

// malformed returns the error for an answer that breaks the protocol. One such answer may be a temporary fault,
// which must not cost a paid job.
func malformed(format string, args ...any) *Error {
	return &Error{Transient: true, again: true, Err: fmt.Errorf(format, args...)}
}

// unusable returns the error for a file that is too large or not what it should be. A retry would return the same.
func unusable(format string, args ...any) *Error {
	return &Error{Op: "download", Err: fmt.Errorf(format, args...)}
}

// isStatus reports whether err is the provider's answer with that status.
func isStatus(err error, status int) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Status == status
}

// isLocal reports whether a file of ours could not be read or written.
func isLocal(err error) bool {
	_, ok := errors.AsType[*fs.PathError](err)
	return ok
}
