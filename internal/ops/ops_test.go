// Metrics and readiness of a replica whose database or storage fails.

package ops

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"cutroom/internal/base/db"
	"cutroom/internal/film/media"
	"cutroom/internal/storage/objectstore"
	"cutroom/internal/storage/staging"
	"cutroom/internal/testkit/dbtest"
	"cutroom/internal/testkit/jobtest"
)

// replica is what package ops shows of a replica.
type replica struct {
	registry *prometheus.Registry
	metrics  *Metrics
	ready    *Readiness
	slots    *media.Slots
	URL      string // of the operators' listener
}

func startReplica(t *testing.T, d *db.DB) *replica {
	t.Helper()
	dir := t.TempDir()
	store, err := objectstore.NewDir(filepath.Join(dir, "objects"))
	if err != nil {
		t.Fatal(err)
	}
	area, err := staging.New(filepath.Join(dir, "uploads"))
	if err != nil {
		t.Fatal(err)
	}
	r := &replica{registry: prometheus.NewRegistry(), slots: media.NewSlots(3)}
	r.metrics = NewMetrics(r.registry, "1.2.3 (abc)", d)
	r.ready = NewReadiness(ReadinessOptions{DB: d, Store: store, Uploads: area, DiskID: "disk", Replica: "replica",
		StartFFmpeg: func(context.Context) error { return nil }, Log: slog.New(slog.DiscardHandler)})
	RegisterSlots(r.registry, r.slots)
	r.registry.MustRegister(r.ready)
	s := httptest.NewServer(newHandler(r.registry, r.ready))
	t.Cleanup(s.Close)
	r.URL = s.URL
	return r
}

func get(t *testing.T, address string) (int, string) {
	t.Helper()
	r, err := http.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(b)
}

