// Command bench-api measures the API: requests per second and latencies of what phones ask for all day, on both
// databases, and the memory of the service while many clients upload at once. It starts everything itself. The load is
// bounded: a fixed number of clients, each with one request at a time.
//
// `make bench-api` runs it inside a PostgreSQL cluster of its own. With -year, as `make bench-admin` runs it, it
// measures reports, and everything that runs beside them, on a database with a year of jobs instead.
package main

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"cutroom/internal/testkit/apitest"
	"cutroom/internal/testkit/benchtest"
	"cutroom/internal/testkit/mediatest"
)

type options struct {
	clients  int
	duration time.Duration // of each measurement
	uploads  int
	uploadMB int64
	rounds   int
	jobs     int64
	out      string
}

func main() {
	var o options
	flag.IntVar(&o.clients, "clients", 16, "clients at a time, each with one request")
	flag.DurationVar(&o.duration, "duration", 5*time.Second, "how long each endpoint is asked")
	flag.IntVar(&o.uploads, "uploads", 50, "clients that upload at a time")
	flag.Int64Var(&o.uploadMB, "upload-mb", 20, "size of each upload; 200 needs 10 GB of disk and minutes")
	flag.IntVar(&o.rounds, "rounds", 2, "uploads of each client, at most 10")
	flag.Int64Var(&o.jobs, "year", 0, "measure instead a database with a year of so many jobs")
	flag.StringVar(&o.out, "out", "docs/benchmarks.md", "the page to write to")
	flag.Parse()
	if err := o.run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench-api:", err)
		os.Exit(1)
	}
}

// run measures, and then removes databases, files and processes.
func (o options) run() error {
	t, end := apitest.NewLife()
	measure := o.measureAPI
	if o.jobs > 0 {
		measure = o.measureYear
	}
	page := func() *benchtest.Section {
		defer func() {
			if end() {
				panic("a measurement failed")
			}
		}()
		return measure(t)
	}()
	return page.Save(o.out)
}

func (o options) measureAPI(t testing.TB) *benchtest.Section {
	r := benchtest.New("bench-api", "The API")
	r.Say(`The load driver, the service and PostgreSQL share the machine, so the figures are of about half of it. The service runs
with its defaults, its log included; PostgreSQL with those of the tests, which matters to writes only.

%d clients, each with one request at a time over a kept connection, %v an endpoint. CPU is that of the serving process
for a request, without PostgreSQL's: other work on the machine changes the rest, and this hardly.`, o.clients, o.duration)
	r.Table("endpoint", "database", "requests/s", "p50", "p99", "CPU of the server", "errors")
	names := map[string]string{"sqlite": "SQLite", "postgres": "PostgreSQL"}
	var memories []memory
	for _, database := range []string{"sqlite", "postgres"} {
		if err := os.Setenv("CUTROOM_TEST_DB", database); err != nil {
			t.Fatal(err)
		}
		s := apitest.Start(t, apitest.Replicas(1), apitest.Bucket(false))
		u := s.SignIn(t)
		sound := mediatest.Tone(t, 440, time.Second)
		film := u.Render(t, soundAlone, apitest.File("video", sound))
		u.WaitRendered(t, film)
		stems := u.Separate(t, sound)
		u.WaitReady(t, stems)
		for _, e := range []struct{ name, path string }{
			{"`GET /healthz`", "/healthz"},
			{"`GET /credits`", "/api/v2/credits"},
			{"`GET /credits/cost`", "/api/v2/credits/cost?durationMs=300000"},
			{"`GET /render/{id}/status`", "/api/v2/render/" + film + "/status"},
			{"`GET /separate/{id}`", "/api/v2/separate/" + stems},
		} {
			l := o.measure(t, u, e.path)
			r.Row("%s | %s | %.0f | %s | %s | %d µs | %d", e.name, names[database], l.perSecond, benchtest.Millis(l.p50),
				benchtest.Millis(l.p99), l.cpu.Microseconds(), l.errors)
		}
		memories = append(memories, o.measureUploads(t, s))
	}
	r.Say(`The render is a finished one; the status of the separation lists its stems, each with a freshly signed link. Every one of
them but ` + "`/healthz`" + ` is one indexed query, which a test holds against the plans of both databases, and a client that waits with
` + "`Prefer: wait`" + ` costs no more while nothing changes.`)
	r.Say(`**Memory under uploads.** %d clients upload %d MB each at the same time (rounds: %d) to `+"`POST /render/inputs`"+`. Resident
memory of the service in MiB; the quarters are of the time that the uploads took. Uploads stream to disk, so memory does
not grow with their size: what a client costs is its buffers.`, o.uploads, o.uploadMB, o.rounds)
	r.Table("database", "sent", "took", "idle", "1st quarter", "2nd", "3rd", "4th", "peak", "after")
	for i, m := range memories {
		r.Row("%s | %.0f MB | %s | %.0f | %.0f | %.0f | %.0f | %.0f | %.0f | %.0f", []string{"SQLite", "PostgreSQL"}[i], m.sentMB,
			m.took.Round(100*time.Millisecond), m.idle,
			m.quarters[0], m.quarters[1], m.quarters[2], m.quarters[3], m.peak, m.after)
	}
	return r
}

// soundAlone is an audio-only render, which takes nothing away from what is measured.
var soundAlone = apitest.M{"videoDurationMs": 1000, "outputKind": "audio"}
