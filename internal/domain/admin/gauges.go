package admin

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"cutroom/internal/base/db"
	"cutroom/internal/domain/credit"
)

// Gauges exports the state of jobs, events and credits for monitoring. Each scrape queries the database.
type Gauges struct {
	db *db.DB

	mu         sync.Mutex
	difference float64 // of balances and ledger, from the last query
	readNext   time.Time
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
	driftDesc = prometheus.NewDesc("cutroom_ledger_drift_credits",
		"Sum of balances minus sum of ledger entries; anything but 0 is a fault.", nil, nil)
	underpaidDesc = prometheus.NewDesc("cutroom_separations_underpaid", "Separations whose stems are longer than what was paid for.", nil, nil)
)

// Describe implements prometheus.Collector.
func (g *Gauges) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{jobsDesc, oldestDesc, eventsDesc, driftDesc, underpaidDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (g *Gauges) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second) // Collect gets no context
	defer cancel()
	// Every state has a series even at 0, because alerts need it.
	g.gauge(ctx, ch, jobsDesc, `SELECT SUM(jobs), kind, state FROM `+allJobs+` GROUP BY kind, state`, jobStates...)
	g.gauge(ctx, ch, oldestDesc, `SELECT (now_ms() - MIN(created_at)) / 1000, kind, state
		FROM (`+unfinished(`kind, state, created_at`)+`) AS open
		GROUP BY kind, state`, unfinishedStates...)
	g.gauge(ctx, ch, eventsDesc, oldestEventSQL,
		[]string{"outbox"}, []string{"webhook"}, []string{credit.PlatformA}, []string{credit.PlatformB})
	g.drift(ctx, ch)
	g.gauge(ctx, ch, underpaidDesc, underpaidSQL)
}

// oldestEventSQL measures a delivery's age from when it was queued, not from its event, because an operator may resend
// an old event.
const oldestEventSQL = `SELECT (now_ms() - MIN(queued_at)) / 1000, channel FROM event_deliveries WHERE state = 'PENDING' GROUP BY channel
	UNION ALL SELECT (now_ms() - created_at) / 1000, 'outbox' FROM (
		SELECT created_at FROM events WHERE fanned_out_at IS NULL ORDER BY created_at, id LIMIT 1) AS oldest`

// underpaidSQL repeats the condition of the index separations_underpaid exactly.
var underpaidSQL = fmt.Sprintf(`SELECT COUNT(*) FROM separations JOIN jobs ON id = job_id
	WHERE actual_duration_ms > credits * %d + %d AND actual_duration_ms > source_duration_ms + %d`,
	credit.BillableBlockMs, credit.GraceMs, credit.PaddingMs)

// The series of jobs, by type and state.
var (
	unfinishedStates = [][]string{{"render", "PENDING"}, {"render", "PROCESSING"},
		{"separation", "QUEUED"}, {"separation", "SUBMITTING"}, {"separation", "PROCESSING"}}
	jobStates = append([][]string{{"render", "COMPLETED"}, {"render", "FAILED"},
		{"separation", "READY"}, {"separation", "FAILED"}, {"separation", "DISPOSED"}}, unfinishedStates...)
)

// drift sends the difference between the balances and the ledger. It caches the difference, so that reading the whole
// ledger takes at most a hundredth of the time.
func (g *Gauges) drift(ctx context.Context, ch chan<- prometheus.Metric) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if began := time.Now(); began.After(g.readNext) {
		err := g.db.QueryRow(ctx, `SELECT (SELECT COALESCE(SUM(balance), 0) FROM credit_balances)
			- (SELECT COALESCE(SUM(amount), 0) FROM credit_ledger)`).Scan(&g.difference)
		if err != nil {
			ch <- prometheus.NewInvalidMetric(driftDesc, err)
			return
		}
		g.readNext = time.Now().Add(100 * time.Since(began))
	}
	ch <- prometheus.MustNewConstMetric(driftDesc, prometheus.GaugeValue, g.difference)
}

// gauge sends one metric per row: the value, then its labels. It sends 0 for series in always that have no row.
func (g *Gauges) gauge(ctx context.Context, ch chan<- prometheus.Metric, desc *prometheus.Desc, query string, always ...[]string) {
	found := map[string]bool{}
	err := db.Each(ctx, g.db, func(rows *db.Rows) error {
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
		found[strings.Join(labels, "\n")] = true
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
		return nil
	}, query)
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