func TestMetricsShowTheStateOfTheService(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		r := startReplica(t, d)
		dbtest.Exec(t, d, `INSERT INTO users (id, provider, provider_sub, created_at, last_active_at) VALUES ('u', 'provider_a', 's', 0, 0)`)
		for i, state := range []string{"QUEUED", "QUEUED", "PROCESSING", "READY"} {
			jobtest.Insert(t, d, fmt.Sprint("sep-", i), "u", state, dbtest.Number(t, d, `SELECT now_ms() - 100000`), 1000)
		}
		dbtest.Exec(t, d, `UPDATE separations SET actual_duration_ms = 301001 WHERE job_id = 'sep-3'`)
		jobtest.Insert(t, d, "rnd-0", "u", "PENDING", dbtest.Number(t, d, `SELECT now_ms() - 50000`), 1000)
		dbtest.Exec(t, d, `INSERT INTO credit_ledger (ref_id, user_id, kind, amount, created_at) VALUES ('a', 'u', 'signup', 3, 0), ('b', 'u', 'consume', -1, 0)`)
		dbtest.Exec(t, d, `INSERT INTO credit_balances (user_id, balance) VALUES ('u', 5)`)
		dbtest.Exec(t, d, `INSERT INTO events (id, type, job_id, user_id, created_at) VALUES ('new', 'render.failed', 'r', 'u', now_ms() - 30000)`)
		dbtest.Exec(t, d, `INSERT INTO events (id, type, job_id, user_id, created_at, fanned_out_at) VALUES ('old', 'render.failed', 'r', 'u', 0, 0)`)
		dbtest.Exec(t, d, `INSERT INTO event_deliveries (id, event_id, channel, state, attempts, queued_at, due_at)
			VALUES ('1', 'old', 'webhook', 'PENDING', 0, now_ms() - 70000, 0), ('2', 'old', 'platform_a', 'FAILED', 0, 0, 0)`)
		r.metrics.ObserveRequest("GET", "GET /api/v2/credits", 200, .003)
		r.metrics.ObserveRequest("other", "unmatched", 404, .001)
		release, _ := r.slots.TryAcquire()
		defer release()

		status, text := get(t, r.URL+"/metrics")
		if status != http.StatusOK {
			t.Fatalf("status %d: %s", status, text)
		}
		for _, want := range []string{
			`cutroom_http_request_seconds_count{method="GET",route="GET /api/v2/credits",status="200"} 1`,
			`cutroom_http_request_seconds_count{method="other",route="unmatched",status="404"} 1`,
			`cutroom_jobs{state="QUEUED",type="separation"} 2`,
			`cutroom_jobs{state="PROCESSING",type="separation"} 1`,
			`cutroom_jobs{state="READY",type="separation"} 1`,
			`cutroom_jobs{state="FAILED",type="separation"} 0`,
			`cutroom_jobs{state="PENDING",type="render"} 1`,
			`cutroom_jobs{state="COMPLETED",type="render"} 0`,
			`cutroom_oldest_job_seconds{state="SUBMITTING",type="separation"} 0`,
			`cutroom_oldest_event_seconds{channel="platform_a"} 0`,
			`cutroom_event_attempts_total{channel="webhook",outcome="given_up"} 0`,
			`cutroom_ledger_drift_credits 3`, // 5 in the balance, 2 in the ledger
			`cutroom_separations_underpaid 1`,
			`cutroom_build_info{goversion="` + runtime.Version() + `",version="1.2.3 (abc)"} 1`,
			`cutroom_media_slots 3`,
			`cutroom_media_slots_in_use 1`,
		} {
			if !strings.Contains(text, want+"\n") {
				t.Errorf("no %s in\n%s", want, cutroomLines(text))
			}
		}
		for _, series := range []struct {
			name       string
			least, max float64
		}{{`cutroom_oldest_job_seconds{state="QUEUED",type="separation"} `, 99, 130}, {`cutroom_oldest_job_seconds{state="PENDING",type="render"} `, 49, 80},
			{`cutroom_oldest_event_seconds{channel="outbox"} `, 29, 60}, {`cutroom_oldest_event_seconds{channel="webhook"} `, 69, 100}} {
			var got float64
			_, rest, _ := strings.Cut(text, "\n"+series.name)
			if _, err := fmt.Sscan(rest, &got); err != nil || got < series.least || got > series.max {
				t.Errorf("%s%v, want %v..%v (%v)", series.name, got, series.least, series.max, err)
			}
		}
	})
}

func cutroomLines(text string) string {
	var out []string
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "cutroom_") && !strings.Contains(line, "_bucket") {
			out = append(out, line)
		}
	}
	return strings.Join(out, "")
}

func TestMetricsSayThatTheDatabaseIsGone(t *testing.T) {
	d := dbtest.SQLite(t)
	r := startReplica(t, d)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	status, text := get(t, r.URL+"/metrics")
	if status != http.StatusOK || strings.Contains(text, "cutroom_jobs{") || !strings.Contains(text, "go_goroutines") {
		t.Errorf("status %d, want 200 with what needs no database:\n%s", status, cutroomLines(text))
	}
}

func TestReadyWhileEverythingWorks(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		r := startReplica(t, d)
		for range 3 {
			wantReady(t, r)
		}
		if err := r.ready.Store.List(t.Context(), "", func(o objectstore.Info) error {
			t.Errorf("readyz leaves %s behind", o.Key)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		// As where a primary lacks its synchronous standby: reads work, no write does.
		dbtest.Exec(t, d, `ALTER TABLE replicas RENAME TO unwritable`)
		wantUnready(t, r, "the database answers reads but accepts no writes")
		dbtest.Exec(t, d, `ALTER TABLE unwritable RENAME TO replicas`)
		wantReady(t, r)
	})
}

