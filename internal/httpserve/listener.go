package httpserve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	// maxConnections bounds the open client connections of one process. Further ones wait in the kernel's
	// queue.
	maxConnections = 4096
	// maxPerClient bounds the connections of one client, by address or /64. It is
	// generous because many phones may share an address.
	maxPerClient = 256
	// maxUnsent is how many bytes of an answer may wait in the kernel, besides those in flight. With a buffer
	// of megabytes, one write could block for minutes although the client reads all the time.
	maxUnsent = 128 << 10
)

// listener limits the connections of each client.
type listener struct {
	*net.TCPListener
	trusted []netip.Prefix
	refused func(client string)
	slots   chan struct{}
	done    func()
	closed  <-chan struct{}
	clients *Shares
}

// Listen returns a listener at a TCP address. It closes connections beyond a client's share, and calls refused
// with the client's address. Trusted proxies have no limit.
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
		done: done, closed: closing.Done(), clients: NewShares(maxPerClient)}, nil
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
		if client, ok := l.admit(c); ok {
			_ = control(c, func(fd int) error { return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, maxUnsent) })
			return &conn{TCPConn: c, release: sync.OnceFunc(func() { <-l.slots; l.clients.Give(client) })}, nil
		}
		_ = c.Close()
	}
}

// admit counts a connection for its client, "" for a trusted proxy. It reports false if the client has its
// share.
func (l *listener) admit(c *net.TCPConn) (client string, ok bool) {
	remote, _ := c.RemoteAddr().(*net.TCPAddr)
	peer := remote.AddrPort().Addr().Unmap().WithZone("")
	if slices.ContainsFunc(l.trusted, func(p netip.Prefix) bool { return p.Contains(peer) }) {
		return "", true
	}
	client = Holder(peer.String())
	if !l.clients.Take(client) {
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

// conn returns its place to the client's share when it closes. It embeds the TCP connection, because net/http
// uses methods such as CloseWrite.
type conn struct {
	*net.TCPConn
	release func()
}

// Close ends the connection.
func (c *conn) Close() error {
	defer c.release()
	return c.TCPConn.Close()
}
