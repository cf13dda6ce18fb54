// Builds the App: one build function for each area, in the order of their dependencies. Commands that run beside the
// service use the exported constructors.

package app

import (
	"cmp"
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

	"cutroom/internal/api/httpapi"
	"cutroom/internal/base/db"
	"cutroom/internal/base/monitor"
	"cutroom/internal/base/tracing"
	"cutroom/internal/config"
	"cutroom/internal/domain/account"
	"cutroom/internal/domain/admin"
	"cutroom/internal/domain/analysis"
	"cutroom/internal/domain/asset"
	"cutroom/internal/domain/credit"
	"cutroom/internal/domain/render"
	"cutroom/internal/domain/separation"
	"cutroom/internal/film/engine"
	"cutroom/internal/film/media"
	"cutroom/internal/film/media/confine"
	"cutroom/internal/ops"
	"cutroom/internal/storage/disk"
	"cutroom/internal/storage/diskcache"
	"cutroom/internal/storage/objectstore"
	"cutroom/internal/storage/staging"
	"cutroom/internal/upstream/separator"
	"cutroom/internal/work/derived"
	"cutroom/internal/work/events"
	"cutroom/internal/work/installation"
	"cutroom/internal/work/job"
	"cutroom/internal/work/quota"
	"cutroom/internal/work/sweep"
)

// jobLifetime is how long an ended job stays in the database.
const jobLifetime = 365 * 24 * time.Hour

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

