// Package app is the composition root: it builds every package from the
// configuration, runs the listeners, the workers and the sweeps, and owns the
// order in which they stop. Production, the sandbox and the tests all run what
// New returns.
package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"cutroom/internal/account"
	"cutroom/internal/admin"
	"cutroom/internal/analysis"
	"cutroom/internal/asset"
	"cutroom/internal/config"
	"cutroom/internal/credit"
	"cutroom/internal/db"
	"cutroom/internal/diskcache"
	"cutroom/internal/engine"
	"cutroom/internal/events"
	"cutroom/internal/httpapi"
	"cutroom/internal/httpserve"
	"cutroom/internal/job"
	"cutroom/internal/media"
	"cutroom/internal/monitor"
	"cutroom/internal/objectstore"
	"cutroom/internal/ondemand"
	"cutroom/internal/pause"
	"cutroom/internal/quota"
	"cutroom/internal/render"
	"cutroom/internal/separation"
	"cutroom/internal/staging"
	"cutroom/internal/sweep"
	"cutroom/internal/tracing"
	"cutroom/internal/upstream/separator"
)

// drainTimeout is how long a stopping service lets requests end.
const drainTimeout = 25 * time.Second

// App is the whole service, built but not yet running.
type App struct {
	cfg     config.Config
	log     *slog.Logger
	version string

	db          *db.DB
	nodeID      string
	ready       *readiness
	renewer     *job.Renewer
	replica     job.Replica
	outage      job.Outage
	store       objectstore.Store
	bucket      *objectstore.Bucket
	claimed     bool // the bucket is this installation's
	sweeper     *sweep.Sweeper
	sweeps      *sweepMetrics
	seen        *dependencies
	assetCache  *diskcache.Cache
	assets      *asset.Service
	quota       *quota.Limits
	parts       *diskcache.Cache
	staging     *staging.Area
	slots       *media.Slots
	onDemand    *ondemand.Maker
	analyses    *ondemand.Maker
	analysis    *analysis.Service
	calls       *admin.CallLog
	monitor     *monitor.Monitor
	tracer      *tracing.Tracer // nil = off
	metrics     *metrics
	accounts    *account.Service
	credits     *credit.Ledger
	separations *separation.Service
	renders     *render.Service
	devices     *events.Devices
	dispatcher  *events.Dispatcher
	handler     http.Handler
	stopping    chan struct{} // closed when the public listener is
}

// folders of STORAGE_PATH.
type folders struct{ root, uploads, objects, work, assets, parts string }

func makeFolders(root string) (folders, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return folders{}, fmt.Errorf("STORAGE_PATH: %w", err)
	}
	f := folders{root: root, uploads: filepath.Join(root, "uploads"), objects: filepath.Join(root, "objects"),
		work: filepath.Join(root, "work"), assets: filepath.Join(root, "cache", "assets"), parts: filepath.Join(root, "cache", "parts")}
	for _, dir := range []string{f.uploads, f.objects, f.work, f.assets, f.parts} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return folders{}, fmt.Errorf("STORAGE_PATH: %w", err)
		}
	}
	return f, nil
}

// New builds the service: it connects to the database and makes
// the storage folders. Close releases what it holds when Run is not called.
func New(ctx context.Context, cfg config.Config, version string, log *slog.Logger) (*App, error) {
	a := &App{cfg: cfg, log: log, version: version}
	dirs, err := makeFolders(cfg.Storage.Path)
	if err != nil {
		return nil, err
	}
	if a.db, err = OpenDatabase(ctx, cfg, log); err != nil {
		return nil, err
	}
	if err := a.build(ctx, cfg, dirs); err != nil {
		return nil, errors.Join(err, a.db.Close())
	}
	if err := a.claimBucket(ctx); err != nil {
		return nil, errors.Join(err, a.db.Close())
	}
	return a, nil
}

