package httpapi

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"cutroom/internal/account"
	"cutroom/internal/fault"
)

type requestKey struct{}

// request is what the server records about a request. It is not safe for concurrent use.
type request struct {
	id    string
	jobID string // of the submitted job
	// waited is how long the request waited because the client asked it to.
	waited time.Duration

	// The authenticated user, after a handler has asked for it.
	asked     bool
	principal account.Principal
	refused   error
}

// about returns the request's record, never nil.
func about(ctx context.Context) *request {
	if r, ok := ctx.Value(requestKey{}).(*request); ok {
		return r
	}
	return &request{}
}

// requestID returns the id of the request in the log, or "".
func requestID(ctx context.Context) string { return about(ctx).id }

func newRequestID() string {
	var b [8]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// statusGone is the status in logs and metrics of a request whose client disconnected before the answer. It is
// never sent.
const statusGone = 499

// recorder records the answer.
type recorder struct {
	http.ResponseWriter
	status  int
	bytes   int64
	pattern string
}

func (w *recorder) WriteHeader(status int) {
	if w.status == 0 && status >= 200 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *recorder) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	n, err := w.ResponseWriter.Write(b)
	w.bytes += int64(n)
	return n, err
}

// Unwrap lets http.ResponseController reach the connection.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// observed gives each request an id, logs, counts and traces it, and answers a panic with 500.
func (s *Server) observed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		started := time.Now()
		id := newRequestID()
		ctx := withLimit(context.WithValue(r.Context(), requestKey{}, &request{id: id}))
		spanned := func(string, int) {}
		if r.URL.Path != "/healthz" {
			ctx, spanned = s.o.Tracer.Request(ctx, methodLabel(r.Method), r.Header, s.fromProxy(r))
		}
		rec := &recorder{ResponseWriter: w}
		r = r.WithContext(ctx)
		rec.Header().Set("X-Request-Id", id)
		rec.Header().Set("X-Content-Type-Options", "nosniff")
		defer func() {
			if p := recover(); p != nil {
				s.panicked(rec, r, p)
			}
			s.finish(rec, r, time.Since(started))
			spanned(rec.route(), rec.status)
			if rec.status == statusGone {
				// A client that only closed its sending half would otherwise read an empty 200.
				panic(http.ErrAbortHandler)
			}
		}()
		next.ServeHTTP(rec, r)
	})
}

func (s *Server) panicked(rec *recorder, r *http.Request, p any) {
	if p == http.ErrAbortHandler {
		panic(p)
	}
	s.log.Error("panic in a handler", "request", requestID(r.Context()), "route", rec.route(),
		"err", fmt.Errorf("panic: %v", p), "stack", string(debug.Stack()))
	if rec.status == 0 {
		writeError(rec, fault.Sentencef(fault.Internal, "Internal server error"))
	}
}

// route returns the pattern of the matched route.
func (w *recorder) route() string {
	if w.pattern == "" {
		return "unmatched"
	}
	return w.pattern
}

// methodLabel returns the method as a label for metrics. Clients can send any word as a method, so unknown ones
// share a series.
func methodLabel(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return method
	}
	return "other"
}

func (s *Server) finish(rec *recorder, r *http.Request, took time.Duration) {
	if rec.status == 0 {
		rec.status = http.StatusOK
	}
	known := about(r.Context())
	s.o.Observe(methodLabel(r.Method), rec.route(), rec.status, (took - known.waited).Seconds())
	level := slog.LevelInfo
	if r.URL.Path == "/healthz" {
		level = slog.LevelDebug
	}
	if !s.log.Enabled(r.Context(), level) {
		return
	}
	// The path only: queries contain signed tokens.
	fields := append(make([]slog.Attr, 0, 10), slog.String("request", known.id), slog.String("method", r.Method),
		slog.String("path", r.URL.Path),
		slog.Int("status", rec.status), slog.Int64("bytes", rec.bytes), slog.Int64("ms", took.Milliseconds()), slog.String("ip", s.clientIP(r)))
	if known.principal.UserID != "" {
		fields = append(fields, slog.String("user", known.principal.UserID))
	}
	if known.waited > 0 {
		fields = append(fields, slog.Int64("waitedMs", known.waited.Milliseconds()))
	}
	if job := cmp.Or(known.jobID, r.PathValue("jobId")); job != "" {
		fields = append(fields, slog.String("job", job))
	}
	s.log.LogAttrs(r.Context(), level, "request", fields...)
}
