// The harness of this package: replicas on one database and store with the stand-in provider, and jobs brought into any
// state.

package separation

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"cutroom/internal/base/db"
	"cutroom/internal/base/httpcall"
	"cutroom/internal/domain/separation/price"
	"cutroom/internal/film/media"
	"cutroom/internal/film/media/confine"
	"cutroom/internal/film/media/container"
	fakeprovider "cutroom/internal/sandbox/separator"
	"cutroom/internal/testkit/dbtest"
	"cutroom/internal/testkit/jobtest"
	"cutroom/internal/upstream/separator"
	"cutroom/internal/work/derived"
	"cutroom/internal/work/job"
	"cutroom/internal/work/sweep"
)

func TestMain(m *testing.M) {
	confine.Main()
	os.Exit(m.Run())
}

// eachDatabase runs a test on both databases, in parallel with other tests, because many tests wait until a lease
// expires.
func eachDatabase(t *testing.T, test func(t *testing.T, r *harness)) {
	t.Parallel()
	dbtest.EachParallel(t, func(t *testing.T, d *db.DB) { test(t, newHarness(t, d)) })
}

// onSQLite is for tests whose statements other tests run on both databases.
func onSQLite(t *testing.T) *harness { return newHarness(t, dbtest.SQLite(t)) }

// harness is a database, a store and a provider for any number of Services.
type harness struct {
	*jobtest.Harness
	provider *fakeprovider.Provider
	serial   atomic.Int64
}

const (
	providerKey   = "key-of-the-harness"
	providerSpace = 12
)

func newHarness(t testing.TB, d *db.DB) *harness {
	t.Helper()
	return &harness{Harness: jobtest.New(t, d)}
}

// withProvider starts the provider's stand-in. It returns no speakers, because each would need four more ffmpeg passes.
func (r *harness) withProvider() *harness {
	r.T.Helper()
	p, err := fakeprovider.New(fakeprovider.Options{APIKey: providerKey, Space: providerSpace, Dir: filepath.Join(r.Dir, "provider"), Fast: true,
		Processing: 50 * time.Millisecond})
	if err != nil {
		r.T.Fatal(err)
	}
	if err := p.Listen(); err != nil {
		r.T.Fatal(err)
	}
	r.T.Cleanup(func() {
		p.Faults.Clear()
		if err := p.Close(); err != nil {
			r.T.Error(err)
		}
	})
	p.Configure(func(b *fakeprovider.Behaviour) { b.NoSpeakers = true })
	r.provider = p
	return r
}

// service returns a new replica.
func (r *harness) service(change ...func(*Options)) *Service {
	r.T.Helper()
	o := Options{DB: r.DB, CanWork: func(context.Context) (int64, error) { return 1 << 40, nil },
		Renewer: job.NewRenewer(r.DB, fmt.Sprintf("replica-%d", r.serial.Add(1)), slog.New(slog.DiscardHandler)),
		Sweeper: sweep.New(sweep.Options{DB: r.DB, Store: r.Store, Rules: SweepRules(time.Hour), Log: slog.New(slog.DiscardHandler)}),
		Store:   r.Store, OnDemand: derived.New(derived.Options{AtOnce: 1, PerHolder: 1, MaxWait: 2 * time.Minute, Log: slog.New(slog.DiscardHandler),
			Space: derived.NewSpace(func(context.Context) (int64, error) { return 1 << 40, nil })}), Analyses: media.NewFairSlots(media.FairLimits{Slots: 2}), WorkDir: filepath.Join(r.Dir, "work"), PublicBaseURL: "https://api.example.test",
		SigningSecret: "a secret of at least thirty-two characters", URLLifetime: time.Hour, JobLifetime: 365 * 24 * time.Hour, AbandonAfter: time.Hour, InFlight: 2,
		StuckAfter: 10 * time.Minute, PollEvery: 20 * time.Millisecond, PollTimeout: 30 * time.Minute, Log: slog.New(slog.DiscardHandler)}
	if err := os.MkdirAll(o.WorkDir, 0o700); err != nil {
		r.T.Fatal(err)
	}
	if r.provider != nil {
		var err error
		o.Provider, err = separator.New(separator.Config{BaseURL: r.provider.API.URL(), StorageBaseURL: r.provider.Storage.URL(),
			AllowedHosts: []string{r.provider.Upload.URL()[len("http://"):]},
			APIKey:       providerKey, SpaceID: providerSpace, Sleep: func(ctx context.Context, _ time.Duration) error { return httpcall.Sleep(ctx, 10*time.Millisecond) }})
		if err != nil {
			r.T.Fatal(err)
		}
		if o.Media, err = media.New(media.Config{}); err != nil {
			r.T.Fatal(err)
		}
	}
	for _, c := range change {
		c(&o)
	}
	return New(o)
}

