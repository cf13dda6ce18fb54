package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"cutroom/internal/account"
	"cutroom/internal/admin"
	"cutroom/internal/analysis"
	"cutroom/internal/asset"
	"cutroom/internal/config"
	"cutroom/internal/db"
	"cutroom/internal/derived"
	"cutroom/internal/diskcache"
	"cutroom/internal/engine"
	"cutroom/internal/httpapi"
	"cutroom/internal/installation"
	"cutroom/internal/job"
	"cutroom/internal/media"
	"cutroom/internal/media/confine"
	"cutroom/internal/monitor"
	"cutroom/internal/objectstore"
	"cutroom/internal/ops"
	"cutroom/internal/pause"
	"cutroom/internal/quota"
	"cutroom/internal/render"
	"cutroom/internal/separation"
	"cutroom/internal/staging"
	"cutroom/internal/tracing"
	"cutroom/internal/upstream/separator"
)

// folders are the subfolders of STORAGE_PATH.
type folders struct{ root, uploads, objects, work, assets, parts string }

func makeFolders(root string) (folders, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return folders{}, fmt.Errorf("STORAGE_PATH: %w", err)
	}
	f := folders{root: root, uploads: filepath.Join(root, "uploads"), objects: filepath.Join(root, "objects"),
		work: filepath.Join(root, "work"), assets: filepath.Join(root, "cache", "assets"),
		parts: filepath.Join(root, "cache", "parts")}
	for _, dir := range []string{f.uploads, f.objects, f.work, f.assets, f.parts} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return folders{}, fmt.Errorf("STORAGE_PATH: %w", err)
		}
	}
	return f, nil
}

