package httpapi

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"runtime/debug"
	"time"

	"cutroom/internal/base/fault"
)

type recorderKey struct{}

// recorder records a request and its answer, for the log, metrics and traces. It is not safe for concurrent use.
type recorder struct {
	http.ResponseWriter
	status int // 0 before the answer
	bytes  int64

	id    string // of the request
	jobID string // of the submitted job
	// waited is how long the request waited because the client asked it to.
	waited time.Duration

	userID string // of a valid token, or ""
}

// about returns the request's recorder, never nil.
func about(ctx context.Context) *recorder {
	if r, ok := ctx.Value(recorderKey{}).(*recorder); ok {
		return r
	}
	return &recorder{}
}

// statusGone is the status in logs and metrics of a request whose client disconnected before the answer. It is
// never sent.
const statusGone = 499

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
		rec := &recorder{ResponseWriter: w, id: fmt.Sprintf("%016x", rand.Uint64())}
		ctx := withLimit(context.WithValue(r.Context(), recorderKey{}, rec))
		spanned := func(string, int) {}
		if r.URL.Path != "/healthz" {
			ctx, spanned = s.o.Tracer.Request(ctx, methodLabel(r.Method), r.Header, s.fromProxy(r))
		}
		r = r.WithContext(ctx)
		rec.Header().Set("X-Request-Id", rec.id)
		rec.Header().Set("X-Content-Type-Options", "nosniff")
		defer func() {
			if p := recover(); p != nil {
				s.panicked(rec, r, p)
			}
			s.finish(rec, r, time.Since(started))
			spanned(route(r), rec.status)
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
	s.o.Log.Error("panic in a handler", "request", rec.id, "route", route(r),
		"err", fmt.Errorf("panic: %v", p), "stack", string(debug.Stack()))
	if rec.status == 0 {
		writeError(rec, fault.Sentencef(fault.Internal, "Internal server error"))
	}
}

// route returns the pattern of the matched route.
func route(r *http.Request) string { return cmp.Or(r.Pattern, "unmatched") }

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
	s.o.Observe(methodLabel(r.Method), route(r), rec.status, (took - rec.waited).Seconds())
	level := slog.LevelInfo
	if r.URL.Path == "/healthz" {
		level = slog.LevelDebug
	}
	if !s.o.Log.Enabled(r.Context(), level) {
		return
	}
	// The path only: queries contain signed tokens.
	fields := []slog.Attr{slog.String("request", rec.id), slog.String("method", r.Method), slog.String("path", r.URL.Path),
		slog.Int("status", rec.status), slog.Int64("bytes", rec.bytes), slog.Int64("ms", took.Milliseconds()),
		slog.String("ip", s.clientIP(r))}
	if rec.userID != "" {
		fields = append(fields, slog.String("user", rec.userID))
	}
	if rec.waited > 0 {
		fields = append(fields, slog.Int64("waitedMs", rec.waited.Milliseconds()))
	}
	if job := cmp.Or(rec.jobID, r.PathValue("jobId")); job != "" {
		fields = append(fields, slog.String("job", job))
	}
	s.o.Log.LogAttrs(r.Context(), level, "request", fields...)
}
