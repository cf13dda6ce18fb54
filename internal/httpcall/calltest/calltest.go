// Package calltest is what the tests of clients need: a clock, and services that
// answer or are gone.
package calltest

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"
)

// Clock is a time that only the test moves. It is safe for concurrent use.
type Clock struct {
	mu sync.Mutex
	at time.Time
}

// NewClock returns a clock that stands at start.
func NewClock(start time.Time) *Clock { return &Clock{at: start} }

// Now is the time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

// Advance moves the clock.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// Serve starts a service that ends with the test, and a client of its own.
func Serve(t *testing.T, handler http.HandlerFunc) (address string, client *http.Client) {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.URL, server.Client()
}

// DeadAddress is a loopback address on which nothing listens any more.
func DeadAddress() string {
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	return server.URL
}
