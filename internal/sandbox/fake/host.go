// Package fake is shared by all vendor stand-ins: an HTTP server, a log of its calls, faults for single calls, and a
// small control API under /__control/, which lists its own calls and gives other processes the same control.
//
// It contains no vendor's wire format and nothing of the service under test.
package fake

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// ControlPrefix is the prefix of the path of every control call. Control calls are neither counted nor subject to
// faults.
const ControlPrefix = "/__control/"

// StepUnknown counts requests to a path that the vendor does not have, which reveals a client with a wrong
// protocol.
const StepUnknown = "unknown"

// Host is one HTTP server of a stand-in. Stand-ins embed it. Routes are added before Listen; everything else is safe
// for concurrent use.
type Host struct {
	// Faults decides which calls fail. Several hosts of one vendor may share it.
	Faults *Faults

	vendor  *http.ServeMux
	control *http.ServeMux
	calls   []controlCall
	public  string

	active sync.WaitGroup // handlers

	mu   sync.Mutex
	addr string
	url  string
	end  func() error // nil while the host does not listen
}

// NewHost returns a host without routes. If faults is nil, the host gets its own.
func NewHost(faults *Faults) *Host {
	if faults == nil {
		faults = NewFaults()
	}
	h := &Host{Faults: faults, vendor: http.NewServeMux(), control: http.NewServeMux()}
	h.control.HandleFunc("GET "+ControlPrefix+"{$}", h.serveIndex)
	h.mountFaults()
	return h
}

// Handle adds a route of the vendor. pattern has net/http's syntax; step is the name by which calls are counted and
// faults are selected.
func (h *Host) Handle(step, pattern string, handler http.HandlerFunc) {
	h.Faults.register(step, pattern)
	h.vendor.Handle(pattern, h.Faults.wrap(step, handler))
}

// HandleSteps adds a route whose step depends on the request, for protocols such as S3 that have many operations on one
// path. steps lists every name that name may return.
func (h *Host) HandleSteps(steps []string, name func(*http.Request) string, pattern string, handler http.HandlerFunc) {
	for _, step := range steps {
		h.Faults.register(step, "")
	}
	h.vendor.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		h.Faults.wrap(name(r), handler).ServeHTTP(w, r)
	})
}

// ServeHTTP serves control calls and the vendor's routes.
func (h *Host) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, ControlPrefix) {
		h.control.ServeHTTP(w, r)
		return
	}
	if unclean(r.URL.Path) {
		// The mux would redirect to the clean path. The service that the host may stand for does not.
		root := r.Clone(r.Context())
		root.URL.Path = "/"
		handler, _ := h.vendor.Handler(root)
		handler.ServeHTTP(w, r)
		return
	}
	handler, pattern := h.vendor.Handler(r)
	if pattern == "" {
		// The mux answers 404 or 405; the log records the request.
		h.Faults.wrap(StepUnknown, handler.ServeHTTP).ServeHTTP(w, r)
		return
	}
	h.vendor.ServeHTTP(w, r)
}

func unclean(p string) bool {
	clean := path.Clean(p)
	return p != clean && p != clean+"/"
}

// Publish makes the host reachable under a name, from other machines too: the next Listen accepts connections on every
// interface, and URL uses that name.
func (h *Host) Publish(name string) { h.public = name }

// Listen starts the host on addr ("" means a free port, on loopback unless it is published) and returns when it accepts
// connections. It serves until Close. A closed host may listen again on the same address, which simulates the end of an
// outage.
func (h *Host) Listen(addr string) error {
	_, port, err := net.SplitHostPort(cmp.Or(addr, "127.0.0.1:0"))
	if err != nil {
		return fmt.Errorf("listen for stand-in: %w", err)
	}
	host := "127.0.0.1"
	if h.public != "" {
		host = "" // every interface
	}
	ln, err := net.Listen("tcp", net.JoinHostPort(host, port))
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("port %s is taken, choose others with --port", port)
	}
	if err != nil {
		return fmt.Errorf("listen for stand-in: %w", err)
	}
	base, stop := context.WithCancel(context.Background())
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true) // for clients with prior knowledge
	server := &http.Server{
		Protocols:         protocols,
		Handler:           http.HandlerFunc(h.serveTracked),
		BaseContext:       func(net.Listener) context.Context { return base },
		ReadHeaderTimeout: 30 * time.Second,
		ErrorLog:          log.New(io.Discard, "", 0), // this package breaks connections on purpose
	}
	h.active.Go(func() { _ = server.Serve(ln) }) // always ends with ErrServerClosed
	h.mu.Lock()
	defer h.mu.Unlock()
	h.addr = ln.Addr().String()
	_, port, _ = net.SplitHostPort(h.addr) // the kernel's format is valid
	h.url = "http://" + net.JoinHostPort(cmp.Or(h.public, host), port)
	h.end = func() error {
		stop()
		err := server.Close()
		h.active.Wait()
		return err
	}
	return nil
}

func (h *Host) serveTracked(w http.ResponseWriter, r *http.Request) {
	h.active.Add(1)
	defer h.active.Done()
	h.ServeHTTP(w, r)
}

// URL returns the address of the last Listen, without a trailing slash.
func (h *Host) URL() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.url
}

// Addr returns the address of the last Listen, for another Listen there.
func (h *Host) Addr() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.addr
}

// Close breaks all connections and returns after every handler has ended. It does nothing if the host does not listen.
func (h *Host) Close() error {
	h.mu.Lock()
	end := h.end
	h.end = nil
	h.mu.Unlock()
	if end == nil {
		return nil
	}
	return end()
}

// WriteJSON answers with v and an exact Content-Length.
func WriteJSON(w http.ResponseWriter, status int, v any) {
	body := Must(json.Marshal(v))
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // after a failed write nobody can receive the error
}

// RandomHex returns n random bytes in hex.
func RandomHex(n int) string {
	buf := make([]byte, n)
	_, _ = rand.Read(buf) // crypto/rand.Read never fails
	return hex.EncodeToString(buf)
}

// ReadJSON decodes a request body of at most 64 MiB. An empty body leaves v unchanged.
func ReadJSON(r *http.Request, v any) error {
	err := json.NewDecoder(io.LimitReader(r.Body, 64<<20)).Decode(v)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read JSON body: %w", err)
	}
	return nil
}
