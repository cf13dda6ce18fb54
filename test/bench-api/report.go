package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"
)

// report is what was found, on its way to Markdown.
type report struct {
	options
	bare   []load // by database
	rows   []row
	memory []memory
}

// bareName is the row of the bare handler.
const bareName = "bare handler"

// row is one endpoint on every database.
type row struct {
	endpoint string
	on       []load
	names    []string
}

func (r *report) add(endpoint, database string, l load) {
	for i := range r.rows {
		if r.rows[i].endpoint == endpoint {
			r.rows[i].on, r.rows[i].names = append(r.rows[i].on, l), append(r.rows[i].names, database)
			return
		}
	}
	r.rows = append(r.rows, row{endpoint, []load{l}, []string{database}})
}

func (r *report) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, `# Benchmarks of the API

Written by %[1]smake bench-api%[1]s on %s.

Machine: %s.
The load driver, the service and PostgreSQL share it, so the figures are of about half of it. The service runs with its
defaults, its log included; PostgreSQL with those of the tests, which matters to writes only.

## Requests

%d clients, each with one request at a time over a kept connection, %v an endpoint. The ratio is to a bare net/http
handler that makes the same token check and answers as many bytes, measured just before each database.

| endpoint | database | requests/s | p50 | p99 | ratio to bare | errors |
|---|---|---:|---:|---:|---:|---:|
`, "`", time.Now().UTC().Format(time.DateOnly), machine(), r.clients, r.duration)
	for _, row := range r.rows {
		for i, l := range row.on {
			fmt.Fprintf(&b, "| %s | %s | %.0f | %s | %s | %.2f | %d |\n", row.endpoint, row.names[i], l.perSecond, ms(l.p50), ms(l.p99),
				l.perSecond/r.bare[i].perSecond, l.errors)
		}
	}
	fmt.Fprintf(&b, `
The status of the render is that of a finished one; the status of the separation lists its stems, each with a freshly
signed link. Every one of them but %[1]s/healthz%[1]s is one indexed query, which a test holds against the plans of both databases.

## Memory under uploads

%d clients upload %d MB each at the same time (rounds: %d) to %[1]sPOST /render/inputs%[1]s. Resident memory of the service in MiB;
the quarters are of the time that the uploads took.

| database | sent | took | idle | 1st quarter | 2nd | 3rd | 4th | peak | after |
|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|
`, "`", r.uploads, r.uploadMB, r.rounds)
	for _, m := range r.memory {
		fmt.Fprintf(&b, "| %s | %.0f MB | %s | %.0f | %.0f | %.0f | %.0f | %.0f | %.0f | %.0f |\n", m.database, m.sentMB, m.took.Round(100*time.Millisecond), m.idle,
			m.quarters[0], m.quarters[1], m.quarters[2], m.quarters[3], m.peak, m.after)
	}
	b.WriteString("\nUploads stream to disk, so memory does not grow with their size: what a client costs is its buffers.\n")
	return b.String()
}

func ms(d time.Duration) string { return fmt.Sprintf("%.2f ms", float64(d.Microseconds())/1000) }

// machine describes the hardware, without a name of it.
func machine() string {
	cpu, memory := "unknown processor", ""
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(info)) {
			if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
				cpu = strings.TrimSpace(value)
				break
			}
		}
	}
	if info, err := os.ReadFile("/proc/meminfo"); err == nil {
		var kb int64
		if _, err := fmt.Sscanf(string(info), "MemTotal: %d kB", &kb); err == nil {
			memory = fmt.Sprintf(", %d GB of memory", (kb+1<<19)>>20)
		}
	}
	return fmt.Sprintf("%d cores of %s%s, %s/%s, %s", runtime.NumCPU(), cpu, memory, runtime.GOOS, runtime.GOARCH, runtime.Version())
}
