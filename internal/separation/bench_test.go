package separation

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"cutroom/internal/db"
	"cutroom/internal/dbtest"
)

var benchQueue = flag.Duration("bench-queue", 0, "measure claims for this long in each setting and write docs/benchmarks-queue.md")

// measured is one line of the table.
type measured struct {
	database          string
	finished, workers int
	claims            int
	perSecond         float64
	median, p95       time.Duration
}

// TestBenchmarkQueue measures how fast jobs are claimed. It is no Benchmark,
// because its settings need a database prepared for them each, and its result is
// a document.
func TestBenchmarkQueue(t *testing.T) {
	if *benchQueue == 0 {
		t.Skip("run by make bench-queue")
	}
	var all []measured
	versions := map[string]string{}
	for _, database := range []string{"SQLite", "PostgreSQL"} {
		for _, finished := range []int{0, 100_000} {
			for _, workers := range []int{1, 4, 16} {
				m, version := measureClaims(t, database, finished, workers)
				all, versions[database] = append(all, m), version
				t.Logf("%+v", m)
			}
		}
	}
	text := report(all, versions)
	fmt.Print(text)
	if err := os.WriteFile("../../docs/benchmarks-queue.md", []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// measureClaims lets workers claim and finish jobs for a while. On PostgreSQL
// each is a replica with connections of its own; on SQLite they share the one
// process that may use the database.
func measureClaims(t *testing.T, database string, finished, workers int) (measured, string) {
	t.Helper()
	var o db.Options
	version := "SELECT sqlite_version()"
	if database == "PostgreSQL" {
		o.URL, o.User, o.Password = dbtest.URL(t)
		version = "SHOW server_version"
	} else {
		o.URL = "sqlite://" + filepath.Join(t.TempDir(), "x.db")
	}
	d := openDB(t, o)
	r := newRig(t, d)
	owner := r.user(0)
	fill := `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $1)
		INSERT INTO separation_jobs (id, user_id, state, source_key, source_name, source_size_bytes, source_duration_ms, language, credits,
			created_at, submitting_at, processing_at, ready_at, finished_at)
		SELECT `
	if finished > 0 {
		r.exec(fill+`'sep-old-' || i, $2, CASE WHEN i % 20 = 0 THEN 'FAILED' WHEN i % 2 = 0 THEN 'READY' ELSE 'DISPOSED' END, '', '', 0, 0, 'auto', 1,
			now_ms() - 604800000 + i * 6000, now_ms() - 604800000 + i * 6000, now_ms() - 604800000 + i * 6000,
			now_ms() - 604800000 + i * 6000 + 30000, now_ms() - 604800000 + i * 6000 + 30000 FROM n`, finished, owner)
	}
	queue := int(benchQueue.Seconds()) * 3000
	r.exec(fill+`'sep-new-' || i, $2, 'QUEUED', '', '', 0, 0, 'auto', 1, now_ms() + i, NULL, NULL, NULL, NULL FROM n`, queue, owner)
	if database == "PostgreSQL" {
		r.exec(`ANALYZE`) // as autovacuum does; nobody does it for SQLite
	}
	var mu sync.Mutex
	var took []time.Duration
	var all sync.WaitGroup
	began := time.Now()
	for range workers {
		own := d
		if database == "PostgreSQL" {
			o.MaxPool = 2
			var err error
			if own, err = db.Open(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			defer own.Close()
		}
		s := (&rig{t: t, db: own, store: r.store, dir: r.dir}).service(func(o *Options) { o.InFlight, o.NodeID = workers, "" })
		all.Go(func() {
			for time.Since(began) < *benchQueue {
				at := time.Now()
				j, ok, err := s.claim(t.Context())
				if err != nil || !ok {
					t.Errorf("claim: %v, %v", ok, err)
					return
				}
				mu.Lock()
				took = append(took, time.Since(at))
				mu.Unlock()
				// The end of a job, without its stems.
				if _, err := own.Exec(t.Context(), `UPDATE separation_jobs SET state = 'READY', ready_at = now_ms(), finished_at = now_ms(),
					lease_owner = NULL, lease_until = NULL WHERE id = $1 AND fence = $2 AND state = 'SUBMITTING'`, j.ID, j.Fence); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	elapsed := time.Since(began)
	slices.Sort(took)
	if len(took) == 0 {
		t.Fatal("nothing was claimed")
	}
	var number string
	if err := d.QueryRow(t.Context(), version).Scan(&number); err != nil {
		t.Fatal(err)
	}
	return measured{database: database, finished: finished, workers: workers, claims: len(took), perSecond: float64(len(took)) / elapsed.Seconds(),
		median: took[len(took)/2], p95: took[len(took)*95/100]}, number
}

func report(all []measured, versions map[string]string) string {
	var b strings.Builder
	memory := "unknown"
	if raw, err := os.ReadFile("/proc/meminfo"); err == nil {
		var kB int64
		if _, err := fmt.Sscanf(string(raw), "MemTotal: %d kB", &kB); err == nil {
			memory = fmt.Sprintf("%.0f GB", float64(kB)/(1<<20))
		}
	}
	load := "unknown"
	if raw, err := os.ReadFile("/proc/loadavg"); err == nil {
		load = strings.Fields(string(raw))[0]
	}
	fmt.Fprintf(&b, `# How fast jobs are claimed

Written by `+"`make bench-queue`"+`. One cycle is a claim (lock, count of jobs in flight, oldest job, lease) and the update that ends
the job, so that as many jobs are in flight as there are workers. On PostgreSQL each worker is a replica with connections of its
own; on SQLite, which one process uses, the workers share its pool. "Finished" is how many ended jobs the table holds besides.

Machine: %d cores, %s of memory, %s/%s, %s, PostgreSQL %s, SQLite %s. The PostgreSQL server is the tests': on the same machine,
over TLS, and without fsync, so its figures lack the disk's share. SQLite syncs every commit. Load average at the end: %s (far above
the number of cores means that other work had its share, and that the figures are low and uneven).

| Database | Finished | Workers | Cycles per second | Claim, median | Claim, 95 %% |
|---|---:|---:|---:|---:|---:|
`, runtime.NumCPU(), memory, runtime.GOOS, runtime.GOARCH, runtime.Version(), strings.Fields(versions["PostgreSQL"])[0], versions["SQLite"], load)
	for _, m := range all {
		fmt.Fprintf(&b, "| %s | %d | %d | %.0f | %.1f ms | %.1f ms |\n", m.database, m.finished, m.workers, m.perSecond,
			float64(m.median.Microseconds())/1000, float64(m.p95.Microseconds())/1000)
	}
	b.WriteString(`
Claims are made one at a time over all replicas, because counting and claiming must not race; more workers therefore add no speed,
and need none: with at most five jobs in flight and each taking the better part of a minute, the queue sees a few claims a minute.
Ended jobs make no difference beyond noise, because every query of the queue runs on a partial index that leaves them out.
`)
	return b.String()
}
