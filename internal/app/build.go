package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"cutroom/internal/account"
	"cutroom/internal/asset"
	"cutroom/internal/config"
	"cutroom/internal/credit"
	"cutroom/internal/db"
	"cutroom/internal/job"
	"cutroom/internal/media"
	"cutroom/internal/media/confine"
	"cutroom/internal/objectstore"
	"cutroom/internal/tracing"
	"cutroom/internal/upstream/identity"
	"cutroom/internal/upstream/receipt"
	"cutroom/internal/upstream/separator"
)

// NewMedia returns the runner of ffmpeg as configured.
func NewMedia(cfg config.Config) (*media.Runner, error) {
	return media.New(media.Config{FFmpeg: cfg.Media.FFmpeg, FFprobe: cfg.Media.FFprobe,
		MaxMemoryBytes: cfg.Media.MaxMemoryBytes, MaxFileBytes: cfg.Media.MaxFileBytes, MaxPixels: cfg.Render.MaxInputPixels})
}

// buildMedia returns the runner, confined, and what tells whether it works; both
// are nil where the process runs no ffmpeg.
func buildMedia(ctx context.Context, cfg config.Config, log *slog.Logger) (*media.Runner, func(context.Context) error, error) {
	if !cfg.Roles.Media() {
		return nil, nil, nil
	}
	runner, err := NewMedia(cfg)
	if err != nil {
		return nil, nil, err
	}
	layers, err := runner.Confinement(ctx)
	if err == nil {
		err = checkConfinement(layers, cfg.Media.RequireConfinement, log)
	}
	return runner, runner.Works, err
}

// checkConfinement says what does not confine ffmpeg here. Where it must, it
// fails when neither namespaces nor Landlock do: then a decoder that was taken
// over would see the server's files and other users'.
func checkConfinement(layers []confine.Layer, must bool, log *slog.Logger) error {
	var missing []string
	kept := false // from the files
	for _, l := range layers {
		if !l.InForce {
			missing = append(missing, l.Name+": "+l.Detail)
		} else if l.Name != "seccomp" {
			kept = true
		}
	}
	if must && !kept {
		return fmt.Errorf("MEDIA_CAGE is required, and this system confines ffmpeg neither by namespaces nor by Landlock (%s)", strings.Join(missing, "; "))
	}
	if len(missing) > 0 {
		log.Warn("ffmpeg is not fully confined", "missing", missing)
	}
	return nil
}

// NewBucket returns the configured bucket, nil when there is none.
func NewBucket(cfg config.Config) *objectstore.Bucket { return newBucket(cfg, nil) }

func newBucket(cfg config.Config, seen *dependencies) *objectstore.Bucket {
	if !cfg.ObjectStore.Enabled() {
		return nil
	}
	return objectstore.NewBucket(objectstore.BucketConfig{Endpoint: cfg.ObjectStore.Endpoint,
		Bucket: cfg.ObjectStore.Bucket, AccessKeyID: cfg.ObjectStore.AccessKeyID,
		SecretAccessKey: cfg.ObjectStore.SecretAccessKey.Reveal(),
		StallTimeout:    cfg.Outbound.BucketSilence(),
		HTTP:            seen.client("bucket", &http.Client{Transport: objectstore.NewTransport()})})
}

