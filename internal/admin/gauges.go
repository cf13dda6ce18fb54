package admin

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"cutroom/internal/credit"
	"cutroom/internal/db"
)

// Gauges exports the state of jobs, provider calls and credits for monitoring. Each scrape queries the
// database.
type Gauges struct {
	db *db.DB

	mu       sync.Mutex
	entries  []prometheus.Metric // of the ledger, from the last query
	readNext time.Time
}

// NewGauges returns the gauges of a database, which the caller still owns.
func NewGauges(d *db.DB) *Gauges { return &Gauges{db: d} }

var (
	jobsDesc   = prometheus.NewDesc("cutroom_jobs", "Jobs by type and state.", []string{"type", "state"}, nil)
	oldestDesc = prometheus.NewDesc("cutroom_oldest_job_seconds",
		"Age of the oldest job in a state that must not last.", []string{"type", "state"}, nil)
	eventsDesc = prometheus.NewDesc("cutroom_oldest_event_seconds",
		"Age of the oldest undelivered event, by channel; outbox has the events that are not fanned out yet.",
		[]string{"channel"}, nil)
	callsDesc = prometheus.NewDesc("cutroom_provider_calls_last_hour",
		"Calls to the separation provider in the last hour.", []string{"endpoint", "success"}, nil)
	ledgerDesc = prometheus.NewDesc("cutroom_ledger_credits", "Credits in the ledger by kind of entry.", []string{"kind"}, nil)
	driftDesc  = prometheus.NewDesc("cutroom_ledger_drift_credits",
		"Sum of balances minus sum of ledger entries; anything but 0 is a fault.", nil, nil)
	underpaidDesc = prometheus.NewDesc("cutroom_separations_underpaid", "Separations whose stems are longer than what was paid for.", nil, nil)
)

// Describe implements prometheus.Collector.
func (g *Gauges) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{jobsDesc, oldestDesc, eventsDesc, callsDesc, ledgerDesc, driftDesc, underpaidDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (g *Gauges) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second) // Collect gets no context
	defer cancel()
	// Every state has a series even at 0, because alerts need it.
	g.gauge(ctx, ch, jobsDesc, `SELECT SUM(jobs), job_type, state FROM `+allJobs+` GROUP BY job_type, state`, jobStates...)
	g.gauge(ctx, ch, oldestDesc, `SELECT (now_ms() - MIN(created_at)) / 1000, job_type, state FROM (`+openJobs+`) AS open
		GROUP BY job_type, state`, unfinishedStates...)
	g.gauge(ctx, ch, eventsDesc, oldestEventSQL, []string{"outbox"}, []string{"webhook"}, []string{"platform_a"}, []string{"platform_b"})
	g.gauge(ctx, ch, callsDesc, `SELECT COUNT(*), endpoint, CASE WHEN success = 1 THEN 'true' ELSE 'false' END
		FROM provider_calls WHERE created_at > (SELECT now_ms()) - 3600000 GROUP BY endpoint, success`)
	g.ledger(ctx, ch)
	g.gauge(ctx, ch, underpaidDesc, underpaidSQL)
}

// oldestEventSQL measures a delivery's age from when it was queued, not from its event, because an
// operator may resend an old event.
const oldestEventSQL = `SELECT (now_ms() - MIN(queued_at)) / 1000, channel FROM event_deliveries WHERE state = 'PENDING' GROUP BY channel
	UNION ALL SELECT (now_ms() - created_at) / 1000, 'outbox' FROM (
		SELECT created_at FROM events WHERE fanned_out_at IS NULL ORDER BY created_at, id LIMIT 1) AS oldest`

// underpaidSQL repeats the condition of the index separation_underpaid exactly.
var underpaidSQL = fmt.Sprintf(`SELECT COUNT(*) FROM separation_jobs
	WHERE actual_duration_ms > credits * %d + %d AND actual_duration_ms > source_duration_ms + %d`,
	credit.BillableBlockMs, credit.GraceMs, credit.PaddingMs)

// The series of jobs, by type and state.
var (
	unfinishedStates = [][]string{{"render", "PENDING"}, {"render", "PROCESSING"},
		{"separation", "QUEUED"}, {"separation", "SUBMITTING"}, {"separation", "PROCESSING"}}
	jobStates = append([][]string{{"render", "COMPLETED"}, {"render", "FAILED"},
		{"separation", "READY"}, {"separation", "FAILED"}, {"separation", "DISPOSED"}}, unfinishedStates...)
)

// ledger sends the sums of the ledger and their difference from the balances. It caches them, because reading
// the whole ledger may take at most a hundredth of the time.
func (g *Gauges) ledger(ctx context.Context, ch chan<- prometheus.Metric) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if began := time.Now(); began.After(g.readNext) {
		sums, drift := map[string]float64{"signup": 0, "purchase": 0, "admin": 0, "consume": 0, "refund": 0}, 0.0
		err := g.each(ctx, `SELECT SUM(amount), kind FROM credit_ledger GROUP BY kind
			UNION ALL SELECT COALESCE(SUM(balance), 0), '' FROM credit_balances`, func(credits float64, kind []string) {
			if kind[0] == "" {
				drift += credits
				return
			}
			sums[kind[0]] = credits
			drift -= credits
		})
		if err != nil {
			ch <- prometheus.NewInvalidMetric(ledgerDesc, err)
			return
		}
		g.entries = []prometheus.Metric{prometheus.MustNewConstMetric(driftDesc, prometheus.GaugeValue, drift)}
		for kind, credits := range sums {
			g.entries = append(g.entries, prometheus.MustNewConstMetric(ledgerDesc, prometheus.GaugeValue, credits, kind))
		}
		g.readNext = time.Now().Add(100 * time.Since(began))
	}
	for _, m := range g.entries {
		ch <- m
	}
}

// gauge sends one metric per row: the value, then its labels. It sends 0 for series in always that have no row.
func (g *Gauges) gauge(ctx context.Context, ch chan<- prometheus.Metric, desc *prometheus.Desc, query string, always ...[]string) {
	found := map[string]bool{}
	err := g.each(ctx, query, func(value float64, labels []string) {
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

// each calls take with every row: a number followed by texts.
func (g *Gauges) each(ctx context.Context, query string, take func(value float64, labels []string)) error {
	return db.Each(ctx, g.db, func(rows *db.Rows) error {
		columns, err := rows.Columns()
		if err != nil {
			return err
		}
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
		return nil
	}, query)
}