// run runs a replica until stop is called.
func (r *harness) run(s *Service) (stop func()) { return r.Run(s.Run) }

// enqueue submits a job as Submit does, but without an upload to classify.
func (r *harness) enqueue(s *Service, owner string) string {
	r.T.Helper()
	id := "sep-" + uuid.Must(uuid.NewV7()).String()
	if err := r.tryEnqueue(s, owner, id); err != nil {
		r.T.Fatal(err)
	}
	return id
}

func (r *harness) tryEnqueue(s *Service, owner, id string) error {
	return r.DB.InTx(r.T.Context(), func(tx *db.Tx) error {
		return s.jobs.Insert(r.T.Context(), tx, s.job(newJob{id: id, owner: owner, language: "auto", audio: price.Sound{Ext: "wav", DurationMs: 500}}))
	})
}

// enqueueAudio is enqueue for workers that run: it also stores a source.
func (r *harness) enqueueAudio(s *Service, owner string) string {
	r.T.Helper()
	id := r.enqueue(s, owner)
	path := filepath.Join(r.T.TempDir(), "source.wav")
	if err := os.WriteFile(path, tones(), 0o600); err != nil {
		r.T.Fatal(err)
	}
	if err := r.Store.Put(r.T.Context(), sourceKey(id, "wav"), path, "audio/wav"); err != nil {
		r.T.Fatal(err)
	}
	return id
}

// tones returns half a second of 300 and 1200 Hz, which the stand-in treats as background and voice, as a WAV file.
func tones() []byte {
	const rate, n = 16000, 8000
	b := []byte("RIFF\xa4\x3e\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00\x80\x3e\x00\x00\x00\x7d\x00\x00\x02\x00\x10\x00data\x80\x3e\x00\x00")
	for i := range n {
		x := 2 * math.Pi * float64(i) / rate
		b = binary.LittleEndian.AppendUint16(b, uint16(int16(8000*(math.Sin(300*x)+math.Sin(1200*x)))))
	}
	return b
}

// age moves a job's times into the past.
func (r *harness) age(id string, by time.Duration) {
	r.T.Helper()
	r.Exec(`UPDATE jobs SET created_at = created_at - $2, finished_at = finished_at - $2, lease_until = lease_until - $2 WHERE id = $1`, id, by.Milliseconds())
	r.Exec(`UPDATE separations SET submitting_at = submitting_at - $2, processing_at = processing_at - $2, collected_at = collected_at - $2
		WHERE job_id = $1`, id, by.Milliseconds())
}

// row is a job's row, which tests compare as a whole.
type row struct {
	State, Error, Owner string
	Code                string // the error code
	Attempts, Progress  int
	Fence, Project      int64
	Leased, Intent      bool
}

func (r *harness) row(id string) row {
	r.T.Helper()
	var x row
	err := r.DB.QueryRow(context.WithoutCancel(r.T.Context()), `SELECT j.state, COALESCE(j.error, ''), COALESCE(j.error_code, ''), COALESCE(j.lease_owner, ''),
			j.attempts, j.progress, j.fence, COALESCE(d.project_id, 0), j.lease_until IS NOT NULL, j.asked_at IS NOT NULL
		FROM `+rows+` WHERE j.id = $1`, id).Scan(&x.State, &x.Error, &x.Code, &x.Owner, &x.Attempts, &x.Progress, &x.Fence, &x.Project, &x.Leased, &x.Intent)
	if err != nil {
		r.T.Fatalf("read %s: %v", id, err)
	}
	return x
}