// buildTracer returns the tracer, nil where traces are off. Logs carry the id of
// their trace from here on.
func (a *App) buildTracer(ctx context.Context, cfg config.Tracing) error {
	if cfg.Endpoint == "" {
		return nil
	}
	for key, value := range cfg.FromFile {
		if err := os.Setenv(key, value); err != nil {
			return fmt.Errorf("%s: %w", key, err)
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

func (a *App) buildStore(cfg config.Config, dirs folders) error {
	var err error
	if a.nodeID, err = job.NodeID(dirs.root); err != nil {
		return err
	}
	if a.assetCache, err = asset.NewCache(dirs.assets, cfg.Asset.CacheMaxBytes); err != nil {
		return err
	}
	if a.store, a.bucket, err = openStore(cfg, dirs, a.seen); err != nil {
		return err
	}
	a.sweeps = newSweepMetrics()
	a.sweeper = newSweeper(cfg, a.db, a.store, a.bucket, a.sweeps, a.log)
	return nil
}

// outboundClient is for calls to identity providers and app stores.
func outboundClient(cfg config.Config) *http.Client {
	limits := cfg.Outbound.Prompt()
	dial := &net.Dialer{Timeout: limits.ConnectTimeout}
	return &http.Client{
		Timeout: limits.RequestTimeout,
		Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, DialContext: dial.DialContext,
			TLSHandshakeTimeout: limits.ConnectTimeout, MaxIdleConnsPerHost: 8, IdleConnTimeout: time.Minute,
			ResponseHeaderTimeout: limits.SocketTimeout, ForceAttemptHTTP2: true},
	}
}

// authorizeURL is provider_a's page on which staff sign in to the admin app.
const authorizeURL = "https://accounts.google.com/o/oauth2/v2/auth"

func newIdentityProviders(cfg config.Config, seen *dependencies) map[string]account.IdentityVerifier {
	client := outboundClient(cfg)
	out := map[string]account.IdentityVerifier{
		account.ProviderA: identity.NewProviderA(identity.ProviderAConfig{
			TokenInfoURL: cfg.Auth.ProviderA.TokenInfoURL, ClientIDs: cfg.Auth.ProviderA.ClientIDs, HTTP: seen.client("provider_a", client)}),
	}
	if len(cfg.Auth.ProviderB.ClientIDs) > 0 {
		out[account.ProviderB] = identity.NewProviderB(identity.ProviderBConfig{
			KeysURL: cfg.Auth.ProviderB.KeysURL, Issuer: cfg.Auth.ProviderB.Issuer,
			ClientIDs: cfg.Auth.ProviderB.ClientIDs, HTTP: seen.client("provider_b", client)})
	}
	return out
}

// NewLedger returns the ledger with the configured stores.
func NewLedger(cfg config.Config, d *db.DB, log *slog.Logger) (*credit.Ledger, error) {
	return newLedger(cfg, d, nil, log)
}

func newLedger(cfg config.Config, d *db.DB, seen *dependencies, log *slog.Logger) (*credit.Ledger, error) {
	a, b, err := newStores(cfg, seen)
	if err != nil {
		return nil, err
	}
	stores := map[string]credit.Store{}
	if a != nil {
		stores[credit.PlatformA] = a
	}
	if b != nil {
		seen.expires("platform_b_root", b.RootExpiry())
		stores[credit.PlatformB] = b
	}
	o := credit.Options{DB: d, Catalog: cfg.Credit.Products, Stores: stores,
		SignupBonus: cfg.Credit.SignupBonus, AdminDailyCap: cfg.Credit.AdminGrantDailyCap, Log: log}
	if cfg.Credit.BonusPerIdentity {
		o.BonusKey = cfg.Credit.BonusKey.Reveal()
	}
	return credit.New(o), nil
}

// NewStores returns the stores' clients, nil for what is not configured.
func NewStores(cfg config.Config) (a *receipt.PlatformA, b *receipt.PlatformB, err error) {
	return newStores(cfg, nil)
}

func newStores(cfg config.Config, seen *dependencies) (a *receipt.PlatformA, b *receipt.PlatformB, err error) {
	client := outboundClient(cfg)
	if p := cfg.IAP.PlatformA; p.Configured() {
		a, err = receipt.NewPlatformA(receipt.PlatformAConfig{BaseURL: p.BaseURL, PackageName: p.PackageName,
			ServiceAccountJSON: []byte(p.ServiceAccountJSON.Reveal()), AllowTest: p.AllowTest, Sender: pushSender(p.Notifications, client), HTTP: seen.client("platform_a", client)})
		if err != nil {
			return nil, nil, fmt.Errorf("IAP_PLATFORM_A: %w", err)
		}
	}
	if p := cfg.IAP.PlatformB; p.Configured() {
		b, err = receipt.NewPlatformB(receipt.PlatformBConfig{BaseURL: p.BaseURL, IssuerID: p.IssuerID, KeyID: p.KeyID, PrivateKeyPEM: []byte(p.PrivateKey.Reveal()),
			BundleID: p.BundleID, Sandbox: p.Sandbox, ExtraRootsPEM: p.RootCAs, HTTP: seen.client("platform_b", client)})
		if err != nil {
			return nil, nil, fmt.Errorf("IAP_PLATFORM_B: %w", err)
		}
	}
	return a, b, nil
}

// pushIssuer signs the tokens of platform_a's pushes.
const pushIssuer = "https://accounts.google.com"

// pushSender checks the token of a push from platform_a; nil while pushes are
// not configured.
func pushSender(p config.StorePush, client *http.Client) func(ctx context.Context, bearer string) error {
	if p.Audience == "" {
		return nil
	}
	tokens := identity.NewProviderB(identity.ProviderBConfig{Name: "push token", KeysURL: p.KeysURL, Issuer: pushIssuer,
		ClientIDs: []string{p.Audience}, HTTP: client})
	return func(ctx context.Context, bearer string) error {
		claims, err := tokens.Verify(ctx, bearer)
		switch {
		case errors.Is(err, identity.ErrUnavailable):
			return fmt.Errorf("%w: %w", receipt.ErrUnavailable, err)
		case err != nil:
			return fmt.Errorf("%w: %w", receipt.ErrForged, err)
		case claims.Email != p.Sender:
			return fmt.Errorf("%w: it is of another sender", receipt.ErrForged)
		}
		return nil
	}
}

// NewProvider returns the client of the separation provider, which reports
// every call to record.
func NewProvider(cfg config.Config, record func(separator.Call), log *slog.Logger) (*separator.Client, error) {
	return separator.New(separator.Config{
		BaseURL: cfg.Separation.BaseURL, StorageBaseURL: cfg.Separation.StorageBaseURL,
		APIKey: cfg.Separation.APIKey.Reveal(), SpaceID: cfg.Separation.SpaceID, AllowedHosts: cfg.Separation.AllowedHosts,
		ConnectTimeout: cfg.Outbound.ConnectTimeout, RequestTimeout: cfg.Outbound.RequestTimeout,
		SocketTimeout: cfg.Outbound.SocketTimeout, Record: record, Log: log,
	})
}