// OpenDatabase connects to the configured database and migrates it. If the configuration says that
// migrations run elsewhere, it only checks the schema.
func OpenDatabase(ctx context.Context, cfg config.Config, log *slog.Logger) (*db.DB, error) {
	d, err := db.Open(ctx, db.Options{URL: cfg.Database.URL, User: cfg.Database.User,
		Password: cfg.Database.Password.Reveal(), MaxPool: cfg.Database.MaxPool, Log: log})
	if err != nil {
		return nil, fmt.Errorf("check DATABASE_URL, DB_USER and DB_PASSWORD: %w", err)
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

// build makes everything that needs the database, in the order in which one thing needs another.
func (a *App) build(ctx context.Context) error {
	for _, step := range []func(context.Context) error{
		a.buildMonitor, a.buildTracer, a.buildStores, a.buildOps, a.buildCredits,
		a.buildAssets, a.buildSeparations, a.buildRenders, a.buildAccounts, a.buildEvents, a.buildAPI,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// buildMonitor makes the monitor. From here on a.log reports failures to it.
func (a *App) buildMonitor(context.Context) error {
	release := a.cfg.Monitoring.Release
	if release == "" {
		release = a.version
	}
	var err error
	a.monitor, err = monitor.New(monitor.Options{DSN: a.cfg.Monitoring.DSN.Reveal(),
		Environment: a.cfg.Monitoring.Environment, Release: release})
	if err != nil {
		return err
	}
	a.log = slog.New(a.monitor.Handler(a.log.Handler()))
	return nil
}

// buildTracer makes the tracer, if traces are on. From here on a.log adds trace ids.
func (a *App) buildTracer(ctx context.Context) error {
	if a.cfg.Tracing.Endpoint == "" {
		return nil
	}
	for key, value := range a.cfg.Tracing.FromFile {
		if err := os.Setenv(key, value); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
	}
	if os.Getenv("OTEL_TRACES_SAMPLER") == "" {
		rate := strconv.FormatFloat(a.cfg.Monitoring.TracesSampleRate, 'f', -1, 64)
		if err := errors.Join(os.Setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"), os.Setenv("OTEL_TRACES_SAMPLER_ARG", rate)); err != nil {
			return fmt.Errorf("set the share of traces: %w", err)
		}
	}
	log := a.log
	var err error
	a.tracer, err = tracing.New(ctx, a.version, func(err error) {
		// The error may quote the collector's address, which can hold a password.
		a.outage.Log(log, slog.LevelWarn, "collector", "spans not exported", "kind", fmt.Sprintf("%T", err))
	})
	a.log = slog.New(tracing.LogHandler(a.log.Handler()))
	return err
}

// NewMedia returns the configured runner of ffmpeg. Its error names the key of a missing program.
func NewMedia(cfg config.Config) (*media.Runner, error) {
	runner, err := media.New(media.Config{FFmpeg: cfg.Media.FFmpeg, MaxMemoryBytes: cfg.Media.MaxMemoryBytes})
	if err != nil {
		return nil, fmt.Errorf("FFMPEG_PATH: %w", err)
	}
	return runner, nil
}

// buildMedia makes the runner of ffmpeg, if a role of this process needs one.
func (a *App) buildMedia(ctx context.Context) error {
	if !a.cfg.Roles.Media() {
		return nil
	}
	var err error
	if a.media, err = NewMedia(a.cfg); err != nil {
		return err
	}
	layers, err := a.media.Confinement(ctx)
	if err != nil {
		return err
	}
	version, err := a.media.Version(ctx)
	if err != nil {
		return err
	}
	a.log.Info("ffmpeg starts", "version", version)
	return checkConfinement(layers, a.cfg.Media.RequireConfinement, a.log)
}

// checkConfinement logs which layers do not confine ffmpeg here. If confinement is required, it
// fails when neither namespaces nor Landlock are in force: a compromised decoder could then read
// the server's files and those of other users.
func checkConfinement(layers []confine.Layer, required bool, log *slog.Logger) error {
	var missing []string
	filesHidden := false
	for _, l := range layers {
		if !l.InForce {
			missing = append(missing, l.Name+": "+l.Detail)
		} else if l.Name != "seccomp" {
			filesHidden = true
		}
	}
	if required && !filesHidden {
		return fmt.Errorf("MEDIA_CAGE is required, and this system confines ffmpeg neither by namespaces nor by Landlock (%s)",
			strings.Join(missing, "; "))
	}
	if len(missing) > 0 {
		log.Warn("ffmpeg is not fully confined", "missing", missing)
	}
	return nil
}

// buildStores makes everything that keeps files: the object store, the caches and the staging area.
func (a *App) buildStores(context.Context) error {
	a.deps = ops.NewDependencies(a.db)
	var err error
	if a.store, a.bucket, err = openStore(a.cfg, a.dirs, a.deps); err != nil {
		return err
	}
	if a.assetCache, err = asset.NewCache(a.dirs.assets, a.cfg.Storage.CacheMaxBytes/3*2); err != nil {
		return err
	}
	a.parts, err = diskcache.New(diskcache.Config{Dir: a.dirs.parts, MaxBytes: a.cfg.Storage.CacheMaxBytes / 3})
	if err != nil {
		return err
	}
	if a.staging, err = staging.New(a.dirs.uploads); err != nil {
		return err
	}
	a.sweeps = ops.NewSweeps()
	a.sweeper = newSweeper(a.cfg, a.db, a.store, a.bucket, a.sweeps, a.log)
	return nil
}

// buildOps makes what identifies and reports this replica.
func (a *App) buildOps(context.Context) error {
	host, err := os.Hostname()
	if err != nil {
		host = "cutroom"
	}
	disk, err := installation.DiskID(a.dirs.root)
	if err != nil {
		return err
	}
	a.renewer = job.NewRenewer(a.db, host+"/"+uuid.NewString(), a.log)
	o := ops.ReadinessOptions{DB: a.db, Store: a.store, Uploads: a.staging, MinFree: a.cfg.Storage.MinFreeDiskBytes,
		DiskID: disk, Replica: a.renewer.Owner(), Log: a.log}
	if a.media != nil {
		o.StartFFmpeg = a.media.Works
	}
	a.ready = ops.NewReadiness(o)
	a.replica = job.Replica{ID: a.renewer.Owner(),
		Offers: a.ready.Offers(a.cfg.Render.MaxConcurrent), Log: a.log}
	a.metrics = ops.NewMetrics(a.version, a.db, a.sweeps)
	a.pauses = pause.NewGate(a.db)
	a.metrics.Register(a.ready, a.deps)
	a.slots = media.NewSlots(a.cfg.Render.MaxConcurrent)
	if a.cfg.Roles.Render {
		a.metrics.RegisterSlots(a.slots)
	}
	return nil
}

func (a *App) buildCredits(context.Context) error {
	var err error
	a.credits, err = NewLedger(a.cfg, a.db, a.deps, a.log)
	return err
}

// NewQuota returns the limits of an account. Each package says what counts.
func NewQuota(cfg config.Config) *quota.Limits {
	return quota.New(quota.Usage{WaitingJobs: cfg.Account.MaxWaitingJobs, StoredBytes: cfg.Account.MaxStoredBytes},
		render.Counts, separation.Counts, asset.Counts)
}

func (a *App) buildAssets(context.Context) error {
	a.quota = NewQuota(a.cfg)
	a.assets = asset.New(asset.Options{DB: a.db, Bucket: a.bucket, Cache: a.assetCache,
		MaxBytes: a.cfg.Storage.MaxUploadBytes, Lifetime: a.cfg.Asset.TTL, Quota: a.quota,
		MaxPerAccount: a.cfg.Account.MaxAssets, SignedURLLife: a.cfg.ObjectStore.SignedURLTTL})
	space := derived.NewSpace(a.ready.CanWork)
	a.onDemand = derived.New(derived.Options{AtOnce: 1, PerHolder: 1, MaxWait: 8 * time.Second, Space: space, Log: a.log})
	// Requests wait longer for an analysis. The slots bound how many run at once.
	a.analyses = derived.New(derived.Options{AtOnce: 64, PerHolder: 4, MaxWait: 30 * time.Second, Space: space, Log: a.log})
	slots := max(2, runtime.GOMAXPROCS(0))
	a.analysisSlots = media.NewFairSlots(media.FairLimits{Slots: slots, PerHolder: 1, Reserved: slots / 2, Recent: time.Minute})
	a.analysis = analysis.New(analysis.Options{Assets: a.assets, Bucket: a.bucket, Media: a.media,
		Slots: a.analysisSlots, Maker: a.analyses, WorkDir: a.dirs.work, Log: a.log})
	return nil
}

func (a *App) buildSeparations(context.Context) error {
	a.calls = admin.NewCallLog(a.db, a.log)
	record := func(c separator.Call) {
		a.calls.Record(c)
		a.metrics.ObserveCall(c)
	}
	provider, err := NewProvider(a.cfg, a.deps, record, a.log)
	if err != nil {
		return err
	}
	cfg := a.cfg.Separation
	a.separations = separation.New(separation.Options{
		DB: a.db, Store: a.store, WorkDir: a.dirs.work, Assets: a.assets, Sounds: a.analysis, Quota: a.quota,
		Renewer: a.renewer, Sweeper: a.sweeper, CanWork: a.ready.CanWork,
		Media: a.media, OnDemand: a.onDemand, Analyses: a.analysisSlots, Provider: provider,
		MaxAudioBytes: cfg.MaxAudioBytes, PublicBaseURL: a.cfg.HTTP.PublicBaseURL,
		SigningSecret: cfg.SigningSecret.Reveal(), SigningPrevious: cfg.SigningPrevious.Reveal(),
		URLLifetime: cfg.URLTTL, JobLifetime: a.cfg.Retention.Jobs, AbandonAfter: cfg.AbandonTTL,
		InFlight: cfg.MaxInFlight, StuckAfter: cfg.StuckSubmitting, BusyWait: cfg.BusyWait,
		PollEvery: cfg.PollInterval, PollTimeout: cfg.MaxPoll,
		Tracer: a.tracer, Observer: a.metrics.Jobs("separation"), Log: a.log,
	})
	return nil
}

func (a *App) buildRenders(context.Context) error {
	cfg := a.cfg.Render
	a.renders = render.New(render.Options{
		DB: a.db, Store: a.store, Bucket: a.bucket, WorkDir: a.dirs.work, Assets: a.assets,
		Quota: a.quota, Separations: a.separations,
		Renewer: a.renewer, Sweeper: a.sweeper, CanWork: a.ready.CanWork,
		Engine: a.newEngine(), Slots: a.slots, OnDemand: a.onDemand, EraseCaches: a.parts.EraseScope,
		Timeout: cfg.JobTimeout, InputLifetime: cfg.InputCacheTTL, JobLifetime: a.cfg.Retention.Jobs,
		OutputLifetime: cfg.OutputTTL, SignedURLLife: a.cfg.ObjectStore.SignedURLTTL,
		Tracer: a.tracer, Observer: a.metrics.Jobs("render"), Log: a.log,
	})
	return nil
}

func (a *App) newEngine() *engine.Engine {
	cfg := a.cfg.Render
	var cache engine.PartCache = a.parts
	if a.bucket != nil {
		cache = render.NewSharedCache(a.parts, a.bucket)
	}
	return engine.New(engine.Config{Media: a.media, Cores: coresPerRender(cfg.MaxConcurrent), Cache: cache,
		FinalTimeout: cfg.ProcessTimeout,
		Limits: engine.Limits{MaxPixelFrames: cfg.MaxPixelFrames, MaxSound: cfg.MaxSound,
			MinFreeBytes: a.cfg.Storage.MinFreeDiskBytes}})
}

// coresPerRender divides the machine among the renders that may run at once.
func coresPerRender(concurrent int) int { return max(1, runtime.GOMAXPROCS(0)/concurrent) }

func (a *App) buildAccounts(context.Context) error {
	cfg := a.cfg.Auth
	a.accounts = account.New(account.Options{
		DB:        a.db,
		Tokens:    account.NewTokens(cfg.JWTSecret.Reveal(), cfg.JWTLifetime, cfg.JWTPrevious.Reveal()),
		Providers: newIdentityProviders(a.cfg, a.deps), Credits: a.credits,
		Erasers: []account.Eraser{a.separations.Erase, a.renders.Erase, a.assets.Erase},
		Session: cfg.Session, MaxTokenLife: config.MaxTokenLife, Log: a.log,
	})
	return nil
}

func (a *App) buildAPI(context.Context) error {
	a.stopping = make(chan struct{})
	cfg := a.cfg.HTTP
	o := httpapi.Options{
		DB: a.db, Accounts: a.accounts, Credits: a.credits, Separations: a.separations, Renders: a.renders,
		Assets: a.assets, Analyses: a.analysis, Quota: a.quota, Devices: a.devices, Admin: admin.New(a.db),
		Staging: a.staging, Pauses: a.pauses,
		MaxUploadBytes: a.cfg.Storage.MaxUploadBytes, MaxAudioBytes: a.cfg.Separation.MaxAudioBytes,
		MaxRenderPixels: a.cfg.Render.MaxPixelFrames, RenderOutputTTL: a.cfg.Render.OutputTTL,
		AllowedOrigins: cfg.AllowedOrigins, TrustedProxies: cfg.TrustedProxies, ProxyHops: cfg.ProxyHops,
		AdminSlug: cfg.AdminSlug, AdminClientID: cfg.AdminClientID, AdminAuthorizeURL: authorizeURL, APIDocs: cfg.APIDocs,
		Tracer: a.tracer, Observe: a.metrics.ObserveRequest, Stopping: a.stopping, Log: a.log,
	}
	if cfg.TestdataMock {
		o.TestdataDir = "."
	}
	a.handler = httpapi.New(o)
	return nil
}

// NewBucket returns the configured bucket, nil if there is none. Nil deps count nothing.
func NewBucket(cfg config.Config, deps *ops.Dependencies) *objectstore.Bucket {
	if !cfg.ObjectStore.Enabled() {
		return nil
	}
	return objectstore.NewBucket(objectstore.BucketConfig{Endpoint: cfg.ObjectStore.Endpoint,
		Bucket: cfg.ObjectStore.Bucket, AccessKeyID: cfg.ObjectStore.AccessKeyID,
		SecretAccessKey: cfg.ObjectStore.SecretAccessKey.Reveal(),
		StallTimeout:    cfg.Outbound.BucketSilence(),
		HTTP:            deps.Client("bucket", &http.Client{Transport: objectstore.NewTransport()})})
}
