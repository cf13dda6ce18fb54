package app

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"cutroom/internal/config"
	"cutroom/internal/dbtest"
	"cutroom/internal/ops"
	"cutroom/internal/upstream/separator"
)

// A provider that refuses us is a dependency that fails, as any other vendor is.
func TestCallsToTheSeparationProviderAreCounted(t *testing.T) {
	vendor := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusPaymentRequired) }))
	defer vendor.Close()
	deps := ops.NewDependencies(dbtest.SQLite(t))
	var cfg config.Config
	cfg.Separation.BaseURL, cfg.Separation.StorageBaseURL = vendor.URL, vendor.URL
	provider, err := NewProvider(cfg, deps, func(separator.Call) {}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := provider.Check(t.Context()); err == nil {
		t.Error("the provider's refusal is no error")
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(deps)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counted := 0.0
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "cutroom_dependency_errors_total" && m.GetLabel()[0].GetValue() == "separation_provider" {
				counted = m.GetCounter().GetValue()
			}
		}
	}
	if counted != 1 {
		t.Errorf("%v failures of the provider are counted", counted)
	}
}
