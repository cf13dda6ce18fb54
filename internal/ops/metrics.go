// The Prometheus metrics of a process (requests, jobs, events, calls to the provider) and of the sweeps.

package ops

import (
	"context"
	"math"
	"runtime"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"cutroom/internal/base/clock"
	"cutroom/internal/base/db"
	"cutroom/internal/domain/admin"
	"cutroom/internal/film/media"
	"cutroom/internal/upstream/separator"
	"cutroom/internal/work/events"
	"cutroom/internal/work/job"
)

// Metrics count what this process does.
type Metrics struct {
	requests *prometheus.HistogramVec
	events   *prometheus.CounterVec // delivery attempts
	stages   *prometheus.HistogramVec
	ended    *prometheus.CounterVec
	calls    *prometheus.HistogramVec
}

// NewMetrics adds to the registry the metrics of a process that runs version, and of the state of the database at the
// time of a scrape.
func NewMetrics(r prometheus.Registerer, version string, d *db.DB) *Metrics {
	m := &Metrics{
		requests: newHistogram(r, "cutroom_http_request_seconds", "Time to answer, by route and status.",
			[]float64{.002, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10, 60}, "method", "route", "status"),
		stages: newHistogram(r, "cutroom_job_seconds",
			"Time of a job's stages: wait until its first attempt, total until it succeeded, and what a render does between.",
			[]float64{.1, .5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 7200}, "kind", "stage"),
		ended: newCounter(r, "cutroom_jobs_ended_total", "Jobs that ended on this process, by state.", "kind", "state"),
		calls: newHistogram(r, "cutroom_provider_call_seconds", "Time of a call to the separation provider.",
			[]float64{.05, .1, .25, .5, 1, 2.5, 5, 10, 30, 120, 600}, "call", "success"),
		events: newCounter(r, "cutroom_event_attempts_total",
			"Attempts of this process to deliver an event, by what came of them.", "channel", "outcome"),
	}
	for _, channel := range events.Channels {
		for _, outcome := range events.Outcomes {
			m.events.WithLabelValues(channel, outcome) // exports 0 from the start
		}
	}
	newGauges(r, "cutroom_build_info", "Always 1; the labels tell what runs.", "version", "goversion").
		WithLabelValues(version, runtime.Version()).Set(1)
	newGaugeFunc(r, "cutroom_db_connections_in_use", "Pool connections in use.",
		func() float64 { return float64(d.Stats().InUse) })
	newGaugeFunc(r, "cutroom_clock_skew_seconds", "This replica's clock minus the database's.",
		func() float64 { return clockSkew(d) })
	promauto.With(r).NewCounterFunc(prometheus.CounterOpts{Name: "cutroom_db_wait_seconds_total",
		Help: "Time spent waiting for a pool connection."}, func() float64 { return d.Stats().WaitDuration.Seconds() })
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		admin.NewGauges(d))
	return m
}

func newHistogram(r prometheus.Registerer, name, help string, buckets []float64,
	labels ...string) *prometheus.HistogramVec {
	return promauto.With(r).NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
}