func TestUnreadyWithoutTheDatabase(t *testing.T) {
	var down atomic.Bool
	_, lossy := dbtest.Lossy(t, func(*db.DB) bool { return down.Load() })
	r := startReplica(t, lossy)
	down.Store(true)
	wantUnready(t, r, "the database does not answer")
	down.Store(false)

	// Commits that hang take every connection of the pool.
	release := make(chan struct{})
	var waiting, ended sync.WaitGroup
	for range 4 {
		waiting.Add(1)
		ended.Go(func() {
			_ = lossy.InTx(t.Context(), func(*db.Tx) error { waiting.Done(); <-release; return nil })
		})
	}
	waiting.Wait()
	wantUnready(t, r, "the database answers reads but accepts no writes")
	close(release)
	ended.Wait()
}

func wantReady(t *testing.T, r *replica) {
	t.Helper()
	if status, text := get(t, r.URL+"/readyz"); status != http.StatusOK || text != "{\"status\":\"ok\"}\n" {
		t.Errorf("%d %s", status, text)
	}
}

func wantUnready(t *testing.T, r *replica, sentence string) {
	t.Helper()
	status, text := get(t, r.URL+"/readyz")
	var body struct{ Status string }
	if err := json.Unmarshal([]byte(text), &body); err != nil || status != http.StatusServiceUnavailable || body.Status != sentence {
		t.Errorf("%d %s (%v), want 503 %q", status, text, err, sentence)
	}
}

func TestNotReadyWithoutStorage(t *testing.T) {
	d := dbtest.SQLite(t)
	t.Run("folder", func(t *testing.T) {
		r := startReplica(t, d)
		batch, err := r.ready.Uploads.Batch()
		if err != nil {
			t.Fatal(err)
		}
		f, err := batch.Receive("x", "", strings.NewReader("x"), 1)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(filepath.Dir(filepath.Dir(f.Path))); err != nil { // the whole uploads folder
			t.Fatal(err)
		}
		wantUnready(t, r, "the storage folder takes no files")
	})
	t.Run("full disk", func(t *testing.T) {
		r := startReplica(t, d)
		wantReady(t, r)
		r.ready.MinFree = 1 << 62 // from here on, however recent the last probe is
		wantUnready(t, r, "the storage folder is short of space")
		if free, err := r.ready.CanWork(t.Context()); err == nil || free != 0 {
			t.Errorf("%d bytes free, %v", free, err)
		}
		_, text := get(t, r.URL+"/metrics")
		for _, want := range []string{`cutroom_not_ready{reason="disk"} 1`, `cutroom_not_ready{reason="ffmpeg"} 0`, `cutroom_free_disk_bytes 0`} {
			if !strings.Contains(text, want+"\n") {
				t.Errorf("no %s in\n%s", want, cutroomLines(text))
			}
		}
	})
	t.Run("ffmpeg", func(t *testing.T) {
		r := startReplica(t, d)
		var log bytes.Buffer
		r.ready.Log = slog.New(slog.NewTextHandler(&log, nil))
		broken := errors.New("no such file")
		r.ready.StartFFmpeg = func(context.Context) error { return broken }
		offers := r.ready.Offers(3)
		for range 3 {
			wantUnready(t, r, "ffmpeg does not start")
			if _, err := r.ready.CanWork(t.Context()); !errors.Is(err, broken) {
				t.Errorf("it can work: %v", err)
			}
		}
		if slots, _ := offers(t.Context()); slots != 0 {
			t.Errorf("it offers %d slots", slots)
		}
		broken = nil
		r.ready.probedAt = time.Now().Add(-probeAge)
		wantReady(t, r)
		if slots, _ := offers(t.Context()); slots != 3 {
			t.Errorf("it offers %d slots", slots)
		}
		broken = fmt.Errorf("ffmpeg: %w", context.DeadlineExceeded) // on a busy machine
		r.ready.probedAt = time.Now().Add(-probeAge)
		wantReady(t, r)
		if n := strings.Count(log.String(), "not ready"); n != 1 || !strings.Contains(log.String(), "ready again") {
			t.Errorf("%d lines of one outage:\n%s", n, log.String())
		}
		r.ready.probedAt, r.ready.ffmpegAt = time.Now().Add(-probeAge), time.Now().Add(-slowStart)
		wantUnready(t, r, "ffmpeg does not start")
	})
}
