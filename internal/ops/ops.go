// Package ops serves the operators of a running replica, and their machines: metrics, readiness, the health of
// the services that it depends on, and the listener for all of these. It measures and reports. Its only
// decision is whether this replica may claim jobs.
package ops

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Listen opens the operators' listener. For an empty address it returns nil. The listener has no
// authentication, so bind it to an address that only operators can reach.
func Listen(address string) (net.Listener, error) {
	if address == "" {
		return nil, nil
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("OPS_ADDR: cannot listen: %w", err)
	}
	return l, nil
}

// NewServer returns the server of the operators' listener.
func NewServer(g prometheus.Gatherer, r *Readiness) *http.Server {
	return &http.Server{Handler: newHandler(g, r), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute}
}

func newHandler(g prometheus.Gatherer, r *Readiness) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(g, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}))
	mux.HandleFunc("GET /healthz", serveHealthy)
	mux.Handle("GET /readyz", r)
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}

// serveHealthy reports that the process answers requests.
func serveHealthy(w http.ResponseWriter, _ *http.Request) { writeStatus(w, http.StatusOK, "ok") }

func writeStatus(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"status": text}) // fails only if the client has disconnected
}
