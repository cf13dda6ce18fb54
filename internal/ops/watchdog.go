package ops

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sync/errgroup"
)

// Supervise reports to systemd that the service is ready and, as often as the unit requires (WatchdogSec), that
// it still answers. Each time it requests /healthz from every listener over TCP, as a load balancer does. If
// handlers hang, the reports stop and systemd restarts the service. Without systemd Supervise does nothing.
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
