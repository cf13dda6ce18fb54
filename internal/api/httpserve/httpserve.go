// Package httpserve is an HTTP server that a few clients cannot block: each client gets a share of the connections, and
// a client that sends or reads too slowly is cut off. It does not look at routes, bodies or answers.
package httpserve

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// Server is a server that stops without losing a request.
type Server struct {
	http.Server
	served chan struct{} // closed when Serve returns
	unread atomic.Int64  // connections whose first request has not been read
}

// New returns a server of h, which should be wrapped by Guard. The listener should come from Listen.
func New(h http.Handler, log *slog.Logger) *Server {
	s := &Server{served: make(chan struct{}), Server: http.Server{
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}}
	s.ConnState = s.count
	return s
}

// Serve is [http.Server.Serve]. It may be called once.
func (s *Server) Serve(l net.Listener) error {
	defer close(s.served)
	return s.Server.Serve(l)
}

// count follows a connection until its first request is read. The server calls it in order for each connection.
func (s *Server) count(c net.Conn, state http.ConnState) {
	our, ok := c.(*conn)
	switch {
	case !ok:
	case state == http.StateNew:
		our.unread = true
		s.unread.Add(1)
	case our.unread:
		our.unread = false
		s.unread.Add(-1)
	}
}

const (
	// unreadGrace is how long a stopping server waits for the first requests of its connections. Some clients connect
	// in advance and send none.
	unreadGrace = 2 * time.Second
	unreadTick  = 5 * time.Millisecond
)

// Stop closes the listener that Serve serves, waits for the first requests of its connections, and shuts the server
// down. [http.Server.Shutdown] alone would close a connection whose first request arrives a moment later, and a reverse
// proxy does not retry a POST.
func (s *Server) Stop(ctx context.Context, l net.Listener) error {
	err := l.Close()
	<-s.served
	for end := time.Now().Add(unreadGrace); ; {
		waiting := s.unread.Load() > 0
		time.Sleep(unreadTick) // even after the last request was read: it must reach its handler
		if !waiting || time.Now().After(end) {
			return errors.Join(err, s.Shutdown(ctx))
		}
	}
}
