// Command bench-scale measures how rendering scales over replicas, and writes a section of docs/benchmarks.md. `make
// bench-scale` runs it inside a PostgreSQL cluster and an S3 server of its own.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"cutroom/internal/base/db"
	"cutroom/internal/testkit/apitest"
	"cutroom/internal/testkit/benchtest"
	"cutroom/internal/testkit/dbtest"
)

type options struct {
	film    time.Duration
	workers int
	queue   int
	only    string
	out     string
}

const (
	jobsPerWorker = 8
	filmParts     = 64
)

func main() {
	var o options
	flag.DurationVar(&o.film, "film", time.Second, "length of a simulated film")
	flag.IntVar(&o.workers, "workers", 64, "the largest number of simulated workers")
	flag.IntVar(&o.queue, "queue", 100_000, "the longest queue")
	flag.StringVar(&o.only, "only", "", "print one table, batch, film, queue or turns, and write to no page")
	flag.StringVar(&o.out, "out", "docs/benchmarks.md", "the page to write to")
	flag.Parse()
	debug.SetGCPercent(200) // as serve does
	if err := o.run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench-scale:", err)
		os.Exit(1)
	}
}

// row writes a row of a table.
type row = func(format string, args ...any)

// table is one table of the section.
type table struct {
	name, title, intro, head string
	rows                     func(add row)
}

func (o options) run() error {
	tables := o.tables()
	if o.only != "" && !slices.ContainsFunc(tables, func(t table) bool { return t.name == o.only }) {
		return fmt.Errorf("-only %s: there is no such table", o.only)
	}
	report := benchtest.New("bench-scale", "How rendering scales")
	report.Say(introScale, postgresVersion())
	for _, t := range tables {
		if o.only != "" && o.only != t.name {
			continue
		}
		report.Say("### %s", t.title)
		report.Say("%s", t.intro)
		report.Table(strings.Split(t.head, " | ")...)
		t.rows(report.Row)
	}
	if o.only != "" {
		return nil
	}
	return report.Save(o.out)
}

func (o options) tables() []table {
	return []table{
		{"batch", "Many jobs, many workers", fmt.Sprintf(introBatch, jobsPerWorker, o.film), headBatch, func(add row) {
			o.each(func(t testing.TB, workers int) { o.measureBatch(t, workers).line(add) })
		}},
		{"film", "One long film, many workers", fmt.Sprintf(introFilm, filmParts, o.film/2), headFilm, func(add row) {
			o.each(func(t testing.TB, workers int) { o.measureFilm(t, workers).line(add) })
		}},
		{"queue", "A queue that grows", introQueue, headQueue, func(add row) { o.claims("Queue", add) }},
		{"turns", "Many owners take turns", introTurns, headTurns, func(add row) { o.claims("Turns", add) }},
	}
}

// The heads of the tables of claims.
const (
	headQueue = `Finished | Waiting | Workers | Cycles per second | Claim, median | 95 % | End, median | 95 %`
	headTurns = `Owners | Waiting | Workers | Claims per second | Claim, median | 95 % | PostgreSQL CPU per claim`
)

// each measures with 1, 2, 4 and more workers.
func (o options) each(measure func(t testing.TB, workers int)) {
	for n := 1; n <= o.workers; n *= 2 {
		inTest(func(t testing.TB) { measure(t, n) })
	}
}

// inTest runs a measurement, and removes its database, its files and its processes. A failure ends the program.
func inTest(measure func(t testing.TB)) {
	t, end := apitest.NewLife()
	defer func() {
		if end() {
			panic("a measurement failed")
		}
	}()
	measure(t)
}

// claims measures claims in a test beside the queue's code, because claiming is not a public call, and copies the rows
// that the test prints.
func (o options) claims(name string, add row) {
	cmd := exec.Command("go", "test", "./internal/domain/render", "-count=1", "-timeout=20m", "-v", "-run=TestBenchmarkClaims/"+name,
		"-bench-claims="+(2*o.film).String(), "-bench-claims-queue="+fmt.Sprint(o.queue))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		panic(fmt.Sprintf("%v\n%s", err, out))
	}
	for line := range strings.Lines(string(out)) {
		if cells, ok := strings.CutPrefix(strings.TrimSpace(line), "| "); ok {
			add("%s", strings.TrimSuffix(cells, " |"))
		}
	}
}

func postgresVersion() (version string) {
	inTest(func(t testing.TB) {
		url, user, password := dbtest.URL(t)
		d := dbtest.Open(t, db.Options{URL: url, User: user, Password: password, MaxPool: 1})
		if err := d.QueryRow(t.Context(), "SHOW server_version").Scan(&version); err != nil {
			t.Fatal(err)
		}
	})
	return strings.Fields(version)[0]
}
