package render

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"cutroom/internal/asset"
	"cutroom/internal/db"
	"cutroom/internal/disk"
	"cutroom/internal/engine"
	"cutroom/internal/fault"
	"cutroom/internal/job"
	"cutroom/internal/media"
	"cutroom/internal/objectstore"
	"cutroom/internal/timeline"
)

// pollQueue is how long a missed wake-up can delay a job, and how long an
// expired lease can go unnoticed.
const pollQueue = 2 * time.Second

// pollParts is the same for the help with a job, whose own worker does what nobody else
// does.
const pollParts = 3 * pollQueue

// Run takes jobs from the queue, as many at a time as there are slots, and helps others
// with theirs, until ctx ends. It then hands back what it holds and returns when nothing
// of it runs any more. Finished parts are kept, so whoever goes on loses little.
func (s *Service) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	// What there may be since the last look.
	var jobs, parts atomic.Bool
	wake := make(chan struct{}, 1)
	look := func(forJobs, forParts bool) {
		if forJobs {
			jobs.Store(true)
		}
		if forParts {
			parts.Store(true)
		}
		if !jobs.Load() && !parts.Load() {
			return
		}
		select {
		case wake <- struct{}{}:
		default:
		}
	}
	running.Go(func() { s.hear(ctx, topic, 500*time.Microsecond, func() { look(true, false) }) })
	running.Go(func() { s.hear(ctx, topicParts, 125*time.Microsecond, func() { look(false, true) }) })
	lookedForParts := time.Time{}
	job.Poll(ctx, s.log, "render queue", wake, pollQueue, func(ctx context.Context) (more bool, err error) {
		release, got := s.Slots.TryAcquire()
		if !got {
			return false, s.stopAssisting(ctx)
		}
		var do func(done func(jobs, parts bool))
		defer func() { // after a panic, too, which the loop outlives
			if do == nil {
				release()
			}
		}()
		forJobs, forParts := jobs.Swap(false), parts.Swap(false)
		if !forJobs && !forParts { // time has passed
			forJobs, forParts = true, time.Since(lookedForParts) > pollParts
		}
		if forParts {
			lookedForParts = time.Now()
		}
		if do, more, err = s.find(ctx, forJobs, forParts); do == nil {
			return false, err
		}
		running.Go(func() { do(func(forJobs, forParts bool) { release(); look(forJobs, forParts) }) })
		return more, nil
	})
	return nil
}

// longestSpread is by how much a large fleet may put off what a small one does at once.
const longestSpread = 200 * time.Millisecond

// hear calls look after each announcement on a topic, until ctx ends. All replicas hear
// it, each after a while of its own: by chance, and up to perSlot for every slot of the
// others. Who comes late finds the work taken, instead of standing in line for it.
func (s *Service) hear(ctx context.Context, topic string, perSlot time.Duration, look func()) {
	announced, deaf := s.db.Listen(topic)
	defer deaf()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-announced:
			others := max(0, s.fleet.slots.Load()-int64(s.Slots.Size()))
			time.AfterFunc(rand.N(min(time.Duration(others)*perSlot, longestSpread)+1), look)
		}
	}
}

// find gets work for a slot: a job, or else the help for somebody else's. What it
// returns calls done where the slot is free again, and tells what to look for then.
// More says that the queue may have more.
func (s *Service) find(ctx context.Context, forJobs, forParts bool) (do func(done func(jobs, parts bool)), more bool, err error) {
	if forJobs {
		j, ok, err := s.claim(ctx)
		if err != nil {
			return nil, false, err
		}
		if ok {
			return func(done func(jobs, parts bool)) {
				over := s.work(ctx, j)
				done(true, true)
				if over {
					s.dropUploads(ctx, j.ID, j.Spec.uploads(j.ID)...)
				}
			}, true, nil
		}
	}
	if forParts && s.Bucket != nil && s.assisting.Load() == nil { // one slot at most assists
		a, err := s.take(ctx)
		if a != nil && err == nil {
			return func(done func(jobs, parts bool)) { done(a.assist()) }, false, nil
		}
		return nil, false, err
	}
	return nil, false, nil
}

// errOverdue is the cause of the end of work that took too long.
var errOverdue = errors.New("job has taken too long")

