package app

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"runtime"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"cutroom/internal/admin"
	"cutroom/internal/db"
	"cutroom/internal/events"
	"cutroom/internal/media"
	"cutroom/internal/upstream/separator"
)

// metrics is what /metrics shows: requests of this process, and the state of
// the shared database at the time of the scrape.
type metrics struct {
	registry *prometheus.Registry
	requests *prometheus.HistogramVec
	events   *prometheus.CounterVec // attempts to deliver them
	stages   *prometheus.HistogramVec
	ended    *prometheus.CounterVec
	calls    *prometheus.HistogramVec
}

func newMetrics(version string, d *db.DB, sweeps *sweepMetrics) *metrics {
	m := &metrics{registry: prometheus.NewRegistry(), requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "cutroom_http_request_seconds", Help: "Time to answer, by route and status.",
		Buckets: []float64{.002, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10, 60},
	}, []string{"method", "route", "status"}),
		stages: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "cutroom_job_seconds",
			Help:    "Time of a job's stages: wait until its first attempt, total until it succeeded, and what a render does between.",
			Buckets: []float64{.1, .5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 7200}}, []string{"kind", "stage"}),
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "cutroom_jobs_ended_total",
			Help: "Jobs that ended on this process, by state."}, []string{"kind", "state"}),
		calls: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "cutroom_provider_call_seconds",
			Help:    "Time of a call to the separation provider.",
			Buckets: []float64{.05, .1, .25, .5, 1, 2.5, 5, 10, 30, 120, 600}}, []string{"call", "success"})}
	build := prometheus.NewGauge(prometheus.GaugeOpts{Name: "cutroom_build_info", Help: "Always 1; the labels tell what runs.",
		ConstLabels: prometheus.Labels{"version": version, "goversion": runtime.Version()}})
	build.Set(1)
	m.events = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "cutroom_event_attempts_total",
		Help: "Attempts of this process to deliver an event, by what came of them."}, []string{"channel", "outcome"})
	for _, channel := range events.Channels {
		for _, outcome := range events.Outcomes {
			m.events.WithLabelValues(channel, outcome) // shows its zero from the start
		}
	}
	m.registry.MustRegister(build, m.requests, m.stages, m.ended, m.calls, m.events, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		admin.NewGauges(d), clockSkew{d}, sweeps.leader, sweeps.removed, sweeps.held, sweeps.foreign, sweeps.stored, sweeps.largestStored, sweeps.largestWaiting,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "cutroom_db_connections_in_use", Help: "Pool connections in use."},
			func() float64 { return float64(d.Stats().InUse) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "cutroom_db_wait_seconds_total", Help: "Time spent waiting for a pool connection."},
			func() float64 { return d.Stats().WaitDuration.Seconds() }))
	return m
}

// clockSkew compares this machine's clock with the database's at each scrape.
type clockSkew struct{ db *db.DB }

var clockSkewDesc = prometheus.NewDesc("cutroom_clock_skew_seconds", "This replica's clock minus the database's.", nil, nil)

// Describe implements prometheus.Collector.
func (c clockSkew) Describe(ch chan<- *prometheus.Desc) { ch <- clockSkewDesc }

// Collect implements prometheus.Collector.
func (c clockSkew) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	asked := time.Now()
	var databaseMs int64
	if c.db.QueryRow(ctx, `SELECT now_ms()`).Scan(&databaseMs) != nil {
		return // another metric tells that the database is away
	}
	halfway := asked.Add(time.Since(asked) / 2)
	ch <- prometheus.MustNewConstMetric(clockSkewDesc, prometheus.GaugeValue, halfway.Sub(time.UnixMilli(databaseMs)).Seconds())
}

// showSlots adds what a process that renders tells.
func (m *metrics) showSlots(slots *media.Slots) {
	m.registry.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "cutroom_media_slots", Help: "Media-processing slots of this process."},
			func() float64 { return float64(slots.Size()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "cutroom_media_slots_in_use", Help: "Slots that run a job."},
			func() float64 { return float64(slots.InUse()) }))
}

