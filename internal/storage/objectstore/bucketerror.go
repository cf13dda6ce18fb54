package objectstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"cutroom/internal/base/httpcall"
)

// opError is a failure of the service or of the connection to it. It carries a scrubbed text instead of the SDK's
// error, which may print a signed request.
type opError struct {
	op, key string
	text    string
	status  int   // 0 if there was no response
	kind    error // one of this package's errors, ErrUnavailable also with a refused certificate; or nil
}

func (e *opError) Error() string {
	if e.kind == ErrNotFound {
		return e.op + " " + e.key + ": " + e.kind.Error()
	}
	return e.op + " " + e.key + ": " + e.text
}

func (e *opError) Unwrap() error { return e.kind }

// fail converts an SDK error into an error of this package.
func (b *Bucket) fail(ctx context.Context, op, key string, err error) error {
	if ctx.Err() != nil {
		cause := context.Cause(ctx)
		if late, ok := errors.AsType[*lateError](err); ok {
			return fmt.Errorf("%s %s: %w (last try: %s)", op, key, cause, b.scrub(late.lastTry))
		}
		return fmt.Errorf("%s %s: %w", op, key, cause)
	}
	status, code, _ := describe(err)
	e := &opError{op: op, key: key, text: b.scrub(explain(err)), status: status}
	switch {
	case code == "NoSuchUpload":
		e.kind = ErrNoUpload
	case code == "InvalidPart":
		e.kind = ErrChanged // a part was replaced since it was listed
	case code == "NoSuchBucket":
		e.kind = ErrRefused
	case status == http.StatusNotFound:
		e.kind = ErrNotFound
	case status == http.StatusNotImplemented, code == "NotImplemented":
		e.kind = ErrUnsupported
	case permanent(status, code):
		e.kind = ErrRefused
	default:
		e.kind = ErrUnavailable
	}
	if refused, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		e.kind = errors.Join(ErrUnavailable, refused)
	}
	return e
}

// permanent reports whether the same request would get the same answer. Answers from proxies, and answers that only say
// that a request was too slow or came at a bad time, are temporary.
func permanent(status int, code string) bool {
	switch {
	case status < http.StatusBadRequest, status >= http.StatusInternalServerError, httpcall.IsTemporary(status):
		return false
	case status == http.StatusBadRequest:
		// The SDK makes up the second and third code for an answer without one, such as a proxy's.
		return !slices.Contains([]string{"", "BadRequest", "UnknownError", "RequestTimeout"}, code)
	}
	return !slices.Contains([]int{http.StatusConflict, http.StatusPreconditionFailed, http.StatusExpectationFailed}, status)
}

// failConditional is fail for a request that must not replace an object. It is ErrExists if the key is taken, or
// another write of it is in progress, and ErrUnsupported if the store seems not to know the condition: stores say that
// with many statuses, 403 if they do not expect the header in a signature.
func (b *Bucket) failConditional(ctx context.Context, op, key string, err error) error {
	err = b.fail(ctx, op, key, err)
	e, answered := errors.AsType[*opError](err)
	switch {
	case !answered || e.kind != ErrRefused && e.kind != ErrUnavailable:
	case e.status == http.StatusPreconditionFailed, e.status == http.StatusConflict:
		e.kind = ErrExists
	case e.status >= 300 && e.status < 500 && !httpcall.IsTemporary(e.status):
		e.kind = errors.Join(ErrUnsupported, e.kind)
	}
	return err
}

// explain returns the text of an SDK error, without the address. The text may repeat the credentials.
func explain(err error) string {
	status, code, message := describe(err)
	if status == 0 {
		return message
	}
	return strings.TrimSpace(fmt.Sprintf("store answered %d %s: %s", status, code, message))
}

// describe extracts status, code and message from an SDK error. The status is 0 if there was no response.
func describe(err error) (status int, code, message string) {
	var response *smithyhttp.ResponseError
	if errors.As(err, &response) && response.Response != nil && response.Response.Response != nil {
		status = response.HTTPStatusCode()
	}
	var api smithy.APIError
	if errors.As(err, &api) {
		return status, api.ErrorCode(), api.ErrorMessage()
	}
	return status, "", httpcall.WithoutURL(err).Error()
}

var queries = regexp.MustCompile(`\?[^\s"'<>]+`)

// scrub removes URL queries, which may be signed, and the credentials.
func (b *Bucket) scrub(text string) string {
	text = queries.ReplaceAllString(text, "?…")
	for _, s := range b.secrets {
		text = strings.ReplaceAll(text, s, "***")
	}
	return text
}
