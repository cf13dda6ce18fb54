package app

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/pprof"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"cutroom/internal/db"
	"cutroom/internal/media"
)

// metrics is what /metrics shows: requests of this process, and the state of
// the shared database at the time of the scrape.
type metrics struct {
	registry *prometheus.Registry
	requests *prometheus.HistogramVec
}

func newMetrics(d *db.DB, slots *media.Slots) *metrics {
	m := &metrics{registry: prometheus.NewRegistry(), requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "cutroom_http_request_seconds", Help: "Time to answer, by route and status.",
		Buckets: []float64{.002, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10, 60},
	}, []string{"method", "route", "status"})}
	m.registry.MustRegister(m.requests, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		&stateCollector{db: d},
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

// observe counts one finished request.
func (m *metrics) observe(method, route string, status int, seconds float64) {
	m.requests.WithLabelValues(method, route, strconv.Itoa(status)).Observe(seconds)
}

// stateCollector reads jobs, provider calls and credits at each scrape.
type stateCollector struct{ db *db.DB }

var (
	jobsDesc   = prometheus.NewDesc("cutroom_jobs", "Jobs by type and state.", []string{"type", "state"}, nil)
	oldestDesc = prometheus.NewDesc("cutroom_oldest_job_seconds", "Age of the oldest job in a state that must not last.", []string{"type", "state"}, nil)
	callsDesc  = prometheus.NewDesc("cutroom_provider_calls_last_hour", "Calls to the separation provider in the last hour.", []string{"endpoint", "success"}, nil)
	ledgerDesc = prometheus.NewDesc("cutroom_ledger_credits", "Credits in the ledger by kind of entry.", []string{"kind"}, nil)
	driftDesc  = prometheus.NewDesc("cutroom_ledger_drift_credits", "Sum of balances minus sum of ledger entries; anything but 0 is a fault.", nil, nil)
)

// Describe implements prometheus.Collector.
func (c *stateCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{jobsDesc, oldestDesc, callsDesc, ledgerDesc, driftDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *stateCollector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second) // a scrape brings no context
	defer cancel()
	c.gauge(ctx, ch, jobsDesc, 2, `SELECT COUNT(*), 'render', state FROM render_jobs GROUP BY state
		UNION ALL SELECT COUNT(*), 'separation', state FROM separation_jobs GROUP BY state`)
	c.gauge(ctx, ch, oldestDesc, 2, `SELECT (now_ms() - MIN(created_at)) / 1000, 'render', state FROM render_jobs
		WHERE state IN ('PENDING', 'PROCESSING') GROUP BY state
		UNION ALL SELECT (now_ms() - MIN(created_at)) / 1000, 'separation', state FROM separation_jobs
		WHERE state IN ('QUEUED', 'SUBMITTING', 'PROCESSING') GROUP BY state`)
	c.gauge(ctx, ch, callsDesc, 2, `SELECT COUNT(*), endpoint, CASE WHEN success = 1 THEN 'true' ELSE 'false' END
		FROM provider_calls WHERE created_at > now_ms() - 3600000 GROUP BY endpoint, success`)
	c.gauge(ctx, ch, ledgerDesc, 1, `SELECT SUM(amount), kind FROM credit_ledger GROUP BY kind`)
	c.gauge(ctx, ch, driftDesc, 0, `SELECT (SELECT COALESCE(SUM(balance), 0) FROM credit_balances)
		- (SELECT COALESCE(SUM(amount), 0) FROM credit_ledger)`)
}

// gauge sends one metric a row: the value, then its labels.
func (c *stateCollector) gauge(ctx context.Context, ch chan<- prometheus.Metric, desc *prometheus.Desc, labels int, query string) {
	rows, err := c.db.Query(ctx, query)
	if err != nil {
		ch <- prometheus.NewInvalidMetric(desc, err)
		return
	}
	defer rows.Close()
	for rows.Next() {
		var value float64
		text := make([]string, labels)
		dest := []any{&value}
		for i := range text {
			dest = append(dest, &text[i])
		}
		if err := rows.Scan(dest...); err != nil {
			ch <- prometheus.NewInvalidMetric(desc, err)
			return
		}
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, text...)
	}
	if err := rows.Err(); err != nil {
		ch <- prometheus.NewInvalidMetric(desc, err)
	}
}

// serveOps runs the operators' listener. It has no authentication: bind it to
// an address that only operators reach.
func (a *App) serveOps(ctx context.Context) error {
	l, err := net.Listen("tcp", a.cfg.Ops.Addr)
	if err != nil {
		return errors.New("OPS_ADDR: cannot listen: " + err.Error())
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(a.metrics.registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}))
	mux.HandleFunc("GET /readyz", a.ready)
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
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

// ready answers 200 when this replica can serve: the database answers.
func (a *App) ready(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), 3*time.Second)
	defer cancel()
	status, body := http.StatusOK, map[string]string{"status": "ok"}
	if err := a.db.Ping(ctx); err != nil {
		status, body = http.StatusServiceUnavailable, map[string]string{"status": "the database does not answer"}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(body); err != nil {
		a.log.Debug("readyz not written", "err", err)
	}
}
