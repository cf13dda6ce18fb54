// Package httpserve is an HTTP server that a few clients cannot block: each client gets a share of the
// connections, and a client that sends or reads too slowly is cut off. It does not look at routes, bodies or
// answers.
package httpserve

import (
	"log/slog"
	"net/http"
	"time"
)

// New returns a server of h, which should be wrapped by Guard. The listener should come from Listen.
func New(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}
