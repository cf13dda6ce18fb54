package app

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"cutroom/internal/credit"
	"cutroom/internal/db"
	"cutroom/internal/media"
	"cutroom/internal/separation"
)

// metrics is what /metrics shows: requests of this process, and the state of
// the shared database at the time of the scrape.
type metrics struct {
	registry *prometheus.Registry
	requests *prometheus.HistogramVec
}

func newMetrics(version string, d *db.DB, slots *media.Slots, sweeps *sweepMetrics) *metrics {
	m := &metrics{registry: prometheus.NewRegistry(), requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "cutroom_http_request_seconds", Help: "Time to answer, by route and status.",
		Buckets: []float64{.002, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10, 60},
	}, []string{"method", "route", "status"})}
	build := prometheus.NewGauge(prometheus.GaugeOpts{Name: "cutroom_build_info", Help: "Always 1; the labels tell what runs.",
		ConstLabels: prometheus.Labels{"version": version, "goversion": runtime.Version()}})
	build.Set(1)
	m.registry.MustRegister(build, m.requests, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		&stateCollector{db: d}, sweeps.removed, sweeps.held, sweeps.foreign,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "cutroom_media_slots", Help: "Media-processing slots of this process."},
			func() float64 { return float64(slots.Size()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "cutroom_media_slots_in_use", Help: "Slots that run a job."},
			func() float64 { return float64(slots.InUse()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "cutroom_db_connections_in_use", Help: "Pool connections in use."},
			func() float64 { return float64(d.Stats().InUse) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "cutroom_db_wait_seconds_total", Help: "Time spent waiting for a pool connection."},
			func() float64 { return d.Stats().WaitDuration.Seconds() }))
	return m
}

// sweepMetrics are what alerts need of the sweeps of objects.
type sweepMetrics struct {
	removed *prometheus.CounterVec
	held    prometheus.Gauge
	foreign prometheus.Gauge
}

func newSweepMetrics() *sweepMetrics {
	return &sweepMetrics{
		removed: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "cutroom_swept_objects_total",
			Help: "Objects that sweeps of this process removed, by kind."}, []string{"kind"}),
		held: prometheus.NewGauge(prometheus.GaugeOpts{Name: "cutroom_sweep_held_objects",
			Help: "Objects that the last sweep did not remove because the database does not know suspiciously many; 0 when it was not held."}),
		foreign: prometheus.NewGauge(prometheus.GaugeOpts{Name: "cutroom_bucket_foreign",
			Help: "1 while the bucket carries the id of another installation, or none; sweeps remove nothing then."}),
	}
}

// observe counts one finished request.
func (m *metrics) observe(method, route string, status int, seconds float64) {
	m.requests.WithLabelValues(method, route, strconv.Itoa(status)).Observe(seconds)
}

// stateCollector reads jobs, provider calls and credits at each scrape.
type stateCollector struct{ db *db.DB }

var (
	jobsDesc      = prometheus.NewDesc("cutroom_jobs", "Jobs by type and state.", []string{"type", "state"}, nil)
	oldestDesc    = prometheus.NewDesc("cutroom_oldest_job_seconds", "Age of the oldest job in a state that must not last.", []string{"type", "state"}, nil)
	callsDesc     = prometheus.NewDesc("cutroom_provider_calls_last_hour", "Calls to the separation provider in the last hour.", []string{"endpoint", "success"}, nil)
	ledgerDesc    = prometheus.NewDesc("cutroom_ledger_credits", "Credits in the ledger by kind of entry.", []string{"kind"}, nil)
	driftDesc     = prometheus.NewDesc("cutroom_ledger_drift_credits", "Sum of balances minus sum of ledger entries; anything but 0 is a fault.", nil, nil)
	underpaidDesc = prometheus.NewDesc("cutroom_separations_underpaid", "Separations whose stems are longer than what was paid for.", nil, nil)
)

