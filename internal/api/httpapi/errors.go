// Answers: how an error becomes a status, a body and a log line, and how a success is written. The one table of
// statuses is here.

package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"time"

	"cutroom/internal/base/db"
	"cutroom/internal/base/fault"
	"cutroom/internal/storage/disk"
	"cutroom/internal/storage/objectstore"
)

// statuses maps each kind of failure to its HTTP status. No other code does.
var statuses = map[fault.Kind]int{
	fault.Internal:        http.StatusInternalServerError,
	fault.Invalid:         http.StatusBadRequest,
	fault.Unauthorized:    http.StatusUnauthorized,
	fault.PaymentRequired: http.StatusPaymentRequired,
	fault.Forbidden:       http.StatusForbidden,
	fault.NotFound:        http.StatusNotFound,
	fault.TooLarge:        http.StatusRequestEntityTooLarge,
	fault.Encoded:         http.StatusUnsupportedMediaType,
	fault.RateLimited:     http.StatusTooManyRequests,
	fault.BadGateway:      http.StatusBadGateway,
	fault.Unavailable:     http.StatusServiceUnavailable,
}

// errorBody is the body of every error answer.
type errorBody struct {
	Error  string `json:"error"`
	Detail string `json:"detail,omitempty"`
	Field  string `json:"field,omitempty"`
	*shortfallBody
}

// shortfallBody is what the answer insufficient_credits adds to an errorBody.
type shortfallBody struct {
	Required int64 `json:"required"`
	Balance  int64 `json:"balance"`
}

// errBadRequest refuses a body that cannot be parsed.
var errBadRequest = fault.New(fault.Invalid, "bad_request")

// handler is an endpoint. It writes the answer or returns an error.
type handler func(w http.ResponseWriter, r *http.Request) error

// serve adapts a handler. It writes the answer for an error and logs each cause once. Only internal failures are logged
// at level error, which the monitor reports.
func (s *Server) serve(h handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := h(w, r); err != nil {
			s.answerError(w, r, err)
		}
	})
}

func (s *Server) answerError(w http.ResponseWriter, r *http.Request, err error) {
	rec := about(r.Context())
	log := s.o.Log.With("request", rec.id, "method", r.Method, "path", r.URL.Path, "route", route(r))
	if gone(r, err) {
		log.Debug("client went away", "err", err)
		if rec.status == 0 {
			rec.status = statusGone
		}
		return
	}
	if of := dependency(err); of != "" && fault.As(err) == nil {
		s.outages.Log(log, slog.LevelError, of, "a dependency does not answer", "of", of, "err", err)
		err = errUnavailable
	}
	if rec.status != 0 {
		// The client sees a body shorter than its Content-Length. This line is the only sign for operators.
		if !errors.Is(err, errUnavailable) {
			log.Error("answer broke off", "err", err)
		}
		return
	}
	f := fault.As(err)
	switch {
	case f != nil && f.Kind != fault.Internal:
		if f.Err != nil {
			level := slog.LevelInfo
			if f.Kind == fault.BadGateway || f.Kind == fault.Unavailable {
				level = slog.LevelWarn
			}
			log.Log(r.Context(), level, "request refused", "error", f.Answer(), "cause", f.Err)
		}
	case disk.IsFull(err):
		log.Error("no space left", "err", err)
		f = &fault.Error{Kind: fault.Unavailable, Sentence: "The service is short of storage, please try again later", RetryAfter: time.Minute}
	default:
		log.Error("request failed", "err", err)
		f = fault.Sentencef(fault.Internal, "Internal server error")
	}
	writeError(w, f)
}

// errUnavailable is the answer while a dependency is down.
var errUnavailable = fault.Busy(10 * time.Second)

// dependencyLimit is how long a request waits for the database or the bucket. It leaves time to answer within 10 s, not
// counting the transfer of bodies.
const dependencyLimit = 7 * time.Second

// withLimit bounds how long a request waits for database and bucket.
func withLimit(ctx context.Context) context.Context {
	return objectstore.WithLimit(db.WithLimit(ctx, dependencyLimit), dependencyLimit)
}

// dependency names the dependency that caused an error, or returns "".
func dependency(err error) string {
	switch {
	case errors.Is(err, db.ErrUnavailable):
		return "database"
	case errors.Is(err, objectstore.ErrUnavailable), errors.Is(err, objectstore.ErrRefused), errors.Is(err, objectstore.ErrUnsupported):
		return "object store"
	}
	return ""
}

// gone reports that the client disconnected and will not read an answer.
func gone(r *http.Request, err error) bool {
	return r.Context().Err() != nil && errors.Is(context.Cause(r.Context()), context.Canceled) &&
		(errors.Is(err, context.Canceled) || fault.As(err) == nil)
}

func writeError(w http.ResponseWriter, f *fault.Error) {
	if f.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(f.RetryAfter.Seconds()))))
	}
	if f.Kind == fault.Unauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	writeJSON(w, statuses[f.Kind], errorBody{f.Answer(), f.Detail, f.Field, (*shortfallBody)(f.Shortfall)})
}

// writeJSON writes an answer. It drops write errors: the connection has failed, so nobody could receive them.
func writeJSON(w http.ResponseWriter, status int, body any) { writeEncoded(w, status, encode(body)) }

func writeEncoded(w http.ResponseWriter, status int, encoded []byte) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Length", strconv.Itoa(len(encoded)))
	w.WriteHeader(status)
	_, _ = w.Write(encoded)
}

// encode returns the JSON of a body and a line feed.
func encode(body any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(body); err != nil {
		panic(err) // a bug: every body can be encoded
	}
	return b.Bytes()
}

// answer answers 200 with the body, or returns the domain's error.
func answer(w http.ResponseWriter, body any, err error) error {
	if err != nil {
		return err
	}
	return ok(w, body)
}

// noContent answers 204, or returns the domain's error.
func noContent(w http.ResponseWriter, err error) error {
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
	}
	return err
}

// ok answers 200 with a body.
func ok(w http.ResponseWriter, body any) error {
	writeJSON(w, http.StatusOK, body)
	return nil
}
