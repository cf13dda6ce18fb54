// Package calltest helps to test clients of other services: a clock that the test moves, servers on loopback, and an
// address where none listens.
package calltest

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Clock is a time that only the test moves. It is safe for concurrent use.
type Clock struct {
	mu sync.Mutex
	at time.Time
}

// NewClock returns a clock that shows start.
func NewClock(start time.Time) *Clock { return &Clock{at: start} }

// Now returns the clock's time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

// Advance moves the clock forward by d.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// Serve starts a server that stops when the test ends, and returns its address and a client with its own
// connections.
func Serve(t *testing.T, handler http.HandlerFunc) (address string, client *http.Client) {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.URL, server.Client()
}

// DeadAddress returns a loopback address that refuses connections. Its port is taken, so nothing else can listen on it
// while the test runs.
func DeadAddress(t *testing.T) string {
	t.Helper()
	taken, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(taken) })
	if err := syscall.Bind(taken, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	at, err := syscall.Getsockname(taken)
	if err != nil {
		t.Fatal(err)
	}
	return "http://127.0.0.1:" + strconv.Itoa(at.(*syscall.SockaddrInet4).Port)
}