// work drives one claimed job to its end, and reports whether nobody needs what was
// uploaded for it any more.
func (s *Service) work(ctx context.Context, j claimedJob) (over bool) {
	log := s.jobLog(j)
	held, release := s.Renewer.KeepAlive(ctx, j.lease())
	defer release()
	started := time.Now()
	work, cancel := context.WithDeadlineCause(held, j.Deadline, errOverdue)
	err := job.Recover(func() error { return s.render(work, j) })
	overdue := errors.Is(context.Cause(work), errOverdue)
	cancel()
	if err == nil {
		log.Info("render ended", "state", StateCompleted, "ms", time.Since(started).Milliseconds())
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	switch {
	case err == nil:
		over = true
	case errors.Is(err, job.ErrMoved), errors.Is(context.Cause(held), job.ErrLost), db.IsForeignKey(err): // its row went with its owner
		log.Info("render taken away", "err", err)
	case ctx.Err() != nil:
		s.handBack(last, j, log, again{forgive: true}, "the service stops")
	case overdue:
		over = s.giveUp(last, j, log, s.overdue(), err)
	default:
		over = s.conclude(last, j, log, err)
	}
	if err != nil {
		s.dropIfErased(last, j)
	}
	return over
}

// jobLog is the log of one attempt at a job.
func (s *Service) jobLog(j claimedJob) *slog.Logger {
	return s.log.With("job", j.ID, "owner", j.UserID, "replica", s.Renewer.Owner(), "attempt", j.Attempts)
}

// conclude decides about a job whose attempt failed. Whatever a film seems to suffer
// from on a replica that cannot work, is first tried elsewhere. It reports whether the
// job has failed.
func (s *Service) conclude(ctx context.Context, j claimedJob, log *slog.Logger, err error) (failed bool) {
	free, unable := s.CanWork(ctx)
	seen := fault.As(err)
	switch {
	case errors.Is(err, engine.ErrNoSpace), errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		// What is free here now, after it was tried, is not enough.
		s.handBack(ctx, j, log, again{forgive: true, needsBytes: free + max(free/10, 64<<20)}, err)
	case unable != nil:
		s.handBack(ctx, j, log, again{forgive: true}, errors.Join(unable, err))
	case errors.Is(err, objectstore.ErrUnavailable):
		s.handBack(ctx, j, log, again{forgive: true, pause: 10 * time.Second}, err)
	case errors.Is(err, db.ErrUnavailable):
		s.handBack(ctx, j, log, again{forgive: true, pause: time.Second}, err)
	case seen != nil && seen.Kind != fault.Internal && seen.Kind != fault.Unavailable:
		failed = s.giveUp(ctx, j, log, seen, err)
	case j.Attempts < maxAttempts:
		s.handBack(ctx, j, log, again{pause: time.Second}, err)
	default:
		told := errInternal
		if errors.Is(err, media.ErrTimeout) {
			told = errSlow
		}
		if failed = s.giveUp(ctx, j, log, told, err); failed {
			log.Error("render failed", "err", err)
		}
	}
	return failed
}

// giveUp fails a job, and reports whether that is written. Otherwise the lease
// runs out and the job is claimed again from its row.
func (s *Service) giveUp(ctx context.Context, j claimedJob, log *slog.Logger, told *fault.Error, why error) bool {
	moved, err := s.fail(ctx, j, told, why)
	if err != nil {
		log.Warn("end of render not written; it will be claimed again", "err", err)
	} else if moved {
		log.Info("render ended", "state", StateFailed, "why", told.Answer(), "cause", why)
	}
	return moved && err == nil
}

// again says how a job that is handed back may be taken up.
type again struct {
	forgive    bool          // no attempt is lost: the job is not to blame
	pause      time.Duration // before the next attempt
	needsBytes int64         // disk that the next replica must have to spare
}

// handBack puts a job back into the queue, at its place.
func (s *Service) handBack(ctx context.Context, j claimedJob, log *slog.Logger, a again, why any) {
	forgiven := 0
	if a.forgive {
		forgiven = 1
	}
	moved := false
	put := func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, `UPDATE render_jobs SET state = 'PENDING', attempts = attempts - $3, fence = fence + 1,
				replica = lease_owner, lease_owner = NULL, lease_until = now_ms() + $4, needs_bytes = NULLIF($5, 0)
			WHERE id = $1 AND fence = $2 AND state = 'PROCESSING'`, j.ID, j.Fence, forgiven, a.pause.Milliseconds()-1, a.needsBytes)
		if moved = n == 1; err != nil || !moved {
			return err
		}
		return errors.Join(tx.Notify(ctx, topic), tx.Notify(ctx, job.Topic(j.ID)))
	}
	err := job.Retry(ctx, func() error { return s.db.InTx(ctx, put) })
	switch {
	case err != nil:
		log.Warn("render not handed back; it will be claimed again", "err", err)
	case moved:
		log.Info("render handed back", "attemptLost", !a.forgive, "needsBytes", a.needsBytes, "why", why)
	}
}

