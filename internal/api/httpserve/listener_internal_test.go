// The listener on real sockets: the share of an address, slow downloads, and the requests that a stop still answers.

package httpserve

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// listening serves h behind the service's own listener, which trusts 127.0.0.3.
func listening(t *testing.T, h http.Handler) (address string, refused *atomic.Int32) {
	t.Helper()
	refused = new(atomic.Int32)
	l, err := Listen(t.Context(), "127.0.0.1:0", []netip.Prefix{netip.MustParsePrefix("127.0.0.3/32")}, func(string) { refused.Add(1) })
	if err != nil {
		t.Fatal(err)
	}
	srv := New(h, slog.New(slog.DiscardHandler))
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(l) }()
	t.Cleanup(func() {
		_ = srv.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return l.Addr().String(), refused
}

// dialFrom connects from one of this machine's own addresses.
func dialFrom(t *testing.T, from, address string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := d.DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(tooLong)); err != nil {
		t.Fatal(err)
	}
	return c
}

// answered reports whether a request on the connection is answered.
func answered(c net.Conn) bool {
	if _, err := io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		return false
	}
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return false
	}
	_ = answer.Body.Close()
	return answer.StatusCode == http.StatusOK
}

func TestOneAddressCannotTakeAllConnections(t *testing.T) {
	address, refused := listening(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	held := make([]net.Conn, maxPerClient)
	for i := range held {
		held[i] = dialFrom(t, "127.0.0.1", address)
	}
	if !answered(held[maxPerClient-1]) {
		t.Fatal("the last connection of the share is not served")
	}
	if answered(dialFrom(t, "127.0.0.1", address)) || refused.Load() != 1 {
		t.Errorf("a connection beyond the share is served; %d were refused", refused.Load())
	}
	if !answered(dialFrom(t, "127.0.0.2", address)) {
		t.Error("another address is shut out")
	}
	for range maxPerClient + 1 { // a proxy speaks for many
		c := dialFrom(t, "127.0.0.3", address)
		if !answered(c) {
			t.Fatal("a trusted proxy is bound to a share")
		}
	}
	_ = held[0].Close()
	for end := time.Now().Add(tooLong); !answered(dialFrom(t, "127.0.0.1", address)); {
		if time.Now().After(end) {
			t.Fatal("the place of a connection that ended is not given again")
		}
	}
}

// What net/http wants of a connection beyond net.Conn: to end a refused upload without a reset, and to send files
// without copying.
var _ interface {
	CloseWrite() error
	io.ReaderFrom
	syscall.Conn
} = &conn{}

func TestHolder(t *testing.T) {
	for address, want := range map[string]string{"192.0.2.1": "192.0.2.1", "2001:db8:1:2::3": "2001:db8:1:2::/64", "2001:db8:1:2:ffff::9": "2001:db8:1:2::/64",
		"2001:db8:1:3::3": "2001:db8:1:3::/64", "a client": "a client"} {
		if got := Holder(address); got != want {
			t.Errorf("%s belongs to %s, want %s", address, got, want)
		}
	}
}

// writesOn is a handler that writes until that fails, and reports the error.
func writesOn(ended chan<- error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		piece := make([]byte, 32<<10)
		for {
			if _, err := w.Write(piece); err != nil {
				ended <- err
				return
			}
		}
	}
}

// download serves an endless answer behind the service's listener, and returns a connection whose kernel holds little,
// and how the answer ends.
func download(t *testing.T, p timeouts) (net.Conn, <-chan error) {
	t.Helper()
	ended := make(chan error, 1)
	address, _ := listening(t, guard{writesOn(ended), nil, p})
	c := dialFrom(t, "127.0.0.1", address)
	if err := c.(*net.TCPConn).SetReadBuffer(16 << 10); err != nil {
		t.Fatal(err)
	}
	say(t, c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	return c, ended
}

// readAt reads at a rate of bytes a second, until ctx ends.
func readAt(ctx context.Context, c net.Conn, rate int) {
	const a = 50
	tick := time.NewTicker(time.Second / a)
	defer tick.Stop()
	for ctx.Err() == nil {
		<-tick.C
		if _, err := io.CopyN(io.Discard, c, int64(rate/a)); err != nil {
			return
		}
	}
}

func TestADrippingDownloadIsCutOff(t *testing.T) {
	t.Parallel()
	p := hasty
	p.minDownloadRate = 256 << 10
	c, ended := download(t, p)
	go readAt(t.Context(), c, 32<<10)
	if err := wait(t, ended); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the download of a dripping reader ends with %v", err)
	}
}

// A client's kernel takes bytes in large pieces.
func TestASlowDownloadMayTakeItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := hasty
		p.minDownloadRate, p.downloadGrace = 64<<10, time.Second
		ended := make(chan error, 1)
		c := hastyConn(t, p, writesOn(ended))
		say(t, c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		for range 12 {
			if _, err := io.CopyN(io.Discard, c, 64<<10); err != nil {
				t.Fatal(err)
			}
			time.Sleep(p.downloadGrace / 4)
		}
		select {
		case err := <-ended:
			t.Errorf("a slow but steady reader was cut off: %v", err)
		default:
		}
	})
}

// Only the time spent writing counts against a reader.
func TestThinkingBetweenWritesIsNotSlowReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := hasty
		p.downloadGrace = 200 * time.Millisecond
		c := hastyConn(t, p, func(w http.ResponseWriter, _ *http.Request) {
			for range 3 {
				if _, err := fmt.Fprintf(w, "%08000d", 1); err != nil {
					panic(err)
				}
				time.Sleep(2 * p.downloadGrace)
			}
		})
		say(t, c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		answer, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := io.Copy(io.Discard, answer.Body); n != 24000 || err != nil {
			t.Errorf("%d bytes came, %v", n, err)
		}
	})
}

// A request that is sent, after the stop has begun, on a connection that was accepted before is still answered: a front
// would not repeat a POST.
func TestStopServesAcceptedConnections(t *testing.T) {
	l, err := Listen(t.Context(), "127.0.0.1:0", nil, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	srv := New(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), slog.New(slog.DiscardHandler))
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	var clients []net.Conn
	for range 5 {
		clients = append(clients, dialFrom(t, "127.0.0.1", l.Addr().String()))
	}
	for srv.unread.Load() < int64(len(clients)) {
		time.Sleep(time.Millisecond)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- srv.Stop(t.Context(), l) }()
	if err := <-served; !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	for i, c := range clients {
		if !answered(c) {
			t.Errorf("connection %d was reset or closed", i)
		}
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if _, err := net.Dial("tcp", l.Addr().String()); err == nil {
		t.Error("the listener is still open")
	}
}
