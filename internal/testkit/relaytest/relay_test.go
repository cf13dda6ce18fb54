package relaytest

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

func TestFaults(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	go func() { // echoes
		for {
			c, err := server.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	r := New(t, server.Addr().String())
	dial := func() net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", r.Addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	// echo sends n bytes and returns how many came back within the limit, and the error that ended the answer.
	echo := func(c net.Conn, n int, limit time.Duration) (int, error) {
		if _, err := c.Write(make([]byte, n)); err != nil {
			return 0, err
		}
		_ = c.SetReadDeadline(time.Now().Add(limit))
		return io.ReadFull(c, make([]byte, n))
	}
	healthy := func(c net.Conn) {
		t.Helper()
		if n, err := echo(c, 100_000, time.Minute); err != nil {
			t.Errorf("a healthy network returned %d bytes: %v", n, err)
		}
	}
	idle, c := dial(), dial()
	healthy(idle)
	healthy(c)

	r.Break(Fault{HalfOpen: true})
	for _, c := range []net.Conn{c, dial()} {
		if n, err := echo(c, 100, 50*time.Millisecond); n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("half-open: %d bytes, %v", n, err)
		}
	}
	r.Heal()
	if n, err := echo(c, 100, time.Minute); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a connection that lost data lives on: %d bytes, %v", n, err)
	}
	healthy(idle)

	r.Break(Fault{MaxAnswer: 700})
	if n, err := echo(dial(), 1000, time.Minute); n != 700 || err == nil {
		t.Errorf("ended after %d bytes, %v", n, err)
	}
	r.Break(Fault{Lose: func() bool { return true }})
	if n, err := echo(dial(), 1000, time.Minute); n != 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a lost answer: %d bytes, %v", n, err)
	}
	for name, f := range map[string]Fault{"latency": {Latency: 100 * time.Millisecond}, "rate": {Rate: 10_000}} {
		r.Break(f)
		began := time.Now()
		if n, err := echo(idle, 1000, time.Minute); err != nil || time.Since(began) < 100*time.Millisecond {
			t.Errorf("%s: %d bytes after %v, %v", name, n, time.Since(began), err)
		}
	}
	r.Cut()
	if _, err := net.Dial("tcp", r.Addr); err == nil {
		t.Error("a cut network accepts connections")
	}
	r.Connect()
	r.Heal()
	healthy(dial())
}
