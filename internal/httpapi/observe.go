package httpapi

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"cutroom/internal/fault"
)

type requestIDKey struct{}

// requestID is the id under which the request is logged, or "".
func requestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}

// RequestID is the id of the request that ctx belongs to, or "" outside of one.
func RequestID(ctx context.Context) string { return requestID(ctx) }

func newRequestID() string {
	var b [8]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// recorder remembers what was answered.
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

// observed gives each request an id, logs and counts it, and turns a panic
// into a 500 that reaches the monitoring.
func (s *Server) observed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		started := time.Now()
		id := newRequestID()
		r = r.WithContext(context.WithValue(r.Context(), requestIDKey{}, id))
		rec := &recorder{ResponseWriter: w}
		rec.Header().Set("X-Request-Id", id)
		rec.Header().Set("X-Content-Type-Options", "nosniff")
		defer func() {
			if p := recover(); p != nil {
				s.panicked(rec, r, p)
			}
			s.finish(rec, r, time.Since(started))
		}()
		next.ServeHTTP(rec, withPatience(rec, r))
	})
}

func (s *Server) panicked(rec *recorder, r *http.Request, p any) {
	if p == http.ErrAbortHandler {
		panic(p)
	}
	err := fmt.Errorf("panic: %v", p)
	s.log.Error("panic in a handler", "request", requestID(r.Context()), "path", r.URL.Path, "err", err, "stack", string(debug.Stack()))
	s.o.Report(r.Context(), err)
	if rec.status == 0 {
		writeError(rec, fault.New(fault.Internal, "Internal server error"))
	}
}

func (s *Server) finish(rec *recorder, r *http.Request, took time.Duration) {
	if rec.status == 0 {
		rec.status = http.StatusOK
	}
	pattern := rec.pattern
	if pattern == "" {
		pattern = "unmatched"
	}
	s.o.Observe(r.Method, pattern, rec.status, took.Seconds())
	level := slog.LevelInfo
	if r.URL.Path == "/healthz" {
		level = slog.LevelDebug
	}
	// The path only: queries carry signed tokens.
	s.log.Log(r.Context(), level, "request", "request", requestID(r.Context()), "method", r.Method, "path", r.URL.Path,
		"status", rec.status, "bytes", rec.bytes, "ms", took.Milliseconds(), "ip", s.clientIP(r))
}

// RouteName is the shape of a request's path for traces: ids are left out.
func RouteName(r *http.Request) string {
	parts := strings.Split(r.URL.Path, "/")
	for i, p := range parts {
		if len(p) > 24 || strings.HasPrefix(p, "rnd-") || strings.HasPrefix(p, "sep-") {
			parts[i] = "{id}"
		}
	}
	return r.Method + " " + strings.Join(parts, "/")
}