// Describe implements prometheus.Collector.
func (c *stateCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{jobsDesc, oldestDesc, callsDesc, ledgerDesc, driftDesc, underpaidDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *stateCollector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second) // a scrape brings no context
	defer cancel()
	// Every state has its series at all times: an alert needs the 0, too.
	c.gauge(ctx, ch, jobsDesc, `SELECT COUNT(*), 'render', state FROM render_jobs GROUP BY state
		UNION ALL SELECT COUNT(*), 'separation', state FROM separation_jobs GROUP BY state`, jobStates...)
	c.gauge(ctx, ch, oldestDesc, `SELECT (now_ms() - MIN(created_at)) / 1000, 'render', state FROM render_jobs
		WHERE state IN ('PENDING', 'PROCESSING') GROUP BY state
		UNION ALL SELECT (now_ms() - MIN(created_at)) / 1000, 'separation', state FROM separation_jobs
		WHERE state IN ('QUEUED', 'SUBMITTING', 'PROCESSING') GROUP BY state`, unfinishedStates...)
	c.gauge(ctx, ch, callsDesc, `SELECT COUNT(*), endpoint, CASE WHEN success = 1 THEN 'true' ELSE 'false' END
		FROM provider_calls WHERE created_at > now_ms() - 3600000 GROUP BY endpoint, success`)
	c.gauge(ctx, ch, ledgerDesc, `SELECT SUM(amount), kind FROM credit_ledger GROUP BY kind`,
		[]string{"signup"}, []string{"purchase"}, []string{"admin"}, []string{"consume"}, []string{"refund"})
	c.gauge(ctx, ch, driftDesc, `SELECT (SELECT COALESCE(SUM(balance), 0) FROM credit_balances)
		- (SELECT COALESCE(SUM(amount), 0) FROM credit_ledger)`)
	c.gauge(ctx, ch, underpaidDesc, fmt.Sprintf(`SELECT COUNT(*) FROM separation_jobs
		WHERE actual_duration_ms > credits * %d + %d AND actual_duration_ms > source_duration_ms + %d`,
		credit.BillableBlockMs, credit.GraceMs, separation.PaddingMs))
}

// The series of jobs, by type and state.
var (
	unfinishedStates = [][]string{{"render", "PENDING"}, {"render", "PROCESSING"},
		{"separation", "QUEUED"}, {"separation", "SUBMITTING"}, {"separation", "PROCESSING"}}
	jobStates = append([][]string{{"render", "COMPLETED"}, {"render", "FAILED"},
		{"separation", "READY"}, {"separation", "FAILED"}, {"separation", "DISPOSED"}}, unfinishedStates...)
)

// gauge sends one metric a row: the value, then its labels. Series of always
// that have no row are sent as 0.
func (c *stateCollector) gauge(ctx context.Context, ch chan<- prometheus.Metric, desc *prometheus.Desc, query string, always ...[]string) {
	found := map[string]bool{}
	err := c.each(ctx, query, func(value float64, labels []string) {
		found[strings.Join(labels, "\n")] = true
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	})
	if err != nil {
		ch <- prometheus.NewInvalidMetric(desc, err)
		return
	}
	for _, labels := range always {
		if !found[strings.Join(labels, "\n")] {
			ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, 0, labels...)
		}
	}
}

// each calls take for every row: a number, then texts.
func (c *stateCollector) each(ctx context.Context, query string, take func(value float64, labels []string)) error {
	rows, err := c.db.Query(ctx, query)
	if err != nil {
		return err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return err
	}
	for rows.Next() {
		var value float64
		labels := make([]string, len(columns)-1)
		dest := []any{&value}
		for i := range labels {
			dest = append(dest, &labels[i])
		}
		if err := rows.Scan(dest...); err != nil {
			return err
		}
		take(value, labels)
	}
	return rows.Err()
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
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(l) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return srv.Close()
	}
}

func (a *App) opsHandler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(a.metrics.registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}))
	mux.Handle("GET /readyz", a.ready)
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}