// jobMetrics counts one kind of job. It implements job.Observer.
type jobMetrics struct {
	*metrics
	kind string
}

// Stage implements job.Observer.
func (m jobMetrics) Stage(stage string, took time.Duration) {
	m.stages.WithLabelValues(m.kind, stage).Observe(took.Seconds())
}

// Ended implements job.Observer.
func (m jobMetrics) Ended(state string) { m.ended.WithLabelValues(m.kind, state).Inc() }

// call observes one call to the separation provider.
func (m *metrics) call(c separator.Call) {
	m.calls.WithLabelValues(c.Endpoint, strconv.FormatBool(c.Success)).Observe(c.Latency.Seconds())
}

// sweepMetrics are what alerts need of the sweeps of objects.
type sweepMetrics struct {
	leader  prometheus.Gauge
	removed *prometheus.CounterVec
	held    prometheus.Gauge
	foreign prometheus.Gauge
	stored  *prometheus.GaugeVec
	// Of the accounts that have most.
	largestStored, largestWaiting prometheus.Gauge
}

func newSweepMetrics() *sweepMetrics {
	return &sweepMetrics{
		leader: prometheus.NewGauge(prometheus.GaugeOpts{Name: "cutroom_sweep_leader", Help: "1 on the replica that sweeps for all."}),
		removed: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "cutroom_swept_objects_total",
			Help: "Objects that sweeps of this process removed, by kind."}, []string{"kind"}),
		held: prometheus.NewGauge(prometheus.GaugeOpts{Name: "cutroom_sweep_held_objects",
			Help: "Objects that the last sweep did not remove because the database does not know suspiciously many; 0 when it was not held."}),
		foreign: prometheus.NewGauge(prometheus.GaugeOpts{Name: "cutroom_bucket_foreign",
			Help: "1 while the bucket carries the id of another installation, or none; sweeps remove nothing then."}),
		stored: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "cutroom_stored_bytes",
			Help: "Size of the objects that the last sweep found, by kind; of assets, of those that the database knows."}, []string{"kind"}),
		largestStored: prometheus.NewGauge(prometheus.GaugeOpts{Name: "cutroom_largest_account_stored_bytes",
			Help: "Most that any account stores, as ACCOUNT_MAX_STORED_MB counts; found hourly."}),
		largestWaiting: prometheus.NewGauge(prometheus.GaugeOpts{Name: "cutroom_largest_account_waiting_jobs",
			Help: "Most jobs of one account that wait, as ACCOUNT_MAX_WAITING_JOBS counts; found hourly."}),
	}
}

// reset is for a replica that sweeps no more.
func (m *sweepMetrics) reset() {
	m.leader.Set(0)
	m.held.Set(0)
	m.foreign.Set(0)
	m.stored.Reset()
	m.largestStored.Set(0)
	m.largestWaiting.Set(0)
}

// observe counts one finished request.
func (m *metrics) observe(method, route string, status int, seconds float64) {
	m.requests.WithLabelValues(method, route, strconv.Itoa(status)).Observe(seconds)
}

// observeEvent counts one attempt to deliver an event.
func (m *metrics) observeEvent(channel, outcome string) {
	m.events.WithLabelValues(channel, outcome).Inc()
}

// listenOps opens the operators' listener, nil where none is wanted. It has no
// authentication: bind it to an address that only operators reach.
func (a *App) listenOps() (net.Listener, error) {
	if a.cfg.Ops.Addr == "" {
		return nil, nil
	}
	l, err := net.Listen("tcp", a.cfg.Ops.Addr)
	if err != nil {
		return nil, fmt.Errorf("OPS_ADDR: cannot listen: %w", err)
	}
	return l, nil
}

func (a *App) serveOps(ctx context.Context, l net.Listener) error {
	srv := &http.Server{Handler: a.opsHandler(), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute}
	a.log.Info("operators' listener", "address", l.Addr().String())
	return serveUntil(ctx, srv, l, srv.Close)
}

func (a *App) opsHandler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(a.metrics.registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}))
	mux.HandleFunc("GET /healthz", healthy)
	mux.Handle("GET /readyz", a.ready)
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}
