// The workers of a replica: each claims a job, fetches its sources, lets the engine make the film, stores it, and ends
// the job. If the attempt fails, end.go decides what becomes of the job.

package render

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"cutroom/internal/base/clock"
	"cutroom/internal/base/fault"
	"cutroom/internal/base/rescue"
	"cutroom/internal/domain/asset"
	"cutroom/internal/film/engine"
	"cutroom/internal/film/timeline"
	"cutroom/internal/storage/disk"
	"cutroom/internal/storage/objectstore"
	"cutroom/internal/work/job"
)

// pollQueue is how long a lost notification can delay a job, and how long an expired lease can go unnoticed.
const pollQueue = 2 * time.Second

// Run claims jobs, as many at a time as there are slots, and uses a slot that would be idle to make parts of other
// replicas' renders, until ctx ends. It then hands its jobs back and returns when all its work has stopped. Finished
// parts are kept, so the next worker loses little.
func (s *Service) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	wake := make(chan struct{}, 1)
	lookForWork := func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
	running.Go(func() { s.onAnnouncement(ctx, lookForWork) })
	job.Poll(ctx, s.Log, "render queue", wake, pollQueue, s.Renewer.AfterOutages(func(ctx context.Context) (more bool, err error) {
		if err := s.requeueDead(ctx); err != nil {
			return false, err
		}
		freeSlot, got := s.Slots.TryAcquire()
		if !got {
			return false, s.stopAssisting(ctx)
		}
		var work func(done func())
		defer func() { // after a panic as well, which Poll survives
			if work == nil {
				freeSlot()
			}
		}()
		if work, more, err = s.findWork(ctx); work != nil {
			running.Go(func() { work(func() { freeSlot(); lookForWork() }) })
		}
		return more, err
	}))
	return nil
}

const (
	// spreadPerSlot and longestSpread spread the replicas' reactions to one announcement.
	spreadPerSlot = 250 * time.Microsecond
	longestSpread = 200 * time.Millisecond
)

// onAnnouncement calls lookForWork after each announcement of jobs or parts, until ctx ends. Every replica receives it
// and waits at random, up to spreadPerSlot for each remote slot. Replicas that wake later find the job already claimed
// instead of queueing on the lock.
func (s *Service) onAnnouncement(ctx context.Context, lookForWork func()) {
	announced, stopListening := s.DB.Listen(job.WorkTopic(job.Render), topicParts)
	defer stopListening()
	for {
		select {
		case <-ctx.Done():
			return
		case <-announced:
			remote := max(0, s.allSlots.Load()-int64(s.Slots.Size()))
			time.AfterFunc(clock.Jitter(min(time.Duration(remote)*spreadPerSlot, longestSpread)+1), lookForWork)
		}
	}
}

// findWork claims a job, or else a part of another replica's render, and returns the function that does the work; nil
// if there is none. That function calls done when its slot is free. more reports that another job may wait.
func (s *Service) findWork(ctx context.Context) (work func(done func()), more bool, err error) {
	j, ok, err := s.claim(ctx)
	if err != nil {
		return nil, false, err
	}
	if ok {
		return func(done func()) {
			over := s.work(ctx, j)
			done()
			if over {
				s.dropUploads(ctx, j.ID, j.Spec.uploads(j.ID)...)
			}
		}, true, nil
	}
	if s.Bucket == nil || s.assisting.Load() != nil { // at most one slot assists
		return nil, false, nil
	}
	a, err := s.claimPart(ctx)
	if a == nil || err != nil {
		return nil, false, err
	}
	return func(done func()) { a.assist(); done() }, false, nil
}

// errOverdue is the cause that ends work which took too long.
var errOverdue = errors.New("job has taken too long")

// work drives one claimed job to its end, and reports whether the uploads of the job are no longer needed.
func (s *Service) work(ctx context.Context, j claimedJob) (over bool) {
	started, overdue := time.Now(), false
	s.jobs.Work(ctx, j.Claim, func(ctx context.Context, dir string) error {
		work, cancel := context.WithDeadlineCause(ctx, j.Deadline, errOverdue)
		defer cancel()
		err := s.render(work, j, dir)
		overdue = errors.Is(context.Cause(work), errOverdue)
		return err
	}, func(last context.Context, taken bool, err error) {
		if err == nil {
			over = true
			s.jobs.AttemptLog(j.Claim).Info("render ended", "state", StateCompleted, "ms", time.Since(started).Milliseconds())
			return
		}
		c := circumstances{taken: taken, stopped: ctx.Err() != nil}
		if overdue {
			c.overdue = s.overdue()
		}
		c.free, c.unable = s.CanWork(last)
		o := decide(j.Attempts, c, err)
		over = s.jobs.Apply(last, j.Claim, o, errors.Join(c.unable, err)) == job.Failed && !keepsUploads(o.Fail.Failure)
		s.dropIfErased(last, j)
	})
	return over
}

