package main

import (
	"context"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"time"

	"cutroom/internal/sandbox"
)

// tracingTurns is how often requests without and with tracing are measured, in turns.
const tracingTurns = 5

// tracing is what turns without (0) and with traces (1) measured.
type tracing struct {
	database  string
	perSecond [2][]float64
	cpuMicros [2][]float64 // of a request
}

// measureTracing compares a service with a second one on the same database that
// records one request in a hundred.
func measureTracing(ctx context.Context, o options, binary, dir string, world *sandbox.World, d database, off *service, path, user string) (tracing, error) {
	collector := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer collector.Close()
	env := maps.Clone(d.env)
	env["OTEL_EXPORTER_OTLP_ENDPOINT"] = collector.URL
	env["OTEL_TRACES_SAMPLER"], env["OTEL_TRACES_SAMPLER_ARG"] = "parentbased_traceidratio", "0.01"
	on, err := startService(ctx, binary, filepath.Join(dir, "traced"), world, env)
	if err != nil {
		return tracing{}, err
	}
	defer on.stop()
	t := tracing{database: d.name}
	for range tracingTurns {
		for i, s := range []*service{off, on} {
			l, err := measure(o, s.child.PID(), s.url+path, user)
			if err != nil {
				return tracing{}, err
			}
			t.perSecond[i] = append(t.perSecond[i], l.perSecond)
			t.cpuMicros[i] = append(t.cpuMicros[i], float64(l.cpu)/float64(time.Microsecond))
		}
	}
	return t, nil
}
