// Package app is the composition root: it builds every package from the configuration, runs the listeners, the workers
// and the sweeps, and owns the order in which they stop. Production, the sandbox and the tests all run what New
// returns.
package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"cutroom/internal/api/httpserve"
	"cutroom/internal/base/db"
	"cutroom/internal/base/fault"
	"cutroom/internal/base/monitor"
	"cutroom/internal/base/tracing"
	"cutroom/internal/config"
	"cutroom/internal/domain/account"
	"cutroom/internal/domain/admin"
	"cutroom/internal/ops"
	"cutroom/internal/storage/objectstore"
	"cutroom/internal/work/derived"
	"cutroom/internal/work/events"
	"cutroom/internal/work/job"
)

// drainTimeout is how long requests may run on after the service was told to stop.
const drainTimeout = 25 * time.Second

// App is the whole service, built but not yet running: what Run needs.
type App struct {
	cfg     config.Config
	log     *slog.Logger
	version string

	db       *db.DB
	monitor  *monitor.Monitor
	tracer   *tracing.Tracer // nil = off
	registry *prometheus.Registry
	sweeps   *ops.Sweeps
	ready    *ops.Readiness
	outage   fault.Outage
	renewer  *job.Renewer
	replica  job.Replica

	bucket        *objectstore.Bucket // nil = objects are on the disk
	bucketClaimed bool                // the bucket belongs to this installation

	calls      *admin.CallLog
	accounts   *account.Service
	dispatcher *events.Dispatcher
	handler    http.Handler
	stopping   chan struct{}                 // closed when the public listener is
	workers    []func(context.Context) error // for the roles of this process
	makers     []*derived.Maker
	rounds     []round // sweeps of what all replicas share
	ownRounds  []round // sweeps of this replica's disk
}

// New builds the service: it connects to the database and makes the storage folders. If the caller does not call Run,
// it must call Close.
func New(ctx context.Context, cfg config.Config, version string, log *slog.Logger) (*App, error) {
	a := &App{cfg: cfg, log: log, version: version, registry: prometheus.NewRegistry()}
	b := &builder{App: a, deps: ops.NewDependencies(a.registry)}
	// Detect an unsuitable ffmpeg or missing confinement before anything is written.
	err := b.buildMedia(ctx)
	if err != nil {
		return nil, err
	}
	if b.dirs, err = makeFolders(cfg.Storage.Path); err != nil {
		return nil, err
	}
	if a.db, err = OpenDatabase(ctx, cfg, b.deps.Database(), log, (*db.DB).EnsureSchema); err != nil {
		return nil, err
	}
	if err = b.build(ctx); err == nil {
		err = a.claimStore(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, a.db.Close())
	}
	return a, nil
}

// Accounts is the part of the service that signs users in and deletes them.
func (a *App) Accounts() *account.Service { return a.accounts }

// Handler is the public API, for a caller that has its own listener and needs no workers.
func (a *App) Handler() http.Handler { return a.handler }

// Close releases the resources of an App that was not Run.
func (a *App) Close() error {
	a.flush(context.Background())
	return a.db.Close()
}

// flush sends the reports and the spans that are still in memory, for at most two seconds each.
func (a *App) flush(ctx context.Context) {
	const limit = 2 * time.Second
	a.monitor.Flush(limit)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	if err := a.tracer.Shutdown(ctx); err != nil {
		a.log.Warn("spans not exported before the end", "kind", fmt.Sprintf("%T", err))
	}
}

// listen opens the public listener. A process without the API role gets nil.
func (a *App) listen(ctx context.Context) (net.Listener, error) {
	if !a.cfg.Roles.API {
		return nil, nil
	}
	address := net.JoinHostPort(a.cfg.HTTP.BindAddr, strconv.Itoa(a.cfg.HTTP.Port))
	l, err := httpserve.Listen(ctx, address, a.cfg.HTTP.TrustedProxies, func(client string) {
		a.outage.Log(a.log, slog.LevelWarn, "connections",
			"connection refused: the client holds its share of connections", "client", client)
	})
	if err != nil {
		key := "PORT"
		if errors.Is(err, syscall.EADDRNOTAVAIL) {
			key = "BIND_ADDR"
		}
		return nil, fmt.Errorf("%s: cannot listen: %w", key, err)
	}
	return l, nil
}