func (s *Service) render(ctx context.Context, j claimedJob, dir string) error {
	// Keep the sources outside the folder that ffmpeg may write to: they may share their bytes with a cache that other
	// users read.
	output := filepath.Join(dir, "job")
	if err := os.Mkdir(output, 0o700); err != nil {
		return fmt.Errorf("create work folder: %w", err)
	}
	progress := s.progressWriter(ctx, j)
	defer progress.stop()
	fetched := time.Now()
	sources, err := s.fetch(ctx, j, dir)
	if err != nil {
		return err
	}
	s.observe("fetch", time.Since(fetched))
	// Needed even if no replica can assist: the next attempt must make the same parts.
	c := s.newPartCoordinator(ctx, j.ID)
	defer c.stop()
	out, err := s.Engine.Render(ctx, engine.Job{Dir: output, Timeline: j.Spec.Timeline, Sources: sources, CacheScope: j.UserID,
		Coordinator: c, Log: s.jobs.AttemptLog(j.Claim), OnProgress: progress.set, OnPlanned: progress.setLength})
	progress.stop()
	if err != nil {
		return err
	}
	s.observe("analyse", out.Stats.Analyse)
	s.observe("parts", out.Stats.Parts)
	s.observe("final", out.Stats.Final)
	stored := time.Now()
	err = s.complete(ctx, j, out)
	s.observe("store", time.Since(stored))
	return err
}

func (s *Service) observe(stage string, took time.Duration) {
	if s.Observer != nil {
		s.Observer.Stage(stage, took)
	}
}

// fetch copies every source of the job into its folder.
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
		var key asset.Key
		if key, err = asset.ParseKey(o.Object); err == nil {
			err = s.Assets.FetchTo(ctx, key, path)
		}
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
	var poster errgroup.Group
	poster.Go(rescue.Func(func() error { f.poster = s.addPoster(ctx, j, out.Path); return nil }))
	var err error
	if f.sha256, f.size, err = disk.Digest(ctx, out.Path); err != nil {
		err = fmt.Errorf("digest output: %w", err)
	} else if err = s.Store.Put(ctx, f.key, out.Path, objectstore.ContentType(f.key)); err != nil {
		err = fmt.Errorf("store output: %w", err)
	}
	if err := errors.Join(err, poster.Wait()); err != nil {
		return err
	}
	return s.completed(ctx, j, f)
}

// stored is a finished output in the store.
type stored struct {
	kind   timeline.OutputKind
	key    string
	size   int64 // bytes
	sha256 string
	length time.Duration
	poster string // its key, "" for none
}

// completed moves the job to COMPLETED.
func (s *Service) completed(ctx context.Context, j claimedJob, f stored) error {
	return s.jobs.Complete(ctx, j.Claim, job.Completion{State: StateCompleted, StoredBytes: f.size,
		Set: job.SQL(`output_key = $1, output_size_bytes = $2, output_sha256 = $3, output_duration_ms = $4, poster_key = NULLIF($5, ''),
			expires_at = (SELECT finished_at FROM jobs WHERE id = renders.job_id) + $6, spec = ''`,
			f.key, f.size, f.sha256, wholeMs(f.length), f.poster, s.OutputLifetime.Milliseconds())})
}

// dropUploads deletes what was uploaded for one job only. The sweep deletes what this leaves.
func (s *Service) dropUploads(ctx context.Context, jobID string, keys ...string) {
	if len(keys) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if err := s.Store.Delete(ctx, keys...); err != nil {
		s.Log.Warn("uploads not deleted; the sweep will", "job", jobID, "err", err)
	}
}

// progressWriter writes the engine's progress into the job's row, never backwards, and the film's length as soon as the
// engine knows it.
type progressWriter struct {
	percent, lengthMs atomic.Int64 // lengthMs is 0 while unknown
	stop              func()       // ends the writer
}

func (s *Service) progressWriter(ctx context.Context, j claimedJob) *progressWriter {
	p := &progressWriter{}
	ctx, cancel := context.WithCancel(ctx)
	var writing sync.WaitGroup
	writing.Go(func() { s.writeProgress(ctx, j, p) })
	p.stop = func() { cancel(); writing.Wait() }
	return p
}

func (p *progressWriter) set(percent int) { p.percent.Store(int64(min(99, percent))) }

func (p *progressWriter) setLength(length time.Duration) { p.lengthMs.Store(wholeMs(length)) }

// progressEvery is the time between two writes of progress.
const progressEvery = 500 * time.Millisecond

func (s *Service) writeProgress(ctx context.Context, j claimedJob, p *progressWriter) {
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	for percent, lengthMs := int64(j.Progress), int64(0); ; {
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
		if ctx.Err() != nil { // a job that ended needs no progress
			return
		}
		nowPercent, nowMs := max(percent, p.percent.Load()), p.lengthMs.Load()
		if nowPercent == percent && nowMs == lengthMs {
			continue
		}
		var set job.Fragment
		if nowMs != lengthMs {
			set = job.SQL(`output_duration_ms = $1`, nowMs)
		}
		err := s.jobs.Progress(job.WithLimit(context.WithoutCancel(ctx)), j.Claim, int(nowPercent), set)
		if err == nil { // else the next write includes it
			percent, lengthMs = nowPercent, nowMs
		}
	}
}

// wholeMs returns the length of a film as its status shows it.
func wholeMs(length time.Duration) int64 { return length.Round(time.Millisecond).Milliseconds() }
