package main

import (
	"time"

	"cutroom/internal/benchtest"
)

// report is the section of the page that is being written.
type report struct {
	*benchtest.Section
	// On each database.
	memory  []memory
	waiting []waiting
}

func newReport(o options) *report {
	r := &report{Section: benchtest.New("bench-api", "The API")}
	r.Say(`The load driver, the service and PostgreSQL share the machine, so the figures are of about half of it. The service runs
with its defaults, its log included; PostgreSQL with those of the tests, which matters to writes only.

%d clients, each with one request at a time over a kept connection, %v an endpoint. CPU is that of the serving process
for a request, without PostgreSQL's: other work on the machine changes the rest, and this hardly.`, o.clients, o.duration)
	r.Table("endpoint", "database", "requests/s", "p50", "p99", "CPU of the server", "errors")
	return r
}

func (r *report) add(endpoint, database string, l load) {
	r.Row("%s | %s | %.0f | %s | %s | %d µs | %d", endpoint, database, l.perSecond, benchtest.Millis(l.p50),
		benchtest.Millis(l.p99), l.cpu.Microseconds(), l.errors)
}

// end writes what is known after all requests: the waiting, and the memory.
func (r *report) end(o options) {
	r.Say(`The render is a finished one; the status of the separation lists its stems, each with a freshly signed link. Every one of
them but `+"`/healthz`"+` is one indexed query, which a test holds against the plans of both databases.

**Waiting.** As many clients as the table says, each four of a user of their own, send `+"`Prefer: wait=30`"+` for a render in
which nothing changes; then every render changes, one after the other. Transactions a second are those of the whole
service over %v, without anybody waiting and with all of them, by PostgreSQL's own count; times are from the request
that changes a render to the answer at those who wait for it.`, o.duration)
	r.Table("database", "clients", "transactions/s, nobody waits", "all wait", "delay p50", "p99", "last")
	for _, w := range r.waiting {
		r.Row("%s | %d | %s | %s | %s | %s | %s", w.database, w.clients, w.perSecond(w.idle), w.perSecond(w.quiet),
			benchtest.Millis(w.p50), benchtest.Millis(w.p99), benchtest.Millis(w.slowest))
	}
	r.Say(`**Memory under uploads.** %d clients upload %d MB each at the same time (rounds: %d) to `+"`POST /render/inputs`"+`. Resident
memory of the service in MiB; the quarters are of the time that the uploads took. Uploads stream to disk, so memory does
not grow with their size: what a client costs is its buffers.`, o.uploads, o.uploadMB, o.rounds)
	r.Table("database", "sent", "took", "idle", "1st quarter", "2nd", "3rd", "4th", "peak", "after")
	for _, m := range r.memory {
		r.Row("%s | %.0f MB | %s | %.0f | %.0f | %.0f | %.0f | %.0f | %.0f | %.0f", m.database, m.sentMB,
			m.took.Round(100*time.Millisecond), m.idle,
			m.quarters[0], m.quarters[1], m.quarters[2], m.quarters[3], m.peak, m.after)
	}
}
