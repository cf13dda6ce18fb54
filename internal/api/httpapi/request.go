// What happens before an endpoint runs: bodies, the bearer token, rate limits, pauses, the Idempotency-Key and
// preferences. The table of routes names the wrappers in this file.

package httpapi

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"

	"cutroom/internal/base/db"
	"cutroom/internal/base/fault"
	"cutroom/internal/domain/account"
	"cutroom/internal/domain/asset"
	"cutroom/internal/work/idempotency"
	"cutroom/internal/work/job"
	"cutroom/internal/work/ratelimit"
	"cutroom/internal/work/user"
)

// maxJSON bounds a JSON body and a text form field, in bytes.
const maxJSON = 1 << 20

var errTooLarge = fault.Sentencef(fault.TooLarge, "The request body is too large")

// errEncoded refuses a compressed body. A small one could expand to any size.
var errEncoded = fault.Sentencef(fault.Encoded, "The body has a Content-Encoding other than identity: send it uncompressed")

// checkEncoding returns errEncoded for a body that is not sent as it is.
func checkEncoding(r *http.Request) error {
	for _, list := range r.Header.Values("Content-Encoding") {
		for encoding := range strings.SplitSeq(list, ",") {
			if encoding = strings.TrimSpace(encoding); encoding != "" && !strings.EqualFold(encoding, "identity") {
				return errEncoded
			}
		}
	}
	return nil
}

// byteOrderMark may precede a text without being part of it.
const byteOrderMark = "\uFEFF"

// readBody reads a whole JSON body of at most maxJSON bytes, without its byte order mark.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if err := checkEncoding(r); err != nil {
		return nil, err
	}
	if r.ContentLength > maxJSON {
		return nil, errTooLarge
	}
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxJSON))
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		return nil, errTooLarge
	}
	if err != nil {
		return nil, errBadRequest.WithCause(err)
	}
	return bytes.TrimPrefix(b, []byte(byteOrderMark)), nil
}

// bearer returns the token of the Authorization header, or "".
func bearer(r *http.Request) string {
	scheme, token, found := strings.Cut(r.Header.Get("Authorization"), " ")
	if !found || !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

func (s *Server) authenticate(r *http.Request) (account.Principal, error) {
	if strings.TrimSpace(r.Header.Get("Authorization")) == "" {
		return account.Principal{}, fault.New(fault.Unauthorized, "missing_token")
	}
	return s.o.Accounts.Authenticate(r.Context(), bearer(r))
}

// userHandler is an endpoint for a signed-in user.
type userHandler func(w http.ResponseWriter, r *http.Request, user account.Principal) error

// signedIn requires a valid bearer token. The limits count the request for the user of a valid token, otherwise for the
// address. If the database cannot say whether the token is valid, the request is not counted, because counting would
// fail as well.
func (s *Server) signedIn(h userHandler, limits ...ratelimit.Limit) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		user, refused := s.authenticate(r)
		about(r.Context()).userID = user.UserID
		if refused == nil {
			r = r.WithContext(db.WithGate(r.Context(), s.turns.of(user.UserID)))
		}
		key := "user:" + user.UserID
		if refused != nil {
			if fault.As(refused) == nil {
				return refused
			}
			key = s.address(r)
		}
		for _, limit := range limits {
			if err := limit.Take(r.Context(), s.o.DB, key); err != nil {
				return err
			}
		}
		if refused != nil {
			return refused
		}
		return h(w, r, user)
	}
}

// admin requires the admin role in the token and in the database, so that a revocation takes effect at once.
func (s *Server) admin(h userHandler) handler {
	return s.signedIn(func(w http.ResponseWriter, r *http.Request, who account.Principal) error {
		if !who.Admin() {
			return user.ErrNotAdmin
		}
		if err := user.CheckAdmin(r.Context(), s.o.DB, who.UserID); err != nil {
			return err
		}
		return h(w, r, who)
	})
}