// OpenDatabase connects to the configured database and migrates it, unless the
// configuration says that this was done: then it is only checked.
func OpenDatabase(ctx context.Context, cfg config.Config, log *slog.Logger) (*db.DB, error) {
	d, err := db.Open(ctx, db.Options{URL: cfg.Database.URL, User: cfg.Database.User,
		Password: cfg.Database.Password.Reveal(), MaxPool: cfg.Database.MaxPool, Log: log})
	if err != nil {
		return nil, err
	}
	prepare := d.CheckSchema
	if cfg.Database.MigrateOnStart {
		prepare = d.Migrate
	}
	if err := prepare(ctx); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func (a *App) build(ctx context.Context, cfg config.Config, dirs folders) error {
	if err := a.buildMonitor(cfg); err != nil {
		return err
	}
	if err := a.buildTracer(ctx, cfg.Tracing); err != nil {
		return err
	}
	runner, works, err := buildMedia(ctx, cfg, a.log)
	if err != nil {
		return err
	}
	a.seen = newDependencies(a.db)
	if err := a.buildStore(cfg, dirs); err != nil {
		return err
	}
	if a.staging, err = staging.New(dirs.uploads); err != nil {
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		host = "cutroom"
	}
	a.renewer = job.NewRenewer(a.db, host+"/"+uuid.NewString(), a.log)
	a.ready = &readiness{db: a.db, store: a.store, uploads: a.staging, ffmpeg: works, minFree: cfg.Storage.MinFreeDiskBytes,
		key: "ready/" + a.nodeID, replica: a.renewer.Owner(), log: a.log}
	a.replica = job.Replica{ID: a.renewer.Owner(), NodeID: a.storeNode(), Offers: a.ready.offers(cfg.Render.MaxConcurrent), Log: a.log}
	a.metrics = newMetrics(a.version, a.db, a.sweeps)
	a.calls = admin.NewCallLog(a.db, a.log)
	provider, err := NewProvider(cfg, func(c separator.Call) { a.calls.Record(c); a.metrics.call(c) }, a.log)
	if err != nil {
		return err
	}
	ledger, err := newLedger(cfg, a.db, a.seen, a.log)
	if err != nil {
		return err
	}
	a.credits = ledger
	a.onDemand = ondemand.New(1, 8*time.Second, a.log)
	// Requests wait longer for an analysis; the slots bound how many are made at once.
	a.analyses = ondemand.New(64, 30*time.Second, a.log)
	slots := media.NewFairSlots(runtime.GOMAXPROCS(0))
	limits := NewQuota(cfg)
	a.quota = limits
	a.assets = asset.New(asset.Options{DB: a.db, Bucket: a.bucket, Cache: a.assetCache, MaxBytes: cfg.Storage.MaxUploadBytes,
		Lifetime: cfg.Asset.TTL, Quota: limits})
	a.analysis = analysis.New(analysis.Options{Assets: a.assets, Bucket: a.bucket, Media: runner, Slots: slots, Maker: a.analyses,
		CanWork: a.ready.canWork, WorkDir: dirs.work, Log: a.log})
	a.separations = separation.New(separation.Options{
		Quota: limits, Assets: a.assets, MaxAudioBytes: cfg.Separation.MaxAudioBytes,
		DB: a.db, Renewer: a.renewer, Sweeper: a.sweeper, Store: a.store, Media: runner, OnDemand: a.onDemand, Analyses: slots, Provider: provider, NodeID: a.storeNode(), WorkDir: dirs.work,
		CanWork: a.ready.canWork, PublicBaseURL: cfg.HTTP.PublicBaseURL, SigningSecret: cfg.Separation.SigningSecret.Reveal(), SigningPrevious: cfg.Separation.SigningPrevious.Reveal(),
		URLLifetime: cfg.Separation.URLTTL, JobLifetime: cfg.Retention.Jobs, AbandonAfter: cfg.Separation.AbandonTTL, InFlight: cfg.Separation.MaxInFlight,
		StuckAfter: cfg.Separation.StuckSubmitting, BusyWait: cfg.Separation.BusyWait, PollEvery: cfg.Separation.PollInterval, PollTimeout: cfg.Separation.MaxPoll,
		Tracer: a.tracer, Observer: jobMetrics{a.metrics, "separation"}, Log: a.log,
	})
	if err := a.buildRenders(cfg, dirs, runner, limits); err != nil {
		return err
	}
	a.accounts = account.New(account.Options{
		DB: a.db, Tokens: account.NewTokens(cfg.Auth.JWTSecret.Reveal(), cfg.Auth.JWTLifetime, cfg.Auth.JWTPrevious.Reveal()),
		Providers: newIdentityProviders(cfg, a.seen), Credits: ledger,
		Erasers: []account.Eraser{a.separations.Erase, a.renders.Erase, a.assets.Erase}, Session: cfg.Auth.Session, MaxTokenLife: config.MaxTokenLife, Log: a.log,
	})
	if err := a.buildEvents(cfg); err != nil {
		return err
	}
	if cfg.Roles.Render {
		a.metrics.showSlots(a.slots)
	}
	pauses := pause.NewGate(a.db, cfg.PauseSubmissions)
	a.metrics.registry.MustRegister(a.ready, a.seen, pauses)
	a.stopping = make(chan struct{})
	api := httpapi.Options{
		DB: a.db, Accounts: a.accounts, Credits: ledger, Separations: a.separations, Renders: a.renders, Assets: a.assets, Quota: limits, Devices: a.devices,
		Analyses: a.analysis,
		Admin:    admin.New(a.db), Staging: a.staging, MaxUploadBytes: cfg.Storage.MaxUploadBytes, MaxAudioBytes: cfg.Separation.MaxAudioBytes,
		MaxRenderPixels: cfg.Render.MaxPixelFrames, RenderOutputTTL: cfg.Render.OutputTTL,
		AllowedOrigins: cfg.HTTP.AllowedOrigins, TrustedProxies: cfg.HTTP.TrustedProxies, ProxyHops: cfg.HTTP.ProxyHops,
		AdminSlug: cfg.HTTP.AdminSlug, AdminClientID: cfg.HTTP.AdminClientID, AdminAuthorizeURL: authorizeURL, APIDocs: cfg.HTTP.APIDocs,
		Pauses: pauses, Trace: a.monitor.Trace, Tracer: a.tracer, Observe: a.metrics.observe, Stopping: a.stopping, Log: a.log,
	}
	if cfg.HTTP.TestdataMock {
		api.TestdataDir = "."
	}
	a.handler = httpapi.New(api)
	return nil
}

// NewQuota returns the limits of an account, and what counts.
func NewQuota(cfg config.Config) *quota.Limits {
	return quota.New(quota.Usage{WaitingJobs: cfg.Account.MaxWaitingJobs, StoredBytes: cfg.Account.MaxStoredBytes},
		render.Counts, separation.Counts, asset.Counts)
}

// buildMonitor makes the monitoring, to which every failure is reported that is
// logged from here on.
func (a *App) buildMonitor(cfg config.Config) error {
	release := cfg.Monitoring.Release
	if release == "" {
		release = a.version
	}
	var err error
	a.monitor, err = monitor.New(monitor.Options{DSN: cfg.Monitoring.DSN.Reveal(), Environment: cfg.Monitoring.Environment,
		Release: release, TraceRate: cfg.Monitoring.TracesSampleRate})
	if err != nil {
		return err
	}
	a.log = slog.New(a.monitor.Handler(a.log.Handler()))
	return nil
}

func (a *App) buildRenders(cfg config.Config, dirs folders, runner *media.Runner, limits *quota.Limits) error {
	var err error
	if a.parts, err = diskcache.New(diskcache.Config{Dir: dirs.parts, MaxBytes: cfg.Render.PartCacheMaxBytes}); err != nil {
		return err
	}
	var cache engine.PartCache = a.parts
	if a.bucket != nil {
		cache = render.NewSharedCache(a.parts, a.bucket)
	}
	eng := engine.New(engine.Config{Media: runner, Cores: cores(cfg.Render.MaxConcurrent), Cache: cache, FinalTimeout: cfg.Render.ProcessTimeout,
		Limits: engine.Limits{MaxPixels: cfg.Render.MaxInputPixels, MaxSourceDuration: cfg.Render.MaxSourceDuration,
			MaxOutputDuration: cfg.Render.MaxOutputDuration, MaxPixelFrames: cfg.Render.MaxPixelFrames,
			MaxSound: cfg.Render.MaxSound, MinFreeBytes: cfg.Storage.MinFreeDiskBytes}})
	a.slots = media.NewSlots(cfg.Render.MaxConcurrent)
	a.renders = render.New(render.Options{
		Quota: limits,
		DB:    a.db, Renewer: a.renewer, Store: a.store, Bucket: a.bucket, Assets: a.assets, Separations: a.separations, Sweeper: a.sweeper, Engine: eng,
		Slots: a.slots, OnDemand: a.onDemand, Timeout: cfg.Render.JobTimeout, CanWork: a.ready.canWork, NodeID: a.storeNode(), WorkDir: dirs.work, InputLifetime: cfg.Render.InputCacheTTL,
		JobLifetime: cfg.Retention.Jobs, OutputLifetime: cfg.Render.OutputTTL, SignedURLLife: cfg.ObjectStore.SignedURLTTL,
		EraseCaches: a.parts.EraseScope, Tracer: a.tracer, Observer: jobMetrics{a.metrics, "render"}, Log: a.log,
	})
	return nil
}

// cores is how many cores one render may use, so that as many as may run at
// once share the machine.
func cores(concurrent int) int { return max(1, runtime.GOMAXPROCS(0)/concurrent) }

// storeNode names the disk that holds the objects, "" when a bucket does.
func (a *App) storeNode() string {
	if a.bucket != nil {
		return ""
	}
	return a.nodeID
}

// Accounts is the part of the service that signs people in and deletes them.
func (a *App) Accounts() *account.Service { return a.accounts }

// DB is the database of the service.
func (a *App) DB() *db.DB { return a.db }

// Handler is the public API, for a caller with a listener of its own that needs
// no workers.
func (a *App) Handler() http.Handler { return a.handler }

// Close releases what New took, of an App that was not Run.
func (a *App) Close() error {
	a.flush(context.Background())
	return a.db.Close()
}

// flush sends the reports and spans that wait in memory, as far as they leave
// within two seconds each.
func (a *App) flush(ctx context.Context) {
	const limit = 2 * time.Second
	a.monitor.Flush(limit)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	if err := a.tracer.Shutdown(ctx); err != nil {
		a.log.Warn("spans not exported before the end", "kind", fmt.Sprintf("%T", err))
	}
}

// listen opens the public listener, nil where the process has not that role.
func (a *App) listen(ctx context.Context) (net.Listener, error) {
	if !a.cfg.Roles.API {
		return nil, nil
	}
	address := net.JoinHostPort(bindHost(a.cfg.HTTP.BindAddr), strconv.Itoa(a.cfg.HTTP.Port))
	l, err := httpserve.Listen(ctx, address, a.cfg.HTTP.TrustedProxies, func(client string) {
		a.outage.Log(a.log, slog.LevelWarn, "connections", "a client holds its share of connections and is refused more", "client", client)
	})
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	return l, nil
}

// Run serves until ctx ends, then stops from the outside in: no new requests,
// requests under way end, running jobs go back to the queue, the database
// closes. It returns nil after a clean stop.
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
	ops, err := a.listenOps()
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	// Workers outlive the listener: a request that ends during the drain may
	// still put a job into the queue, and hands it to a peer by doing so.
	var listeners []net.Listener
	if public != nil {
		listeners = append(listeners, public)
		group.Go(func() error { return a.serve(ctx, public) })
	}
	if ops != nil {
		listeners = append(listeners, ops)
		group.Go(func() error { return a.serveOps(ctx, ops) })
	}
	group.Go(func() error { return a.supervise(ctx, listeners...) })
	group.Go(func() error { a.ignoreHangup(ctx); return nil })
	group.Go(func() error {
		return a.db.RunNotifier(ctx, a.cfg.Roles.API, a.cfg.Roles.Render || a.cfg.Roles.Separation)
	})
	if a.cfg.Roles.Render {
		// Before the replicas are counted. If the database is away at this moment,
		// the replica announces itself again later.
		if err := a.replica.Announce(ctx, a.db); err != nil && ctx.Err() == nil {
			a.log.Warn("replica not announced yet", "err", err)
		}
		group.Go(func() error { return a.replica.Run(ctx, a.db) })
	}
	group.Go(func() error { return a.runWorkers(ctx) })
	group.Go(func() error { a.runSweeps(ctx); return nil })
	group.Go(func() error { a.runEvents(ctx); return nil })
	group.Go(func() error { return a.claimLater(ctx) })
	a.log.Info("cutroom serves", "address", address, "roles", a.cfg.Roles.String(), "version", a.version)
	err = group.Wait()
	a.onDemand.Close()
	a.analyses.Close()
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	a.log.Info("cutroom stopped", "err", err)
	return err
}

