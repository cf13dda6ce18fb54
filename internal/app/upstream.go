// Builds the clients of identity providers, app stores, push services, the web hook and the separation provider, each
// counted by ops.Dependencies.

package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"time"

	"cutroom/internal/base/db"
	"cutroom/internal/config"
	"cutroom/internal/domain/account"
	"cutroom/internal/domain/credit"
	"cutroom/internal/ops"
	"cutroom/internal/upstream/identity"
	"cutroom/internal/upstream/push"
	"cutroom/internal/upstream/receipt"
	"cutroom/internal/upstream/separator"
	"cutroom/internal/work/events"
)

// outboundClient returns a client for identity providers, app stores, the web hook and push services.
func outboundClient(limits config.Outbound) *http.Client {
	dial := &net.Dialer{Timeout: limits.ConnectTimeout}
	return &http.Client{
		Timeout: limits.RequestTimeout,
		Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, DialContext: dial.DialContext,
			TLSHandshakeTimeout: limits.ConnectTimeout, MaxIdleConnsPerHost: 8, IdleConnTimeout: time.Minute,
			ResponseHeaderTimeout: limits.SocketTimeout, ForceAttemptHTTP2: true},
	}
}

// authorizeURL is provider_a's page where admins sign in to the admin app.
const authorizeURL = "https://accounts.google.com/o/oauth2/v2/auth"

func newIdentityProviders(cfg config.Config, deps *ops.Dependencies) map[string]account.IdentityVerifier {
	client := outboundClient(cfg.Outbound.WithLimit())
	out := map[string]account.IdentityVerifier{
		account.ProviderA: identity.NewProviderA(identity.ProviderAConfig{
			TokenInfoURL: cfg.Auth.ProviderA.TokenInfoURL, ClientIDs: cfg.Auth.ProviderA.ClientIDs,
			HTTP: deps.Client("provider_a", client)}),
	}
	if len(cfg.Auth.ProviderB.ClientIDs) > 0 {
		out[account.ProviderB] = identity.NewProviderB(identity.ProviderBConfig{
			KeysURL: cfg.Auth.ProviderB.KeysURL, Issuer: cfg.Auth.ProviderB.Issuer,
			ClientIDs: cfg.Auth.ProviderB.ClientIDs, HTTP: deps.Client("provider_b", client)})
	}
	return out
}

// NewLedger returns the ledger with the configured stores. Nil deps count nothing.
func NewLedger(cfg config.Config, d *db.DB, deps *ops.Dependencies, log *slog.Logger) (*credit.Ledger, error) {
	a, b, err := NewStores(cfg, deps)
	if err != nil {
		return nil, err
	}
	stores := map[string]credit.Store{}
	if a != nil {
		stores[credit.PlatformA] = a
	}
	if b != nil {
		deps.SetExpiry("platform_b_root", b.RootExpiry())
		stores[credit.PlatformB] = b
	}
	o := credit.Options{DB: d, Catalog: cfg.Credit.Products, Stores: stores,
		SignupBonus: cfg.Credit.SignupBonus, AdminDailyCap: cfg.Credit.AdminGrantDailyCap, Log: log}
	if cfg.Credit.BonusPerIdentity {
		o.BonusKey = cfg.Credit.BonusKey.Reveal()
	}
	return credit.New(o), nil
}

// NewStores returns the clients of the app stores, nil for a store that is not configured. Nil deps count nothing.
func NewStores(cfg config.Config, deps *ops.Dependencies) (a *receipt.PlatformA, b *receipt.PlatformB, err error) {
	client := outboundClient(cfg.Outbound.WithLimit())
	if p := cfg.IAP.PlatformA; p.Configured {
		a, err = receipt.NewPlatformA(receipt.PlatformAConfig{BaseURL: p.BaseURL, PackageName: p.PackageName,
			ServiceAccountJSON: []byte(p.ServiceAccountJSON.Reveal()), AllowTest: p.AllowTest,
			Sender: newPushVerifier(p.Notifications, client), HTTP: deps.Client("platform_a", client)})
		if err != nil {
			return nil, nil, fmt.Errorf("IAP_PLATFORM_A: %w", err)
		}
	}
	if p := cfg.IAP.PlatformB; p.Configured {
		tests := ""
		if p.AllowTest && !p.Sandbox {
			tests = p.SandboxURL
		}
		b, err = receipt.NewPlatformB(receipt.PlatformBConfig{BaseURL: p.BaseURL, SandboxURL: tests, IssuerID: p.IssuerID, KeyID: p.KeyID,
			PrivateKeyPEM: []byte(p.PrivateKey.Reveal()), BundleID: p.BundleID, Sandbox: p.Sandbox,
			ExtraRootsPEM: p.RootCAs, HTTP: deps.Client("platform_b", client)})
		if err != nil {
			return nil, nil, fmt.Errorf("IAP_PLATFORM_B: %w", err)
		}
	}
	return a, b, nil
}

// pushIssuer issues the tokens of platform_a's refund notifications.
const pushIssuer = "https://accounts.google.com"