// unpaused refuses a submission before it reads the body, while an operator pauses submissions of its kind. It
// still answers a repeat with a known Idempotency-Key.
func (s *Server) unpaused(kind string, h userHandler) userHandler {
	return func(w http.ResponseWriter, r *http.Request, who account.Principal) error {
		paused := job.CheckPaused(r.Context(), s.o.DB, kind)
		if paused == nil {
			return h(w, r, who)
		}
		key, err := idempotencyKey(w, r, who)
		if err != nil {
			return err
		}
		if known, err := idempotency.Known(r.Context(), s.o.DB, key); err != nil || !known {
			return cmp.Or(err, paused)
		}
		return h(w, r, who)
	}
}

// withBucket answers r2_disabled without reading the request if no bucket is configured.
func (s *Server) withBucket(h userHandler) userHandler {
	return func(w http.ResponseWriter, r *http.Request, who account.Principal) error {
		if !s.o.Assets.Enabled() {
			return asset.ErrDisabled
		}
		return h(w, r, who)
	}
}

// submitter is signedIn for an account that still exists.
func (s *Server) submitter(h userHandler, limit ratelimit.Limit) handler {
	return s.signedIn(func(w http.ResponseWriter, r *http.Request, who account.Principal) error {
		if err := user.Check(r.Context(), s.o.DB, who.UserID); err != nil {
			return err
		}
		return h(w, r, who)
	}, limit)
}

// keyed gives a handler the Idempotency-Key, so that an invalid key is refused before the body is read. The handler
// adds the request's fingerprint.
func keyed(h func(w http.ResponseWriter, r *http.Request, user account.Principal, key idempotency.Key) error) userHandler {
	return func(w http.ResponseWriter, r *http.Request, user account.Principal) error {
		key, err := idempotencyKey(w, r, user)
		if err != nil {
			return err
		}
		return h(w, r, user, key)
	}
}

// idempotencyKey reads the optional header.
func idempotencyKey(w http.ResponseWriter, r *http.Request, user account.Principal) (idempotency.Key, error) {
	v := strings.TrimSpace(r.Header.Get("Idempotency-Key"))
	if len(v) > idempotency.MaxKeyLength || strings.ContainsFunc(v, func(c rune) bool { return c < ' ' || c > '~' }) {
		return idempotency.Key{}, fault.Invalidf("Idempotency-Key must be at most %d printable ASCII characters", idempotency.MaxKeyLength)
	}
	return idempotency.Key{UserID: user.UserID, Value: v, OnReplay: func() { w.Header().Set("Idempotent-Replayed", "true") }}, nil
}

type jobBody struct {
	JobID string `json:"jobId"`
}

// submitted answers with a body that names the submitted job and the path of its state, or returns the domain's error.
func submitted(w http.ResponseWriter, r *http.Request, status int, jobID, path string, body any, err error) error {
	if err != nil {
		return err
	}
	about(r.Context()).jobID = jobID
	w.Header().Set("Location", path)
	writeJSON(w, status, body)
	return nil
}

// deleteJob returns the endpoint that cancels and deletes a job. remove determines the kind.
func deleteJob(remove func(ctx context.Context, owner, jobID string) error) userHandler {
	return func(w http.ResponseWriter, r *http.Request, user account.Principal) error {
		return noContent(w, remove(r.Context(), user.UserID, r.PathValue("jobId")))
	}
}

// preference returns the first value of a preference of the request (RFC 7240), or "".
func preference(r *http.Request, name string) string {
	for _, list := range r.Header.Values("Prefer") {
		for _, p := range splitHeader(list, ',') {
			given, value, _ := strings.Cut(splitHeader(p, ';')[0], "=")
			if strings.EqualFold(strings.TrimSpace(given), name) {
				return strings.Trim(strings.TrimSpace(value), `"`)
			}
		}
	}
	return ""
}

// strictHandling is the preference that makes unknown keys an error.
const strictHandling = "handling=strict"

func prefersStrict(r *http.Request) bool {
	return strings.EqualFold(preference(r, "handling"), "strict")
}

// splitHeader splits a header at separators outside quotes.
func splitHeader(header string, separator byte) []string {
	var fields []string
	quoted, start := false, 0
	for i := 0; i < len(header); i++ {
		switch {
		case header[i] == '\\' && quoted:
			i++
		case header[i] == '"':
			quoted = !quoted
		case header[i] == separator && !quoted:
			fields, start = append(fields, header[start:i]), i+1
		}
	}
	return append(fields, header[start:])
}