// booked fails the test unless a user's balance equals the sum of the ledger and want.
func (r *harness) booked(owner string, want int64) {
	r.T.Helper()
	balance := r.Number(`SELECT balance FROM credit_balances WHERE user_id = $1`, owner)
	sum := r.Number(`SELECT SUM(amount) FROM credit_ledger WHERE user_id = $1`, owner)
	if balance != want || sum != want {
		r.T.Errorf("balance %d, ledger %d, want %d", balance, sum, want)
	}
}

func (r *harness) waitState(id, state string) row {
	r.T.Helper()
	var x row
	r.Eventually(id+" is "+state, func() bool {
		if x = r.row(id); x.State == StateFailed && state != StateFailed {
			r.T.Fatalf("%s FAILED: %s", id, x.Error)
		}
		return x.State == state
	})
	return x
}

// claimed claims a job with s.
func (r *harness) claimed(s *Service) claimedJob {
	r.T.Helper()
	j, ok, err := s.claim(r.T.Context())
	if err != nil || !ok {
		r.T.Fatalf("claim: %v, %v", ok, err)
	}
	if err := s.jobs.Begin(r.T.Context(), j.Claim); err != nil {
		r.T.Fatal(err)
	}
	return j
}

// processing moves a claimed job to PROCESSING, as its worker would.
func (r *harness) processing(s *Service, j *claimedJob) {
	r.T.Helper()
	if err := s.intend(r.T.Context(), j); err != nil {
		r.T.Fatal(err)
	}
	if err := s.started(r.T.Context(), j, 4711); err != nil {
		r.T.Fatal(err)
	}
}

// end ends the attempt of a job's worker with an error.
func (r *harness) end(s *Service, id string, err error) {
	r.T.Helper()
	j, readErr := scanJob(r.DB.QueryRow(r.T.Context(), selectJob+`j.id = $1`, id))
	if readErr != nil {
		r.T.Fatal(readErr)
	}
	s.apply(r.T.Context(), j, decide(j, err, circumstances{busyWait: s.BusyWait}), err)
}

// asking is the state SUBMITTING with a recorded intent to submit.
const asking = "ASKING"

// reach creates a job and moves it to a state, as its worker would.
func (r *harness) reach(s *Service, owner, state string) claimedJob {
	r.T.Helper()
	id := r.enqueue(s, owner)
	if state == StateQueued {
		return claimedJob{Claim: job.Claim{Lease: job.Lease{ID: id}}}
	}
	j := r.claimed(s)
	switch state {
	case asking:
		if err := s.intend(r.T.Context(), &j); err != nil {
			r.T.Fatal(err)
		}
	case StateProcessing:
		r.processing(s, &j)
	case StateReady:
		r.processing(s, &j)
		r.makeReady(s, &j, stemVoice, stemBackground)
	}
	return j
}

// readByRender creates a render job that reads an object.
func (r *harness) readByRender(owner, key string) {
	r.T.Helper()
	jobtest.Insert(r.T, r.DB, "rnd-1", owner, "PENDING", time.Now().UnixMilli(), 0)
	r.Exec(`INSERT INTO held_objects (job_id, object_key) VALUES ('rnd-1', $1)`, key)
}

// makeReady completes a PROCESSING job of s with stems.
func (r *harness) makeReady(s *Service, j *claimedJob, ids ...string) {
	r.T.Helper()
	var stems []stem
	for _, id := range ids {
		r.Put(stemKey(j.ID, id, "flac"))
		stems = append(stems, stem{id: id, Stem: separator.Stem{Kind: container.FLAC}, sha256: "00", sizeBytes: 5, durationMs: 500})
	}
	if err := s.ready(r.T.Context(), j, stems); err != nil {
		r.T.Fatal(err)
	}
}