// newPushVerifier returns the function that verifies the token of a notification from platform_a, or nil if
// notifications are not configured.
func newPushVerifier(p config.StorePush, client *http.Client) func(ctx context.Context, bearer string) error {
	if p.Audience == "" {
		return nil
	}
	tokens := identity.NewProviderB(identity.ProviderBConfig{Name: "push token", KeysURL: p.KeysURL,
		Issuer: pushIssuer, ClientIDs: []string{p.Audience}, HTTP: client})
	return func(ctx context.Context, bearer string) error {
		claims, err := tokens.Verify(ctx, bearer)
		switch {
		case errors.Is(err, identity.ErrUnavailable):
			return fmt.Errorf("%w: %w", receipt.ErrUnavailable, err)
		case err != nil:
			return fmt.Errorf("%w: %w", receipt.ErrForged, err)
		case claims.Email != p.Sender:
			return fmt.Errorf("%w: another sender signed it", receipt.ErrForged)
		}
		return nil
	}
}

// NewProvider returns the client of the separation provider, which passes every call to record.
func NewProvider(cfg config.Config, deps *ops.Dependencies, record func(separator.Call), log *slog.Logger) (*separator.Client, error) {
	return separator.New(separator.Config{
		BaseURL: cfg.Separation.BaseURL, StorageBaseURL: cfg.Separation.StorageBaseURL,
		APIKey: cfg.Separation.APIKey.Reveal(), SpaceID: cfg.Separation.SpaceID,
		AllowedHosts:   cfg.Separation.AllowedHosts,
		ConnectTimeout: cfg.Outbound.ConnectTimeout, RequestTimeout: cfg.Outbound.RequestTimeout,
		SocketTimeout: cfg.Outbound.SocketTimeout, Record: record, Log: log,
		Observe: func(next http.RoundTripper) http.RoundTripper { return deps.Transport("separation_provider", next) },
	})
}

// buildEvents makes what delivers events: the registry of devices, the web hook and the push clients.
func (b *builder) buildEvents(context.Context) error {
	phoneA, phoneB, err := NewPushers(b.cfg, b.deps)
	if err != nil {
		return err
	}
	pushers := map[string]events.Pusher{}
	if phoneA != nil {
		pushers[events.PlatformA] = phoneA
	}
	if phoneB != nil {
		pushers[events.PlatformB] = phoneB
	}
	b.devices = events.NewDevices(b.db, slices.Collect(maps.Keys(pushers))...)
	o := events.Options{DB: b.db, Push: pushers, Log: b.log, Observe: b.metrics.ObserveEvent}
	if o.Webhook, err = newWebhook(b.cfg, b.deps); err != nil {
		return err
	}
	b.dispatcher = events.New(o)
	return nil
}

// attemptLimits lets any part of an attempt take as long as the whole attempt may, whatever the limits of other
// outbound calls are.
var attemptLimits = config.Outbound{ConnectTimeout: events.AttemptTimeout, RequestTimeout: events.AttemptTimeout,
	SocketTimeout: events.AttemptTimeout}

func newWebhook(cfg config.Config, deps *ops.Dependencies) (*events.Webhook, error) {
	if cfg.Webhook.URL == "" {
		return nil, nil
	}
	hook := &events.Webhook{URL: cfg.Webhook.URL, HTTP: deps.Client("webhook", outboundClient(attemptLimits))}
	for _, secret := range []config.Secret{cfg.Webhook.Secret, cfg.Webhook.PreviousSecret} {
		if secret.IsBlank() {
			continue
		}
		raw, err := events.DecodeSecret(secret.Reveal())
		if err != nil {
			return nil, fmt.Errorf("WEBHOOK_SECRET: %w", err)
		}
		hook.Secrets = append(hook.Secrets, raw)
	}
	return hook, nil
}

// NewPushers returns the clients of the push services, nil for what is not configured. deps may be nil.
func NewPushers(cfg config.Config, deps *ops.Dependencies) (a *push.PlatformA, b *push.PlatformB, err error) {
	if p := cfg.Push.PlatformA; !p.ServiceAccountJSON.IsBlank() {
		a, err = push.NewPlatformA(push.PlatformAConfig{BaseURL: p.BaseURL, ServiceAccountJSON: []byte(p.ServiceAccountJSON.Reveal()),
			HTTP: deps.Client("push_platform_a", outboundClient(attemptLimits))})
		if err != nil {
			return nil, nil, fmt.Errorf("PUSH_PLATFORM_A_SERVICE_ACCOUNT: %w", err)
		}
	}
	if p := cfg.Push.PlatformB; p.Configured {
		client := outboundClient(attemptLimits)
		client.Transport = push.TransportB(client.Transport.(*http.Transport), p.BaseURL)
		b, err = push.NewPlatformB(push.PlatformBConfig{BaseURL: p.BaseURL, TeamID: p.TeamID, KeyID: p.KeyID,
			KeyPEM: []byte(p.Key.Reveal()), Topic: p.Topic, HTTP: deps.Client("push_platform_b", client)})
		if err != nil {
			return nil, nil, fmt.Errorf("PUSH_PLATFORM_B_KEY: %w", err)
		}
	}
	return a, b, nil
}

// runEvents delivers events on one replica at a time, until ctx ends.
func (a *App) runEvents(ctx context.Context) {
	if a.cfg.Roles.Sweep {
		a.renewer.RunExclusive(ctx, "events", a.dispatcher.Run)
	}
}
