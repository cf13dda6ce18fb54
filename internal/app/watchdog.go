package app

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sync/errgroup"
)

// supervise tells systemd that the service is ready and, as often as the unit
// demands (WatchdogSec), that it still answers. Each time it asks the listener
// for /healthz over TCP, as a load balancer does: a service whose handlers hang
// falls silent, and systemd restarts it. Without systemd it does nothing.
func (a *App) supervise(ctx context.Context, listeners ...net.Listener) error {
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
	asks := time.NewTicker(interval / 3)
	defer asks.Stop()
	client := &http.Client{Timeout: interval / 3, Transport: &http.Transport{DisableKeepAlives: true}}
	for {
		if err := a.answers(ctx, client, listeners); err == nil {
			if _, err := daemon.SdNotify(false, daemon.SdNotifyWatchdog); err != nil {
				a.log.Warn("systemd not notified", "err", err)
			}
		} else if ctx.Err() == nil {
			a.log.Warn("the service does not answer itself: systemd will restart it", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-asks.C:
		}
	}
}

// answers asks every listener for /healthz.
func (a *App) answers(ctx context.Context, client *http.Client, listeners []net.Listener) error {
	var all errgroup.Group
	for _, l := range listeners {
		all.Go(func() error {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+reachable(l.Addr())+"/healthz", nil)
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

// reachable is the address at which this machine reaches a listener, which may
// listen on every address.
func reachable(address net.Addr) string {
	tcp, ok := address.(*net.TCPAddr)
	if !ok || !tcp.IP.IsUnspecified() {
		return address.String()
	}
	return net.JoinHostPort("localhost", fmt.Sprint(tcp.Port))
}

// ignoreHangup logs a SIGHUP, which would otherwise end the process without
// draining it. Nothing is reloaded: a changed setting needs a restart.
func (a *App) ignoreHangup(ctx context.Context) {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangups:
			a.log.Warn("SIGHUP ignored: restart the service to apply a changed setting")
		}
	}
}