func (s *Service) render(ctx context.Context, j claimedJob) error {
	dir := j.lease().WorkDir(s.WorkDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("create work folder: %w", err)
	}
	defer os.RemoveAll(dir)
	// Sources lie beside the folder that ffmpeg may write to, not in it: they
	// may share their bytes with a cache that other users read.
	job := filepath.Join(dir, "job")
	if err := os.Mkdir(job, 0o700); err != nil {
		return fmt.Errorf("create work folder: %w", err)
	}
	progress := s.progressWriter(ctx, j)
	defer progress.stop()
	sources, err := s.fetch(ctx, j, dir)
	if err != nil {
		return err
	}
	work := engine.Job{Dir: job, Timeline: j.Spec.Timeline, Sources: sources, CacheScope: j.UserID, Log: s.jobLog(j), OnProgress: progress.set}
	if s.Bucket != nil {
		c := s.newPartCoordinator(ctx, j.ID)
		defer c.stop()
		work.Coordinator = c
	}
	out, err := s.Engine.Render(ctx, work)
	progress.stop()
	if err != nil {
		return err
	}
	return s.complete(ctx, j, out)
}

// fetch brings every source of the job into its folder.
func (s *Service) fetch(ctx context.Context, j claimedJob, dir string) (map[string]engine.Source, error) {
	src := filepath.Join(dir, "src")
	if err := os.MkdirAll(src, 0o700); err != nil {
		return nil, fmt.Errorf("create source folder: %w", err)
	}
	out := make(map[string]engine.Source, len(j.Spec.Sources))
	local := map[string]string{} // object key to file: two names may mean one object
	for name, o := range j.Spec.Sources {
		path, have := local[o.Object]
		if !have {
			path = filepath.Join(src, fmt.Sprintf("s%d", len(local)))
			if err := s.fetchOne(ctx, o, path); err != nil {
				return nil, err
			}
			local[o.Object] = path
		}
		out[name] = engine.Source{Path: path, SHA256: o.SHA256}
	}
	return out, nil
}

func (s *Service) fetchOne(ctx context.Context, o object, path string) error {
	var err error
	if o.Asset {
		err = s.Assets.FetchTo(ctx, o.Object, path)
	} else {
		err = s.Store.Fetch(ctx, o.Object, path)
	}
	switch {
	case errors.Is(err, asset.ErrCorrupt):
		return fault.Failedf(fault.SourceUnreadable, "An asset does not match its checksum; upload it again").WithCause(err)
	case errors.Is(err, objectstore.ErrNotFound):
		return fault.Failedf(fault.SourceMissing, "A source file of the render is no longer available; upload it again").WithCause(err)
	case err != nil:
		return fmt.Errorf("fetch source: %w", err)
	}
	return nil
}

// complete stores the film and moves the job to COMPLETED.
func (s *Service) complete(ctx context.Context, j claimedJob, out engine.Output) error {
	f := stored{key: outputKey(j.ID, j.Spec.ext()), length: out.Duration}
	var beside errgroup.Group
	beside.Go(func() error { f.poster = s.addPoster(ctx, j, out.Path); return nil })
	var err error
	if f.sha256, f.size, err = disk.Digest(ctx, out.Path); err != nil {
		err = fmt.Errorf("digest output: %w", err)
	} else if err = s.Store.Put(ctx, f.key, out.Path, objectstore.ContentType(f.key)); err != nil {
		err = fmt.Errorf("store output: %w", err)
	}
	if err := errors.Join(err, beside.Wait()); err != nil {
		return err
	}
	return job.Retry(ctx, func() error { return s.completed(ctx, j, f) })
}

// stored is a finished output where it is kept.
type stored struct {
	kind   timeline.OutputKind
	key    string
	size   int64 // bytes
	sha256 string
	length time.Duration
	poster string // its key, "" for none
}

