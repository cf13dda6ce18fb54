// Package ops serves the operators of a running replica, and their machines: metrics, readiness, the health of the
// services that it depends on, and the listener for all of these. It measures and reports. Its only decision is whether
// this replica may claim jobs.
package ops

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"
)

// Listen opens the operators' listener. For an empty address it returns nil. The listener has no authentication, so
// bind it to an address that only operators can reach.
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

// Supervise reports to systemd that the service is ready and, as often as the unit requires (WatchdogSec), that it
// still answers. Each time it requests /healthz from every listener over TCP, as a load balancer does. If handlers
// hang, the reports stop and systemd restarts the service. Without systemd Supervise does nothing.
func Supervise(ctx context.Context, log *slog.Logger, listeners ...net.Listener) error {
	if _, err := daemon.SdNotify(false, daemon.SdNotifyReady); err != nil {
		return fmt.Errorf("notify systemd: %w", err)
	}
	interval, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		return fmt.Errorf("WATCHDOG_USEC: %w", err)
	}
	if interval == 0 {
		return nil
	}
	tick := time.NewTicker(interval / 3)
	defer tick.Stop()
	client := &http.Client{Timeout: interval / 3, Transport: &http.Transport{DisableKeepAlives: true}}
	for {
		if err := requestHealth(ctx, client, listeners); err == nil {
			if _, err := daemon.SdNotify(false, daemon.SdNotifyWatchdog); err != nil {
				log.Warn("systemd not notified", "err", err)
			}
		} else if ctx.Err() == nil {
			log.Warn("the service does not answer itself: systemd will restart it", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// requestHealth requests /healthz from every listener.
func requestHealth(ctx context.Context, client *http.Client, listeners []net.Listener) error {
	var all errgroup.Group
	for _, l := range listeners {
		all.Go(func() error {
			// A listener's address may be unspecified, such as [::]: the client then connects to this machine.
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+l.Addr().String()+"/healthz", nil)
			if err != nil {
				return err
			}
			resp, err := client.Do(req)
			if err != nil {
				return err
			}
			if err := resp.Body.Close(); err != nil {
				return err
			}
			if resp.StatusCode != http.StatusOK {
				return fmt.Errorf("/healthz answers %d", resp.StatusCode)
			}
			return nil
		})
	}
	return all.Wait()
}