func newCounter(r prometheus.Registerer, name, help string, labels ...string) *prometheus.CounterVec {
	return promauto.With(r).NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

func newGauge(r prometheus.Registerer, name, help string) prometheus.Gauge {
	return promauto.With(r).NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
}

func newGauges(r prometheus.Registerer, name, help string, labels ...string) *prometheus.GaugeVec {
	return promauto.With(r).NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
}

func newGaugeFunc(r prometheus.Registerer, name, help string, value func() float64) {
	promauto.With(r).NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
}

// RegisterSlots adds the metrics of the slots of a process that renders.
func RegisterSlots(r prometheus.Registerer, slots *media.Slots) {
	newGaugeFunc(r, "cutroom_media_slots", "Media-processing slots of this process.",
		func() float64 { return float64(slots.Size()) })
	newGaugeFunc(r, "cutroom_media_slots_in_use", "Slots that run a job.",
		func() float64 { return float64(slots.InUse()) })
}

// ObserveRequest counts one finished request.
func (m *Metrics) ObserveRequest(method, route string, status int, seconds float64) {
	m.requests.WithLabelValues(method, route, strconv.Itoa(status)).Observe(seconds)
}

// ObserveEvent counts one attempt to deliver an event.
func (m *Metrics) ObserveEvent(channel, outcome string) {
	m.events.WithLabelValues(channel, outcome).Inc()
}

// ObserveCall counts one call to the separation provider.
func (m *Metrics) ObserveCall(c separator.Call) {
	m.calls.WithLabelValues(c.Endpoint, strconv.FormatBool(c.Success)).Observe(c.Latency.Seconds())
}

// Jobs returns the observer of one kind of job.
func (m *Metrics) Jobs(kind string) job.Observer { return jobObserver{m, kind} }

type jobObserver struct {
	*Metrics
	kind string
}

// Stage implements job.Observer.
func (o jobObserver) Stage(stage string, took time.Duration) {
	o.stages.WithLabelValues(o.kind, stage).Observe(took.Seconds())
}

// Ended implements job.Observer.
func (o jobObserver) Ended(state string) { o.ended.WithLabelValues(o.kind, state).Inc() }

// clockSkew returns the seconds by which this machine's clock is ahead of the database's, or NaN if the database does
// not answer.
func clockSkew(d *db.DB) float64 {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	sent := clock.Now()
	var databaseMs int64
	if d.QueryRow(ctx, `SELECT now_ms()`).Scan(&databaseMs) != nil {
		return math.NaN() // cutroom_dependency_errors_total counts database failures
	}
	halfway := sent.Add(clock.Now().Sub(sent) / 2)
	return halfway.Sub(time.UnixMilli(databaseMs)).Seconds()
}

// Sweeps are the metrics of the sweeps. They are zero on a replica that does not hold the sweep's lease.
type Sweeps struct {
	leader, held, foreign prometheus.Gauge
	removed               *prometheus.CounterVec
	stored                *prometheus.GaugeVec
}

// NewSweeps returns metrics in the registry r. If r is nil, nobody reads them.
func NewSweeps(r prometheus.Registerer) *Sweeps {
	return &Sweeps{
		leader: newGauge(r, "cutroom_sweep_leader", "1 on the replica that sweeps for all."),
		held: newGauge(r, "cutroom_sweep_held_objects", "Objects that the last sweep did not remove because "+
			"the database does not know suspiciously many; 0 when it was not held."),
		foreign: newGauge(r, "cutroom_bucket_foreign",
			"1 while the bucket carries the id of another installation, or none; sweeps remove nothing then."),
		removed: newCounter(r, "cutroom_swept_objects_total",
			"Objects that sweeps of this process removed, by kind.", "kind"),
		stored: newGauges(r, "cutroom_stored_bytes",
			"Size of the objects that the last sweep found, by kind; of assets, of those that the database knows.", "kind"),
	}
}

// Lead marks this replica as the one that sweeps.
func (s *Sweeps) Lead() { s.leader.Set(1) }

// Resign resets everything that only the sweeping replica reports.
func (s *Sweeps) Resign() {
	for _, g := range []prometheus.Gauge{s.leader, s.held, s.foreign} {
		g.Set(0)
	}
	s.stored.Reset()
}

// SetStored reports the size of all objects of a kind.
func (s *Sweeps) SetStored(kind string, sizeBytes int64) {
	s.stored.WithLabelValues(kind).Set(float64(sizeBytes))
}

// AddRemoved counts objects that a sweep removed.
func (s *Sweeps) AddRemoved(kind string, objects int) {
	s.removed.WithLabelValues(kind).Add(float64(objects))
}

// SetHeld reports how many objects the brake kept in the last sweep.
func (s *Sweeps) SetHeld(objects int) { s.held.Set(float64(objects)) }

// SetForeign reports whether the bucket belongs to another installation.
func (s *Sweeps) SetForeign(foreign bool) { s.foreign.Set(gauge(foreign)) }