// Run serves until ctx ends. Then it refuses new requests, lets running requests end, and meanwhile hands running jobs
// back to the queue. Finally it closes the database. It returns nil after a clean stop.
func (a *App) Run(ctx context.Context) error {
	defer a.flush(ctx)
	defer func() {
		if err := a.db.Close(); err != nil {
			a.log.Warn("database not closed cleanly", "err", err)
		}
	}()
	public, err := a.listen(ctx)
	if err != nil {
		return err
	}
	address := "none"
	if public != nil {
		address = public.Addr().String()
		defer public.Close()
	}
	private, err := ops.Listen(a.cfg.HTTP.OpsAddr)
	if err != nil {
		return err
	}
	signal.Ignore(syscall.SIGHUP) // unhandled, it would end the process without draining it
	group, ctx := errgroup.WithContext(ctx)
	// On a stop, all of these begin to end at the same time. Workers claim no more jobs while the listener still lets
	// requests end: a job that such a request submits waits in its row for another replica, or for the next start.
	var listeners []net.Listener
	if public != nil {
		listeners = append(listeners, public)
		group.Go(func() error { return a.serve(ctx, public) })
	}
	if private != nil {
		listeners = append(listeners, private)
		group.Go(func() error { return a.serveOps(ctx, private) })
	}
	group.Go(func() error { return ops.Supervise(ctx, a.log, listeners...) })
	a.runBackground(ctx, group)
	a.log.Info("cutroom serves", "address", address, "roles", a.cfg.Roles.String(), "version", a.version)
	err = group.Wait()
	for _, m := range a.makers {
		m.Close()
	}
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	a.log.Info("cutroom stopped", "err", err)
	return err
}

// runBackground starts everything that does not listen.
func (a *App) runBackground(ctx context.Context, group *errgroup.Group) {
	group.Go(func() error {
		return a.db.RunNotifier(ctx, a.cfg.Roles.API, a.cfg.Roles.Render || a.cfg.Roles.Separation)
	})
	if a.cfg.Roles.Render {
		// Announce before workers count the replicas. If the database is down now, the replica announces itself later.
		if err := a.replica.Announce(ctx, a.db); err != nil && ctx.Err() == nil {
			a.log.Warn("replica not announced yet", "err", err)
		}
		group.Go(func() error { return a.replica.Run(ctx, a.db.Reserved()) })
	}
	group.Go(func() error { return a.runWorkers(ctx) })
	group.Go(func() error { a.runSweeps(ctx); return nil })
	group.Go(func() error { a.runEvents(ctx); return nil })
	group.Go(func() error { return a.keepClaimingBucket(ctx) })
}

// runWorkers runs the workers, and waits until the last of their calls to the provider is recorded.
func (a *App) runWorkers(ctx context.Context) error {
	defer a.calls.Wait()
	var workers errgroup.Group
	for _, run := range a.workers {
		workers.Go(func() error { return run(ctx) })
	}
	return workers.Wait()
}

func (a *App) serve(ctx context.Context, l net.Listener) error {
	srv := httpserve.New(a.handler, a.log)
	srv.RegisterOnShutdown(func() { close(a.stopping) })
	return serveUntil(ctx, srv.Serve, l, func() error {
		drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
		defer cancel()
		if err := srv.Stop(drain, l); err != nil {
			a.log.Warn("requests cut off: they did not end in time", "err", err)
			return srv.Close()
		}
		return nil
	})
}

func (a *App) serveOps(ctx context.Context, l net.Listener) error {
	srv := ops.NewServer(a.registry, a.ready)
	a.log.Info("operators' listener", "address", l.Addr().String())
	return serveUntil(ctx, srv.Serve, l, srv.Close)
}

// serveUntil serves until ctx ends, and then calls stop.
func serveUntil(ctx context.Context, serve func(net.Listener) error, l net.Listener, stop func() error) error {
	ended := make(chan error, 1)
	go func() { ended <- serve(l) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
		return stop()
	}
}
