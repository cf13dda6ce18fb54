package app

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"cutroom/internal/config"
	"cutroom/internal/ops"
	"cutroom/internal/upstream/separator"
)

// A provider that refuses us is a dependency that fails, as any other vendor is.
func TestCallsToTheSeparationProviderAreCounted(t *testing.T) {
	vendor := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusPaymentRequired) }))
	defer vendor.Close()
	registry := prometheus.NewRegistry()
	deps := ops.NewDependencies(registry)
	var cfg config.Config
	cfg.Separation.BaseURL, cfg.Separation.StorageBaseURL = vendor.URL, vendor.URL
	provider, err := NewProvider(cfg, deps, func(separator.Call) {}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := provider.Check(t.Context()); err == nil {
		t.Error("the provider's refusal is no error")
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counted := families[0].GetMetric()[0]
	if counted.GetLabel()[0].GetValue() != "separation_provider" || counted.GetCounter().GetValue() != 1 {
		t.Errorf("counted: %v", counted)
	}
}

// A delivery has 15 seconds of its own, however short the limits of other outbound calls are.
func TestTheWebHookHasLimitsOfItsOwn(t *testing.T) {
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer receiver.Close()
	hook, err := newWebhook(config.Config{Webhook: config.Webhook{URL: receiver.URL}, Outbound: config.Outbound{ConnectTimeout: 1, RequestTimeout: 1, SocketTimeout: 1}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer hook.HTTP.CloseIdleConnections()
	if _, err := hook.HTTP.Head(receiver.URL); err != nil || hook.HTTP.Timeout != 15*time.Second {
		t.Errorf("a delivery may take %v: %v", hook.HTTP.Timeout, err)
	}
}