// bindHost is the host part of the address to listen at, "" for every address.
func bindHost(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

// runWorkers runs the kinds of workers that the process has, and the log of
// provider calls until the last of their calls is in it.
func (a *App) runWorkers(ctx context.Context) error {
	logging, stop := context.WithCancel(context.WithoutCancel(ctx))
	logged := make(chan struct{})
	go func() {
		defer close(logged)
		a.calls.Run(logging)
	}()
	defer func() { stop(); <-logged }()
	var workers errgroup.Group
	if a.cfg.Roles.Separation {
		workers.Go(func() error { return a.separations.Run(ctx) })
	}
	if a.cfg.Roles.Render {
		workers.Go(func() error { return a.renders.Run(ctx) })
	}
	return workers.Wait()
}

func (a *App) serve(ctx context.Context, l net.Listener) error {
	srv := httpserve.New(a.handler, a.log)
	srv.RegisterOnShutdown(func() { close(a.stopping) })
	return serveUntil(ctx, srv, l, func() error {
		drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
		defer cancel()
		if err := srv.Shutdown(drain); err != nil {
			a.log.Warn("requests were cut off", "err", err)
			return srv.Close()
		}
		return nil
	})
}

// serveUntil serves until ctx ends, and then stops.
func serveUntil(ctx context.Context, srv *http.Server, l net.Listener, stop func() error) error {
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(l) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
		return stop()
	}
}
