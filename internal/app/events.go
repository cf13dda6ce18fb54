package app

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"cutroom/internal/config"
	"cutroom/internal/events"
	"cutroom/internal/ops"
	"cutroom/internal/upstream/push"
)

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

// attemptLimits give the whole of an attempt to any part of it, whatever the limits of other outbound calls are.
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

// NewPushers returns the clients of the push services, nil for what is not configured.
// deps may be nil.
func NewPushers(cfg config.Config, deps *ops.Dependencies) (a *push.PlatformA, b *push.PlatformB, err error) {
	if p := cfg.Push.PlatformA; !p.ServiceAccountJSON.IsBlank() {
		a, err = push.NewPlatformA(push.PlatformAConfig{BaseURL: p.BaseURL, ServiceAccountJSON: []byte(p.ServiceAccountJSON.Reveal()),
			HTTP: deps.Client("push_platform_a", outboundClient(attemptLimits))})
		if err != nil {
			return nil, nil, fmt.Errorf("PUSH_PLATFORM_A_SERVICE_ACCOUNT: %w", err)
		}
	}
	if p := cfg.Push.PlatformB; p.Configured() {
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
