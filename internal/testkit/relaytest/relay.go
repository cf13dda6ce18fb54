// Package relaytest breaks the network between a program and a server.
package relaytest

import (
	"net"
	"sync"
	"testing"
	"time"
)

// Fault describes how a network is broken. The zero value is a working network.
type Fault struct {
	HalfOpen  bool          // connections are accepted, and all data is dropped
	MaxAnswer int           // a connection ends after this many bytes from the server; 0: no limit
	Latency   time.Duration // delays what the server sends
	Rate      int           // bytes a second in each direction; 0: no limit

	// Lose drops what the server has sent, and ends the connection, if it returns true. It is called for every piece of
	// an answer, possibly concurrently.
	Lose func() bool
}

// Relay forwards the connections to its address to a server.
type Relay struct {
	Addr string // in place of the server's address

	t      testing.TB
	server string

	mu          sync.Mutex
	listener    net.Listener
	connections map[*connection]bool
	fault       Fault
	changed     chan struct{} // closed when the fault changes
}

// connection is a client's connection with its connection to the server.
type connection struct {
	client, server net.Conn
	dropped        bool // guarded by Relay.mu: some of its data is lost
}

func (c *connection) close() {
	_ = c.client.Close() // a second Close fails
	_ = c.server.Close()
}

// New returns a relay that forwards connections from a new address to a server until the test ends.
func New(t testing.TB, server string) *Relay {
	t.Helper()
	r := &Relay{Addr: "127.0.0.1:0", t: t, server: server, connections: map[*connection]bool{}, changed: make(chan struct{})}
	r.Connect()
	t.Cleanup(r.Cut)
	return r
}

// Connect accepts connections again after Cut, at the same address.
func (r *Relay) Connect() {
	r.t.Helper()
	listener, err := net.Listen("tcp", r.Addr)
	if err != nil {
		r.t.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.listener, r.Addr = listener, listener.Addr().String()
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go r.connect(listener, client)
		}
	}()
}

// Cut closes all connections and refuses new ones.
func (r *Relay) Cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.listener != nil {
		_ = r.listener.Close()
	}
	r.listener = nil
	for c := range r.connections {
		c.close()
	}
}

// Break breaks the network for all connections, until Heal.
func (r *Relay) Break(f Fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fault = f
	close(r.changed)
	r.changed = make(chan struct{})
}

// Heal repairs the network. Connections that have lost data end.
func (r *Relay) Heal() {
	r.Break(Fault{})
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.connections {
		if c.dropped {
			c.close()
		}
	}
}

// connect forwards a connection until one side ends it.
func (r *Relay) connect(listener net.Listener, client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", r.server)
	if err != nil {
		return
	}
	c := &connection{client: client, server: server}
	defer c.close()
	r.mu.Lock()
	if r.listener != listener { // cut in the meantime
		r.mu.Unlock()
		return
	}
	r.connections[c] = true
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.connections, c)
	}()
	var requests sync.WaitGroup
	requests.Go(func() {
		defer c.close()
		r.forward(c, false)
	})
	r.forward(c, true)
	c.close()
	requests.Wait()
}

// piece is data with the time at which it arrived.
type piece struct {
	data []byte
	at   time.Time
}

// forward forwards the server's answers or the client's requests.
func (r *Relay) forward(c *connection, answers bool) {
	from, to := c.client, c.server
	if answers {
		from, to = to, from
	}
	pieces := make(chan piece, 64)
	go func() {
		defer close(pieces)
		for {
			buffer := make([]byte, 32<<10)
			n, err := from.Read(buffer)
			if err != nil {
				return
			}
			pieces <- piece{buffer[:n], time.Now()}
		}
	}()
	defer func() {
		c.close() // ends the reader
		for range pieces {
		}
	}()
	sent := 0 // bytes of answers while MaxAnswer is in force
	for p := range pieces {
		for len(p.data) > 0 {
			f, changed := r.current(c)
			part := p.data
			switch {
			case f.HalfOpen:
				p.data = nil
				continue
			case answers && f.Lose != nil && f.Lose():
				return
			case answers && f.MaxAnswer > 0:
				part = part[:min(len(part), f.MaxAnswer-sent)]
				sent += len(part)
			case f.Rate > 0:
				part = part[:min(len(part), max(f.Rate/10, 1))]
				pause(changed, time.Duration(len(part))*time.Second/time.Duration(f.Rate))
			case answers && f.Latency > 0:
				pause(changed, time.Until(p.at.Add(f.Latency)))
			}
			if _, err := to.Write(part); err != nil || answers && f.MaxAnswer > 0 && sent >= f.MaxAnswer {
				return
			}
			p.data = p.data[len(part):]
		}
	}
}

// current returns the fault in force, and a channel that is closed when it changes.
func (r *Relay) current(c *connection) (Fault, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c.dropped = c.dropped || r.fault.HalfOpen
	return r.fault, r.changed
}

// pause waits, at most until changed is closed.
func pause(changed <-chan struct{}, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-changed:
	}
}
