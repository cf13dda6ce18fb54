// Package httpserve is an HTTP server that strangers cannot hold up: connections
// are shared out among clients, and a client that sends or reads too slowly is cut
// off. It knows nothing of routes, bodies or answers.
package httpserve

import (
	"log/slog"
	"net/http"
	"time"
)

// New returns a server of h, which should be guarded, for a listener of Listen.
func New(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}
