package httpserve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// maxConnections bounds the open client connections of one process. Further connections wait in the kernel's queue.
	maxConnections = 4096
	// maxPerClient bounds the connections of one client, by address or /64. It is generous because many phones may
	// share an address.
	maxPerClient = 256
	// maxUnsent is how many bytes of an answer may wait in the kernel, besides those in flight. With a buffer of
	// megabytes, one write could block for minutes although the client reads all the time.
	maxUnsent = 128 << 10
)

// listener limits the connections of each client.
type listener struct {
	*net.TCPListener
	trusted []netip.Prefix
	refused func(client string)
	slots   chan struct{}
	closed  chan struct{} // ends an Accept that waits for a slot
	clients *Shares
	close   func() error
}

// Listen returns a listener at a TCP address. It closes connections beyond a client's share, and calls refused with the
// client's address. Trusted proxies have no limit.
func Listen(ctx context.Context, address string, trusted []netip.Prefix, refused func(client string)) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	tcp, isTCP := l.(*net.TCPListener)
	if !isTCP {
		return nil, errors.Join(fmt.Errorf("listen: %T is not a TCP listener", l), l.Close())
	}
	out := &listener{TCPListener: tcp, trusted: trusted, refused: refused, slots: make(chan struct{}, maxConnections),
		closed: make(chan struct{}), clients: NewShares(maxPerClient)}
	out.close = sync.OnceValue(func() error {
		close(out.closed)
		return tcp.Close()
	})
	return out, nil
}

// Accept returns the next connection of a client that is below its limit.
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
		if accepted, ok := l.admitted(c); ok {
			return accepted, nil
		}
	}
}

// admitted returns the connection of a trusted proxy or of a client that is below its limit, which holds a slot until
// it closes. It closes any other connection.
func (l *listener) admitted(c *net.TCPConn) (net.Conn, bool) {
	remote, _ := c.RemoteAddr().(*net.TCPAddr)
	peer := Plain(remote.AddrPort().Addr())
	client := "" // a proxy, which takes no share
	if !Contains(l.trusted, peer) {
		client = Holder(peer.String())
		if !l.clients.Take(client) {
			l.refused(client)
			_ = c.Close()
			return nil, false
		}
	}
	_ = control(c, func(fd int) error { return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, maxUnsent) })
	return &conn{TCPConn: c, release: sync.OnceFunc(func() { <-l.slots; l.clients.Give(client) })}, true
}

// Close stops accepting. The kernel resets the connections that nobody has accepted yet.
func (l *listener) Close() error { return l.close() }

func control(c syscall.Conn, set func(fd int) error) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = set(int(fd)) })
	return errors.Join(err, failed)
}

// conn returns its place to the client's share when it closes. It embeds the TCP connection, because net/http uses
// methods such as CloseWrite.
type conn struct {
	*net.TCPConn
	release func()
	unread  bool // its first request has not been read
}

// Close ends the connection.
func (c *conn) Close() error {
	defer c.release()
	return c.TCPConn.Close()
}