// OpenDatabase connects to the configured database and prepares its schema, for example by db.DB.CheckSchema.
// observer may be nil.
func OpenDatabase(ctx context.Context, cfg config.Config, observer db.Observer, log *slog.Logger,
	prepare func(*db.DB, context.Context) error) (*db.DB, error) {
	d, err := db.Open(ctx, db.Options{URL: cfg.Database.URL, User: cfg.Database.User,
		Password: cfg.Database.Password.Reveal(), MaxPool: cfg.Database.MaxPool, Observer: observer, Log: log})
	if err != nil {
		return nil, fmt.Errorf("check DATABASE_URL, DB_USER and DB_PASSWORD: %w", err)
	}
	if err := prepare(d, ctx); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// builder is an App under construction, with the parts that only other parts need.
type builder struct {
	*App
	dirs          folders
	deps          *ops.Dependencies
	metrics       *ops.Metrics
	store         objectstore.Store
	sweeper       *sweep.Sweeper
	staging       *staging.Area
	assetCache    *diskcache.Cache
	parts         *diskcache.Cache
	media         *media.Runner // nil = no role runs ffmpeg
	slots         *media.Slots
	analysisSlots *media.FairSlots
	onDemand      *derived.Maker
	quota         *quota.Limits
	assets        *asset.Service
	analysis      *analysis.Service
	credits       *credit.Ledger
	separations   *separation.Service
	renders       *render.Service
	devices       *events.Devices
}

// build makes everything that needs the database, in the order of its dependencies.
func (b *builder) build(ctx context.Context) error {
	for _, step := range []func(context.Context) error{
		b.buildMonitor, b.buildTracer, b.buildStores, b.buildOps, b.buildCredits,
		b.buildAssets, b.buildSeparations, b.buildRenders, b.buildAccounts, b.buildEvents, b.buildAPI, b.buildSweeps,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// buildMonitor makes the monitor. From here on b.log reports failures to it.
func (b *builder) buildMonitor(context.Context) error {
	cfg := b.cfg.Monitoring
	var err error
	b.monitor, err = monitor.New(monitor.Options{DSN: cfg.DSN.Reveal(), Environment: cfg.Environment,
		Release: cmp.Or(cfg.Release, b.version)})
	if err != nil {
		return err
	}
	b.log = slog.New(b.monitor.Handler(b.log.Handler()))
	return nil
}

// buildTracer makes the tracer, if traces are on. From here on b.log adds trace ids.
func (b *builder) buildTracer(ctx context.Context) error {
	if b.cfg.Monitoring.TracesEndpoint == "" {
		return nil
	}
	if os.Getenv("OTEL_TRACES_SAMPLER") == "" {
		rate := strconv.FormatFloat(b.cfg.Monitoring.TracesSampleRate, 'f', -1, 64)
		err := errors.Join(os.Setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
			os.Setenv("OTEL_TRACES_SAMPLER_ARG", rate))
		if err != nil {
			return fmt.Errorf("set the share of traces: %w", err)
		}
	}
	log := b.log
	var err error
	b.tracer, err = tracing.New(ctx, b.version, func(err error) {
		// The error may quote the collector's address, which can hold a password.
		b.outage.Log(log, slog.LevelWarn, "collector", "spans not exported", "kind", fmt.Sprintf("%T", err))
	})
	b.log = slog.New(tracing.LogHandler(b.log.Handler()))
	return err
}

// NewMedia returns the configured runner of ffmpeg. Its error names a program that is missing.
func NewMedia(cfg config.Config) (*media.Runner, error) {
	runner, err := media.New(media.Config{MaxMemoryBytes: cfg.Media.MaxMemoryBytes})
	if err != nil {
		return nil, fmt.Errorf("find ffmpeg and ffprobe: %w", err)
	}
	return runner, nil
}

// buildMedia makes the runner of ffmpeg, if a role of this process needs one.
func (b *builder) buildMedia(ctx context.Context) error {
	if !b.cfg.Roles.Media() {
		return nil
	}
	var err error
	if b.media, err = NewMedia(b.cfg); err != nil {
		return err
	}
	layers, err := b.media.Confinement(ctx)
	if err != nil {
		return err
	}
	version, err := b.media.Version(ctx)
	if err != nil {
		return err
	}
	b.log.Info("ffmpeg starts", "version", version)
	return checkConfinement(layers, b.cfg.Media.RequireConfinement, b.log)
}

// checkConfinement logs which layers do not confine ffmpeg here. If confinement is required, it fails when neither
// namespaces nor Landlock are in force: a compromised decoder could then read the server's files and those of other
// users.
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
func (b *builder) buildStores(context.Context) error {
	var err error
	if b.store, b.bucket, err = OpenStore(b.cfg, b.deps); err != nil {
		return err
	}
	size, err := disk.Size(b.dirs.root)
	if err != nil {
		return err
	}
	// The rest of the disk is for jobs and uploads. On a large disk, a larger cache would rarely be read again before
	// it expires.
	b.assetCache, err = diskcache.New(diskcache.Config{Dir: b.dirs.assets, MaxBytes: min(size/4, 20<<30), Volatile: true})
	if err != nil {
		return err
	}
	if b.parts, err = diskcache.New(diskcache.Config{Dir: b.dirs.parts, MaxBytes: min(size/8, 10<<30)}); err != nil {
		return err
	}
	if b.staging, err = staging.New(b.dirs.uploads); err != nil {
		return err
	}
	b.sweeps = ops.NewSweeps(b.registry)
	b.sweeper = newSweeper(b.cfg, b.db, b.store, b.bucket, b.sweeps, b.log)
	return nil
}

// buildOps makes what identifies and reports this replica.
func (b *builder) buildOps(context.Context) error {
	host, err := os.Hostname()
	if err != nil {
		host = "cutroom"
	}
	diskID, err := installation.DiskID(b.dirs.root)
	if err != nil {
		return err
	}
	b.renewer = job.NewRenewer(b.db.Reserved(), host+"/"+uuid.NewString(), b.log)
	o := ops.ReadinessOptions{DB: b.db, Store: b.store, Uploads: b.staging, MinFree: disk.Reserve,
		DiskID: diskID, Replica: b.renewer.Owner(), Log: b.log}
	if b.media != nil {
		o.StartFFmpeg = b.media.Works
	}
	b.ready = ops.NewReadiness(o)
	b.replica = job.Replica{ID: b.renewer.Owner(),
		Offers: b.ready.Offers(b.cfg.Render.MaxConcurrent), Log: b.log}
	b.metrics = ops.NewMetrics(b.registry, b.version, b.db)
	b.registry.MustRegister(b.ready)
	b.slots = media.NewSlots(b.cfg.Render.MaxConcurrent)
	if b.cfg.Roles.Render {
		ops.RegisterSlots(b.registry, b.slots)
	}
	return nil
}

func (b *builder) buildCredits(context.Context) error {
	var err error
	b.credits, err = NewLedger(b.cfg, b.db, b.deps, b.log)
	return err
}

// NewQuota returns the limits of an account. Each package says what counts.
func NewQuota(cfg config.Config) *quota.Limits {
	return quota.New(quota.Usage{WaitingJobs: cfg.Account.MaxWaitingJobs, StoredBytes: cfg.Account.MaxStoredBytes},
		job.WaitingJobs, job.StoredBytes, render.InputBytes, asset.StoredBytes)
}

func (b *builder) buildAssets(context.Context) error {
	b.quota = NewQuota(b.cfg)
	space := derived.NewSpace(b.ready.CanWork)
	verifier := derived.New(derived.Options{AtOnce: 4, PerHolder: 4, MaxWait: 8 * time.Second, Log: b.log})
	b.assets = asset.New(asset.Options{DB: b.db, Bucket: b.bucket, Cache: b.assetCache, Verifier: verifier,
		MaxBytes: b.cfg.Storage.MaxUploadBytes, Quota: b.quota,
		MaxPerAccount: b.cfg.Account.MaxAssets, SignedURLLife: b.cfg.ObjectStore.SignedURLTTL})
	b.onDemand = derived.New(derived.Options{AtOnce: 1, PerHolder: 1, MaxWait: 8 * time.Second, Space: space, Log: b.log})
	// Requests wait longer for an analysis. The slots bound how many run at once.
	analyses := derived.New(derived.Options{AtOnce: 64, PerHolder: 4, MaxWait: 30 * time.Second, Space: space, Log: b.log})
	b.makers = []*derived.Maker{verifier, b.onDemand, analyses}
	slots := max(2, runtime.GOMAXPROCS(0))
	b.analysisSlots = media.NewFairSlots(media.FairLimits{Slots: slots, PerHolder: 1, Reserved: slots / 2, Recent: time.Minute})
	b.analysis = analysis.New(analysis.Options{Assets: b.assets, Bucket: b.bucket, Media: b.media,
		Slots: b.analysisSlots, Maker: analyses, WorkDir: b.dirs.work, Log: b.log})
	return nil
}

func (b *builder) buildSeparations(context.Context) error {
	b.calls = admin.NewCallLog(b.db, b.log)
	record := func(c separator.Call) {
		b.calls.Record(c)
		b.metrics.ObserveCall(c)
	}
	provider, err := NewProvider(b.cfg, b.deps, record, b.log)
	if err != nil {
		return err
	}
	cfg := b.cfg.Separation
	b.separations = separation.New(separation.Options{
		DB: b.db, Store: b.store, WorkDir: b.dirs.work, Assets: b.assets, Sounds: b.analysis, Quota: b.quota,
		Renewer: b.renewer, Sweeper: b.sweeper, CanWork: b.ready.CanWork,
		Media: b.media, OnDemand: b.onDemand, Analyses: b.analysisSlots, Provider: provider,
		MaxAudioBytes: cfg.MaxAudioBytes, PublicBaseURL: b.cfg.HTTP.PublicBaseURL,
		SigningSecret: cfg.SigningSecret.Reveal(), SigningPrevious: cfg.SigningPrevious.Reveal(),
		URLLifetime: cfg.URLTTL, JobLifetime: jobLifetime, AbandonAfter: cfg.AbandonTTL,
		InFlight: cfg.MaxInFlight, StuckAfter: cfg.StuckSubmitting, BusyWait: cfg.BusyWait,
		PollEvery: cfg.PollInterval, PollTimeout: cfg.MaxPoll,
		Tracer: b.tracer, Observer: b.metrics.Jobs("separation"), Log: b.log,
	})
	if b.cfg.Roles.Separation {
		b.workers = append(b.workers, b.separations.Run)
	}
	return nil
}

func (b *builder) buildRenders(context.Context) error {
	cfg := b.cfg.Render
	b.renders = render.New(render.Options{
		DB: b.db, Store: b.store, Bucket: b.bucket, WorkDir: b.dirs.work, Assets: b.assets,
		Quota: b.quota, Separations: b.separations,
		Renewer: b.renewer, Sweeper: b.sweeper, CanWork: b.ready.CanWork,
		Engine: b.newEngine(), Slots: b.slots, OnDemand: b.onDemand, EraseCaches: b.parts.EraseScope,
		Timeout: cfg.JobTimeout, InputLifetime: cfg.InputCacheTTL, JobLifetime: jobLifetime,
		OutputLifetime: cfg.OutputTTL, SignedURLLife: b.cfg.ObjectStore.SignedURLTTL,
		Tracer: b.tracer, Observer: b.metrics.Jobs("render"), Log: b.log,
	})
	if b.cfg.Roles.Render {
		b.workers = append(b.workers, b.renders.Run)
	}
	return nil
}

func (b *builder) newEngine() *engine.Engine {
	cfg := b.cfg.Render
	var cache engine.PartCache = b.parts
	if b.bucket != nil {
		cache = render.NewSharedCache(b.parts, b.bucket)
	}
	// The renders that may run at once divide the machine.
	cores := max(1, runtime.GOMAXPROCS(0)/cfg.MaxConcurrent)
	return engine.New(engine.Config{Media: b.media, Cores: cores, Cache: cache, FinalTimeout: cfg.ProcessTimeout,
		Limits: engine.Limits{MaxPixelFrames: cfg.MaxPixelFrames, MaxSound: cfg.MaxSound}})
}

func (b *builder) buildAccounts(context.Context) error {
	cfg := b.cfg.Auth
	b.accounts = account.New(account.Options{
		DB:        b.db,
		Tokens:    account.NewTokens(cfg.JWTSecret.Reveal(), cfg.JWTLifetime, cfg.JWTPrevious.Reveal()),
		Providers: newIdentityProviders(b.cfg, b.deps), Credits: b.credits,
		Erasers: []account.Eraser{b.separations.Erase, b.renders.Erase, b.assets.Erase},
		Session: cfg.Session, MaxTokenLife: config.MaxTokenLife, Log: b.log,
	})
	return nil
}

func (b *builder) buildAPI(context.Context) error {
	b.stopping = make(chan struct{})
	cfg := b.cfg.HTTP
	o := httpapi.Options{
		DB: b.db, Accounts: b.accounts, Credits: b.credits, Separations: b.separations, Renders: b.renders,
		Assets: b.assets, Analyses: b.analysis, Quota: b.quota, Devices: b.devices, Admin: admin.New(b.db), Staging: b.staging,
		MaxUploadBytes: b.cfg.Storage.MaxUploadBytes, MaxAudioBytes: b.cfg.Separation.MaxAudioBytes,
		MaxRenderPixels: b.cfg.Render.MaxPixelFrames, RenderOutputTTL: b.cfg.Render.OutputTTL,
		AllowedOrigins: cfg.AllowedOrigins, TrustedProxies: cfg.TrustedProxies, ProxyHops: cfg.ProxyHops,
		AdminSlug: cfg.AdminSlug, AdminClientID: cfg.AdminClientID, AdminAuthorizeURL: authorizeURL, APIDocs: cfg.APIDocs,
		Tracer: b.tracer, Observe: b.metrics.ObserveRequest, Stopping: b.stopping, Log: b.log,
	}
	if cfg.TestdataMock {
		o.TestdataDir = "."
	}
	b.handler = httpapi.New(o)
	return nil
}

// NewBucket returns the configured bucket, nil if there is none. Nil deps count nothing.
func NewBucket(cfg config.Config, deps *ops.Dependencies) *objectstore.Bucket {
	if !cfg.ObjectStore.Enabled() {
		return nil
	}
	return objectstore.NewBucket(objectstore.BucketConfig{Endpoint: cfg.ObjectStore.Endpoint,
		Region: cfg.ObjectStore.Region, VirtualHost: cfg.ObjectStore.VirtualHost,
		Bucket: cfg.ObjectStore.Bucket, AccessKeyID: cfg.ObjectStore.AccessKeyID,
		SecretAccessKey: cfg.ObjectStore.SecretAccessKey.Reveal(),
		StallTimeout:    cfg.Outbound.BucketSilence(),
		HTTP:            deps.Client("bucket", &http.Client{Transport: objectstore.NewTransport()})})
}

// claimEvery is the pause between two claims of a bucket that did not answer.
const claimEvery = 10 * time.Second

// claimStore returns an error if the bucket, or the disk, belongs to another installation. If the bucket does not
// answer, the service starts anyway, because not everything needs the bucket, and keepClaimingBucket tries again.
func (a *App) claimStore(ctx context.Context) error {
	if a.bucket == nil {
		return installation.ClaimDisk(ctx, a.db, a.cfg.Storage.Path)
	}
	lost, err := installation.Claim(ctx, a.db, a.bucket)
	if lost && err == nil {
		a.log.Warn("the bucket is empty and now belongs to this database, which is not new; " +
			"if its files are in another bucket, OBJECT_STORE_BUCKET is wrong")
	}
	if _, foreign := errors.AsType[*installation.ForeignError](err); foreign {
		return err
	}
	if a.bucketClaimed = err == nil; !a.bucketClaimed {
		a.log.Warn("cannot read which installation the bucket belongs to; will try again", "err", err)
	}
	return nil
}

// keepClaimingBucket repeats claimStore until the bucket answers.
func (a *App) keepClaimingBucket(ctx context.Context) error {
	if a.bucket == nil {
		return nil
	}
	tick := time.NewTicker(claimEvery)
	defer tick.Stop()
	for !a.bucketClaimed {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		if err := a.claimStore(ctx); err != nil {
			return err
		}
	}
	return nil
}

// newSweeper returns the sweeper of the object store. A nil bucket means a folder on this machine.
func newSweeper(cfg config.Config, d *db.DB, store objectstore.Store,
	bucket *objectstore.Bucket, m *ops.Sweeps, log *slog.Logger) *sweep.Sweeper {
	check := func(ctx context.Context) error { return installation.CheckDisk(ctx, d, cfg.Storage.Path) }
	if bucket != nil {
		check = func(ctx context.Context) error {
			err := installation.Check(ctx, d, bucket)
			_, foreign := errors.AsType[*installation.ForeignError](err)
			m.SetForeign(foreign)
			return err
		}
	}
	return sweep.New(sweep.Options{DB: d, Store: store, Check: check,
		Rules: append(separation.SweepRules(cfg.Storage.UploadsTTL),
			render.SweepRules(cfg.Storage.UploadsTTL, cfg.Asset.CacheTTL)...),
		Listed: m.SetStored, Removed: m.AddRemoved, Held: m.SetHeld, Log: log})
}

// OpenStore returns the configured object store: the bucket, or a folder on this machine, whose bucket is nil. Nil deps
// count nothing.
func OpenStore(cfg config.Config, deps *ops.Dependencies) (objectstore.Store, *objectstore.Bucket, error) {
	if bucket := NewBucket(cfg, deps); bucket != nil {
		return bucket, bucket, nil
	}
	dirs, err := makeFolders(cfg.Storage.Path)
	if err != nil {
		return nil, nil, err
	}
	dir, err := objectstore.NewDir(dirs.objects)
	return dir, nil, err
}

// NewSweeper returns the sweeper of the configured installation, for a command that runs beside the service.
func NewSweeper(cfg config.Config, d *db.DB, log *slog.Logger) (*sweep.Sweeper, error) {
	store, bucket, err := OpenStore(cfg, nil)
	if err != nil {
		return nil, err
	}
	return newSweeper(cfg, d, store, bucket, ops.NewSweeps(nil), log), nil
}
