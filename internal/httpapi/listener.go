package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

const (
	// maxConnections bounds open client connections of one process. Those beyond
	// it wait in the kernel's queue.
	maxConnections = 4096
	// maxPerClient bounds those of one client, by address or /64, unless it is a
	// trusted proxy. Many phones may share an address.
	maxPerClient = 256
	// maxUnsent is how many bytes of an answer may wait in the kernel, beyond
	// those that are under way. Behind a buffer of megabytes one write could
	// block for minutes although the client reads all the time.
	maxUnsent = 128 << 10
)

// listener shares its connections out among the clients.
type listener struct {
	*net.TCPListener
	trusted []netip.Prefix
	refused func(client string)
	slots   chan struct{}
	done    func()
	closed  <-chan struct{}
	clients *shares
}

// Listen returns the listener of the API at a TCP address. A client that holds
// its share of connections is refused more, and refused is called with its
// address. The server that accepts from it must have ConnContext.
func Listen(ctx context.Context, address string, trusted []netip.Prefix, refused func(client string)) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	tcp, isTCP := l.(*net.TCPListener)
	if !isTCP {
		return nil, errors.Join(fmt.Errorf("listen: %T is not a TCP listener", l), l.Close())
	}
	closing, done := context.WithCancel(context.WithoutCancel(ctx))
	return &listener{TCPListener: tcp, trusted: trusted, refused: refused, slots: make(chan struct{}, maxConnections),
		done: done, closed: closing.Done(), clients: newShares(maxPerClient)}, nil
}

// Accept returns the next connection of a client that may have one more.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case l.slots <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	for {
		c, err := l.AcceptTCP()
		if err != nil {
			<-l.slots
			return nil, err
		}
		if client, ok := l.take(c); ok {
			_ = control(c, func(fd int) error { return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, maxUnsent) })
			return &conn{TCPConn: c, release: sync.OnceFunc(func() { <-l.slots; l.clients.give(client) })}, nil
		}
		_ = c.Close()
	}
}

// take counts a connection of its client, "" for a trusted proxy, or reports
// that the client has its share.
func (l *listener) take(c *net.TCPConn) (client string, ok bool) {
	remote, _ := c.RemoteAddr().(*net.TCPAddr)
	peer := remote.AddrPort().Addr().Unmap().WithZone("")
	if inAny(peer, l.trusted) {
		return "", true
	}
	client = holder(peer.String())
	if !l.clients.take(client) {
		l.refused(client)
		return client, false
	}
	return client, true
}

// Close stops accepting.
func (l *listener) Close() error {
	l.done()
	return l.TCPListener.Close()
}

func control(c *net.TCPConn, set func(fd int) error) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = set(int(fd)) })
	return errors.Join(err, failed)
}

// conn is a connection that watches how its requests are framed. All that
// net/http finds in a TCP connection, such as CloseWrite, is there.
type conn struct {
	*net.TCPConn
	release   func()
	framing   framing     // of the one goroutine that reads
	ambiguous atomic.Bool // a request said twice how long it is
}

// Read reads, and looks at what was read.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.TCPConn.Read(b)
	if c.framing.twice(b[:n]) {
		c.ambiguous.Store(true)
	}
	return n, err
}

// Close ends the connection and its share.
func (c *conn) Close() error {
	defer c.release()
	return c.TCPConn.Close()
}

type connKey struct{}

// ConnContext lets the API know the connection of a request.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// framed refuses a request with both Content-Length and Transfer-Encoding. A
// proxy in front that goes by the length would take the rest of the body for
// the next request, or let a client make it. net/http drops the length before a
// handler sees it, so the connection looks.
func framed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, _ := r.Context().Value(connKey{}).(*conn)
		if c != nil && len(r.TransferEncoding) > 0 {
			w.Header().Set("Connection", "close") // where the next request begins was not followed
		}
		if c != nil && c.ambiguous.Load() {
			w.Header().Set("Connection", "close")
			writeError(w, errBadRequest.WithDetail("a request has either Content-Length or Transfer-Encoding"))
			return
		}
		next.ServeHTTP(w, r)
	})
}