// completed writes where the film lies, also while the service stops: all that it cost
// is done, and who is interrupted here does not know whether it was written.
func (s *Service) completed(ctx context.Context, j claimedJob, f stored) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return s.db.InTx(ctx, func(tx *db.Tx) error {
		// The clock is read once: the film ends a whole life after it was finished.
		err := job.Guarded(tx.Exec(ctx, `UPDATE render_jobs SET state = 'COMPLETED', progress = 100, finished_at = clock.ms,
				output_key = $3, output_size_bytes = $4, output_sha256 = $5, expires_at = clock.ms + $6, output_duration_ms = $7, poster_key = NULLIF($8, ''),
				replica = lease_owner, lease_owner = NULL, lease_until = NULL FROM (SELECT now_ms() AS ms) AS clock
			WHERE id = $1 AND fence = $2 AND state = 'PROCESSING'`, j.ID, j.Fence, f.key, f.size, f.sha256, s.OutputLifetime.Milliseconds(),
			f.length.Round(time.Millisecond).Milliseconds(), f.poster))
		if err != nil {
			return err
		}
		return ended(ctx, tx, j.ID)
	})
}

// fail moves a job to FAILED, unless it is in other hands. What its owner is told is
// a sentence and a reason; the cause is for support.
func (s *Service) fail(ctx context.Context, j claimedJob, told *fault.Error, cause error) (moved bool, err error) {
	err = s.db.InTx(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, `UPDATE render_jobs SET state = 'FAILED', error = $3, error_code = $5, failure_cause = $4, finished_at = now_ms(),
				replica = lease_owner, lease_owner = NULL, lease_until = NULL, fence = fence + 1
			WHERE id = $1 AND fence = $2 AND state = 'PROCESSING'`, j.ID, j.Fence, told.Answer(), fault.Cause(cause), cmp.Or(told.Reason, fault.Unexplained))
		if err != nil {
			return fmt.Errorf("fail render job: %w", err)
		}
		if moved = n == 1; !moved {
			return nil
		}
		return ended(ctx, tx, j.ID)
	})
	return moved, err
}

// ended lets the sweeps have what only this job still needed, forgets its parts,
// and tells who waits for it.
func ended(ctx context.Context, tx *db.Tx, jobID string) error {
	if _, err := tx.Exec(ctx, `DELETE FROM render_parts WHERE job_id = $1`, jobID); err != nil {
		return fmt.Errorf("forget parts: %w", err)
	}
	if err := job.Release(ctx, tx, jobID); err != nil {
		return err
	}
	return tx.Notify(ctx, job.Topic(jobID))
}

// dropUploads deletes what was uploaded for one job only. A failure is made good by
// the sweep.
func (s *Service) dropUploads(ctx context.Context, jobID string, keys ...string) {
	if len(keys) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if err := s.Store.Delete(ctx, keys...); err != nil {
		s.log.Warn("uploads not deleted; the sweep will", "job", jobID, "err", err)
	}
}

// progressWriter brings the engine's progress into the row, never backwards. Its first
// step tells that the job is at work; in a small fleet that is told at once.
type progressWriter struct {
	mu      sync.Mutex
	percent int
	once    sync.Once
	done    chan struct{}
	ended   chan struct{}
}

func (s *Service) progressWriter(ctx context.Context, j claimedJob) *progressWriter {
	p := &progressWriter{percent: j.Progress, done: make(chan struct{}), ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		tick := time.NewTicker(s.progressPause())
		defer tick.Stop()
		written := j.Progress - 1
		if s.fleet.slots.Load() <= smallFleet && s.db.Notify(ctx, job.Topic(j.ID)) == nil {
			written = j.Progress
		}
		for {
			select {
			case <-p.done:
				return
			case <-tick.C:
			}
			if now := p.get(); now > written {
				_, err := s.db.ExecNotify(ctx, job.Topic(j.ID), `UPDATE render_jobs SET progress = $3
					WHERE id = $1 AND fence = $2 AND state = 'PROCESSING' AND progress <= $3`, j.ID, j.Fence, now)
				if err == nil { // else the next step will
					written = now
				}
			}
		}
	}()
	return p
}

// smallFleet is how many slots may tell of every step: each wakes every replica.
const smallFleet = 8

// progressPause is the time between two steps: half a second, and longer in a large
// fleet.
func (s *Service) progressPause() time.Duration {
	return min(3*time.Second, 500*time.Millisecond*time.Duration(max(smallFleet, s.fleet.slots.Load()))/smallFleet)
}

func (p *progressWriter) set(percent int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.percent = max(p.percent, min(99, percent))
}

func (p *progressWriter) get() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.percent
}

// stop ends it, once; the second time it does nothing.
func (p *progressWriter) stop() {
	p.once.Do(func() { close(p.done) })
	<-p.ended
}
