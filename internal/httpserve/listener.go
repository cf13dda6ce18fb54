package httpserve

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

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

// queueDrain is how long a closing listener still accepts: the kernel resets connections that are in its queue when the
// socket closes, and a front repeats no POST after a reset.
const queueDrain = 200 * time.Millisecond

// listener limits the connections of each client.
type listener struct {
	*net.TCPListener
	trusted []netip.Prefix
	refused func(client string)
	slots   chan struct{}
	clients *Shares
	closed  chan struct{}
	close   func() error
}

// Listen returns a listener at a TCP address. It closes connections beyond a client's share, and calls refused
// with the client's address. Trusted proxies have no limit.
func Listen(ctx context.Context, address string, trusted []netip.Prefix, refused func(client string)) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	out := &listener{TCPListener: l.(*net.TCPListener), trusted: trusted, refused: refused,
		slots: make(chan struct{}, maxConnections), clients: NewShares(maxPerClient), closed: make(chan struct{})}
	out.close = sync.OnceValue(out.drain)
	return out, nil
}

// Accept returns the next connection of a trusted proxy or of a client that is below its limit, and closes any other.
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
			if errors.Is(err, os.ErrDeadlineExceeded) {
				err = net.ErrClosed
			}
			return nil, err
		}
		remote, _ := c.RemoteAddr().(*net.TCPAddr)
		peer := Plain(remote.AddrPort().Addr())
		client := "" // a proxy, which takes no share
		if !Contains(l.trusted, peer) {
			client = Holder(peer.String())
			if !l.clients.Take(client) {
				l.refused(client)
				_ = c.Close()
				continue
			}
		}
		limitUnsent(c)
		return &conn{TCPConn: c, release: sync.OnceFunc(func() { <-l.slots; l.clients.Give(client) })}, nil
	}
}

func limitUnsent(c *net.TCPConn) {
	if raw, err := c.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, maxUnsent) })
	}
}

// Close closes the socket after [queueDrain], and does not wait for that.
func (l *listener) Close() error { return l.close() }

func (l *listener) drain() error {
	time.AfterFunc(queueDrain, func() {
		_ = l.TCPListener.Close()
		close(l.closed)
	})
	return l.SetDeadline(time.Now().Add(queueDrain))
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
