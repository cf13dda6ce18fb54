package separation

import (
	"flag"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"cutroom/internal/benchtest"
	"cutroom/internal/db"
	"cutroom/internal/dbtest"
	"cutroom/internal/media/container"
	"cutroom/internal/mediatest"
	"cutroom/internal/upstream/separator"
)

var benchQueue = flag.Duration("bench-queue", 0, "measure claims for this long in each setting and write a section of docs/benchmarks.md")

// measured is one line of the table.
type measured struct {
	database    string // with its version
	perSecond   float64
	median, p95 time.Duration
}

// TestBenchmarkQueue measures how fast jobs are claimed. It is not a Benchmark, because each
// setting needs its own prepared database, and its result is a document.
func TestBenchmarkQueue(t *testing.T) {
	if *benchQueue == 0 {
		t.Skip("run by make bench-queue")
	}
	r := benchtest.New("bench-queue", "How fast separations are claimed")
	r.Say(`One cycle is a claim (lock, count of jobs in flight, oldest job, lease) and the update that ends the job, so that as many jobs
are in flight as there are workers. On PostgreSQL each worker is a replica with connections of its own; on SQLite, which one process
uses, the workers share its pool. "Finished" is how many ended jobs the table holds besides. The PostgreSQL server is the tests': on
the same machine, over TLS, and without fsync, so its figures lack the disk's share. SQLite syncs every commit.`)
	r.Table("Database", "Finished", "Workers", "Cycles per second", "Claim, median", "Claim, 95 %")
	for _, database := range []string{"SQLite", "PostgreSQL"} {
		for _, finished := range []int{0, 100_000} {
			for _, workers := range []int{1, 4, 16} {
				m := measureClaims(t, database, finished, workers)
				r.Row("%s | %d | %d | %.0f | %s | %s", m.database, finished, workers, m.perSecond, benchtest.Millis(m.median), benchtest.Millis(m.p95))
			}
		}
	}
	r.Say(`Claims are made one at a time over all replicas, because counting and claiming must not race; more workers therefore add no
speed, and need none: with at most five jobs in flight and each taking the better part of a minute, the queue sees a few claims a
minute. Ended jobs make no difference beyond noise, because every query of the queue runs on a partial index that leaves them out.`)
	r.Say(`**Waveforms.** What drawing the peaks of a stem adds to its job, for a stem of 5 minutes in stereo at 44.1 kHz, best of three; a
provider takes some minutes for such a song.`)
	r.Table("Stem", "To draw")
	s := newHarness(t, dbtest.Open(t, db.Options{URL: "sqlite::memory:", MaxPool: 1})).withProvider().service()
	for _, ext := range []string{".wav", ".flac", ".mp3"} {
		file := filepath.Join(t.TempDir(), "stem"+ext)
		mediatest.FFmpeg(t, "-f", "lavfi", "-i", "anoisesrc=d=300:r=44100:c=pink:a=0.3", "-ac", "2", file)
		class, err := container.SniffFile(file)
		if err != nil {
			t.Fatal(err)
		}
		stem := &stem{id: "voice", Stem: separator.Stem{Path: file, Kind: class.Kind}}
		if err := s.measure(t.Context(), stem); err != nil {
			t.Fatal(err)
		}
		best := time.Hour
		for range 3 {
			began := time.Now()
			if _, err := s.draw(t.Context(), stem); err != nil {
				t.Fatal(err)
			}
			best = min(best, time.Since(began))
		}
		r.Row("%s | %.2f s", ext[1:], best.Seconds())
	}
	if err := r.Save("../../docs/benchmarks.md"); err != nil {
		t.Fatal(err)
	}
}

// measureClaims lets workers claim and finish jobs for a while. On PostgreSQL each worker is a
// replica with its own connections; on SQLite they share one process.
func measureClaims(t *testing.T, database string, finished, workers int) measured {
	t.Helper()
	o := db.Options{MaxPool: 12}
	version := "SELECT sqlite_version()"
	if database == "PostgreSQL" {
		o.URL, o.User, o.Password = dbtest.URL(t)
		version = "SHOW server_version"
	} else {
		o.URL = "sqlite://" + filepath.Join(t.TempDir(), "x.db")
	}
	d := dbtest.Open(t, o)
	r := newHarness(t, d)
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
		s := (&harness{t: t, db: own, store: r.store, dir: r.dir}).service(func(o *Options) { o.InFlight, o.NodeID = workers, "" })
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
	return measured{database: database + " " + strings.Fields(number)[0], perSecond: float64(len(took)) / elapsed.Seconds(),
		median: benchtest.Quantile(took, 50), p95: benchtest.Quantile(took, 95)}
}
