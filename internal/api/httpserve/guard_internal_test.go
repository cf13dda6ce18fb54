// Slow and early clients, on connections in memory and a clock that does not wait: silent and dripping bodies, and
// refusals before the body is read.

package httpserve

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// hasty are timeouts that a test can wait for.
var hasty = timeouts{bodySilence: 300 * time.Millisecond, minUploadRate: 1 << 10, uploadGrace: time.Second, minDownloadRate: 64 << 10, downloadGrace: time.Second,
	lingerSilence: 300 * time.Millisecond, linger: 5 * time.Second}

// tooLong is when a test gives up.
const tooLong = time.Minute

// pipes is a listener of connections in memory, whose deadlines follow the bubble's clock.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if c, open := <-p; open {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (p pipes) Close() error   { close(p); return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

// hastyConn connects, within a bubble, to a server that serves h with short timeouts.
func hastyConn(t *testing.T, p timeouts, h http.HandlerFunc) net.Conn {
	t.Helper()
	srv, listener := &http.Server{Handler: guard{h, nil, p}}, make(pipes)
	go func() { _ = srv.Serve(listener) }() // until it is closed
	near, far := net.Pipe()
	listener <- far
	t.Cleanup(func() {
		_, _ = near.Close(), srv.Close()
		time.Sleep(time.Second) // net/http leaves an upload that it refused half of one
	})
	if err := near.SetDeadline(time.Now().Add(tooLong)); err != nil {
		t.Fatal(err)
	}
	return near
}

func say(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
}

// A client that listens before it sends gets the refusal at once. The server reads what is left of a short body before
// it answers, but does not wait for ever.
func TestAnUnreadBodyDoesNotDelayTheAnswer(t *testing.T) {
	for head, patience := range map[string]time.Duration{"Content-Length: 10": hasty.bodySilence, "Content-Length: 1000000": 0,
		"Transfer-Encoding: chunked": 0, "Content-Length: 10\r\nExpect: 100-continue": 0} {
		t.Run(head, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := hastyConn(t, hasty, func(w http.ResponseWriter, _ *http.Request) {
					w.WriteHeader(http.StatusPaymentRequired)
				})
				began := time.Now()
				say(t, c, "POST / HTTP/1.1\r\nHost: x\r\n"+head+"\r\n\r\n")
				answer, err := http.ReadResponse(bufio.NewReader(c), nil)
				if err != nil {
					t.Fatal(err)
				}
				took := time.Since(began)
				answer.Body.Close()
				if answer.StatusCode != http.StatusPaymentRequired || !answer.Close || took > patience {
					t.Errorf("status %d after %v, close %v; want 402 and the end of the connection", answer.StatusCode, took, answer.Close)
				}
			})
		})
	}
}

// Clients that send everything before they listen must find the answer, not a reset connection, and those that send for
// ever must be cut off.
func TestARefusedBodyIsTakenForAWhile(t *testing.T) {
	for name, tt := range map[string]struct {
		head   string
		pieces int // of 100 KiB, ten a second
		taken  bool
	}{
		"a long one":     {fmt.Sprintf("Content-Length: %d", 30*100<<10), 30, true},
		"an endless one": {fmt.Sprintf("Content-Length: %d", 1<<40), 70, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := hastyConn(t, hasty, func(w http.ResponseWriter, _ *http.Request) {
					w.WriteHeader(http.StatusPaymentRequired)
				})
				say(t, c, "POST / HTTP/1.1\r\nHost: x\r\n"+tt.head+"\r\n\r\n")
				// A pipe holds nothing, so that the answer is taken while the rest is sent.
				answered := make(chan int, 1)
				go func() {
					answer, err := http.ReadResponse(bufio.NewReader(c), nil)
					if err != nil {
						t.Errorf("no answer: %v", err)
						answered <- 0
						return
					}
					answer.Body.Close()
					answered <- answer.StatusCode
				}()
				var err error
				for range tt.pieces {
					if _, err = io.WriteString(c, strings.Repeat("x", 100<<10)); err != nil {
						break
					}
					time.Sleep(100 * time.Millisecond)
				}
				if got := <-answered; got != http.StatusPaymentRequired || (err == nil) != tt.taken {
					t.Errorf("answered %d, and sending ended with %v", got, err)
				}
			})
		})
	}
}

func wait(t *testing.T, ended <-chan error) error {
	t.Helper()
	select {
	case err := <-ended:
		return err
	case <-time.After(tooLong):
		t.Fatal("the handler still waits")
		return nil
	}
}

func TestSlowBodiesAreCutOff(t *testing.T) {
	for name, tt := range map[string]struct {
		pieces, size int
		pause        time.Duration // after each piece
		cut          bool
	}{
		"silent":   {2, 3, time.Second, true},
		"dripping": {1 << 20, 1, 20 * time.Millisecond, true},
		"steady":   {12, 4 << 10, hasty.bodySilence / 3, false}, // longer than any silence may be
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ended := make(chan error, 1)
				c := hastyConn(t, hasty, func(_ http.ResponseWriter, r *http.Request) {
					_, err := io.Copy(io.Discard, r.Body)
					ended <- err
				})
				say(t, c, fmt.Sprintf("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", tt.pieces*tt.size))
				go func() {
					for range tt.pieces {
						if _, err := io.WriteString(c, strings.Repeat("x", tt.size)); err != nil {
							return // the server has closed the connection
						}
						time.Sleep(tt.pause)
					}
				}()
				if err := wait(t, ended); errors.Is(err, os.ErrDeadlineExceeded) != tt.cut || (err != nil) != tt.cut {
					t.Errorf("the body ends with %v", err)
				}
			})
		})
	}
}

// A handler that has read the body may take any time.
func TestThinkingIsNotSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := hastyConn(t, hasty, func(w http.ResponseWriter, r *http.Request) {
			if _, err := io.ReadAll(r.Body); err != nil {
				panic(err)
			}
			select {
			case <-r.Context().Done():
				panic(r.Context().Err())
			case <-time.After(3 * hasty.bodySilence):
			}
		})
		in := bufio.NewReader(c)
		for range 2 { // and the connection serves the next request
			say(t, c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc")
			answer, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, answer.Body)
			answer.Body.Close()
			if answer.StatusCode != http.StatusOK {
				t.Errorf("status %d", answer.StatusCode)
			}
		}
	})
}
