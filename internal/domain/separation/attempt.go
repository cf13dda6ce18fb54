// One worker's attempt at a job: it claims the job, sends the source to the provider, follows the provider's work, and
// ends in collect.go or with what decide.go says.

package separation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"cutroom/internal/base/db"
	"cutroom/internal/base/httpcall"
	"cutroom/internal/domain/credit"
	"cutroom/internal/upstream/separator"
	"cutroom/internal/work/job"
)

// pollQueue is how long a missed wake-up can delay a job, and how long an expired lease can go unnoticed.
const pollQueue = time.Second

// Run claims jobs and drives them to their end until ctx ends. It then hands its jobs back, which costs them no
// attempt, and returns when all its work has stopped.
func (s *Service) Run(ctx context.Context) error {
	wake, stopListening := s.DB.Listen(job.WorkTopic(job.Separation))
	defer stopListening()
	var running sync.WaitGroup
	defer running.Wait()
	job.Poll(ctx, s.Log, "separation queue", wake, pollQueue, s.Renewer.AfterOutages(func(ctx context.Context) (bool, error) {
		if err := s.recoverDead(ctx); err != nil && ctx.Err() == nil {
			s.outage.Log(s.Log, slog.LevelError, "recover", "jobs of dead workers not recovered", "err", err) // others may still be claimed
		}
		j, ok, err := s.claim(ctx)
		if err != nil || !ok {
			return false, err
		}
		running.Go(func() { s.work(ctx, j) })
		return true, nil
	}))
	return nil
}

// work drives one claimed job as far as possible.
func (s *Service) work(ctx context.Context, j claimedJob) {
	started := time.Now()
	s.jobs.Work(ctx, j.Claim, func(ctx context.Context, dir string) error {
		return s.advance(ctx, &j, dir)
	}, func(last context.Context, taken bool, err error) {
		if err == nil {
			s.jobs.AttemptLog(j.Claim).Info("separation ended", "state", StateReady, "ms", time.Since(started).Milliseconds())
			return
		}
		_, unable := s.CanWork(last)
		s.apply(last, j, decide(j, err, circumstances{taken: taken, stopped: ctx.Err() != nil, unable: unable != nil, busyWait: s.BusyWait}), err)
	})
}

// covers reports whether what was paid is enough for sound of that length.
func (j claimedJob) covers(durationMs int64) bool {
	return credit.Price(durationMs) <= j.Credits || durationMs <= j.DurationMs+credit.PaddingMs
}

func (s *Service) advance(ctx context.Context, j *claimedJob, dir string) error {
	if j.State == StateSubmitting {
		if err := s.submit(ctx, j, dir); err != nil {
			return err
		}
	}
	if err := s.follow(ctx, j); err != nil {
		return err
	}
	return s.collect(ctx, j, dir)
}

// submit uploads the source and asks the provider, once, to start on it.
func (s *Service) submit(ctx context.Context, j *claimedJob, dir string) error {
	source := filepath.Join(dir, "source"+filepath.Ext(j.SourceName))
	if err := s.fetchSource(ctx, j, dir, source); err != nil {
		return err
	}
	medium, err := s.Provider.Upload(ctx, source, j.SourceName, s.maySubmit)
	if err != nil {
		return fmt.Errorf("upload to provider: %w", err)
	}
	if !j.covers(medium.DurationMs) {
		return fmt.Errorf("%w: %d ms by the provider, %d ms by us for %d credits", errPriceMismatch, medium.DurationMs, j.DurationMs, j.Credits)
	}
	if err := os.Remove(source); err != nil { // as large as the upload, and a user's voice
		s.jobs.AttemptLog(j.Claim).Warn("source not removed; the end of the job will", "err", err)
	}
	if err := s.maySubmit(ctx); err != nil {
		return err
	}
	if err := s.intend(ctx, j); err != nil {
		return err
	}
	// A stop of the service must not interrupt what follows until the project id is stored: the provider bills every
	// call that it received.
	ctx = context.WithoutCancel(ctx)
	project, err := s.Provider.Submit(ctx, medium.Seq, j.ID)
	if err != nil {
		return fmt.Errorf("submit to provider: %w", err)
	}
	return job.Retry(ctx, func() error { return s.started(ctx, j, project) })
}

// fetchSource writes the source of a job to a file.
func (s *Service) fetchSource(ctx context.Context, j *claimedJob, dir, file string) error {
	if j.Cut.Valid {
		return s.makeCut(ctx, dir, j.Cut.String, file)
	}
	if err := job.Retry(ctx, func() error { return s.Store.Fetch(ctx, j.SourceKey, file) }); err != nil {
		return fmt.Errorf("fetch source: %w", err)
	}
	return nil
}

// started stores the provider's project id and moves SUBMITTING to PROCESSING. From then on any worker can continue the
// job.
func (s *Service) started(ctx context.Context, j *claimedJob, project int64) error {
	j.ProjectID.Int64, j.ProjectID.Valid = project, true // for apply, if the write gets no answer
	if err := s.jobs.Advance(job.WithLimit(ctx), j.Claim, StateProcessing,
		job.SQL(`project_id = $1, processing_at = now_ms(), busy_since = NULL, busy_status = NULL`, project)); err != nil {
		return err
	}
	j.State = StateProcessing
	if _, err := s.DB.Exec(ctx, `UPDATE separation_pause SET refusals = 0 WHERE refusals > 0`); err != nil {
		s.jobs.AttemptLog(j.Claim).Warn("end of the provider's refusals not noted; the next pause is longer", "err", err)
	}
	return nil
}

// intend records that the provider is about to be asked. A stop of the service does not interrupt the write. If the
// stop came first, the job goes back without the intent, so that another replica can run the job.
func (s *Service) intend(ctx context.Context, j *claimedJob) error {
	if err := job.Retry(ctx, func() error {
		return s.jobs.Ask(job.WithLimit(context.WithoutCancel(ctx)), j.Claim)
	}); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	j.AskedAt.Valid = true
	return nil
}

// follow polls the provider until it is done. The sweep enforces the poll time-out: it takes the job away from its
// worker.
func (s *Service) follow(ctx context.Context, j *claimedJob) error {
	for {
		var p separator.Progress
		err := s.untilAnswered(ctx, j, func() (err error) {
			p, err = s.Provider.Progress(ctx, j.ProjectID.Int64)
			return err
		})
		switch {
		case err != nil:
			return fmt.Errorf("poll provider: %w", err)
		case p.Failed:
			return errors.Join(errProviderFailed, errors.New("the provider reports failure"))
		case p.Done:
			return s.done(ctx, j)
		}
		// The last part of the progress bar is for fetching the stems.
		percent := min(95, max(0, p.Percent*95/100))
		if err := s.jobs.Progress(job.WithLimit(ctx), j.Claim, percent, job.Fragment{}); err != nil {
			if errors.Is(err, job.ErrMoved) || ctx.Err() != nil {
				return err
			}
			s.outage.Log(s.jobs.AttemptLog(j.Claim), slog.LevelWarn, "progress", "progress not written", "err", err)
		}
		if err := httpcall.Sleep(ctx, s.PollEvery); err != nil {
			return err
		}
	}
}

// untilAnswered asks the provider about a paid project, at each interval until it answers. Like all polling it ends
// when the sweep revokes the job.
func (s *Service) untilAnswered(ctx context.Context, j *claimedJob, ask func() error) error {
	for {
		err := ask()
		var e *separator.Error
		if err == nil || !errors.As(err, &e) || !e.Transient {
			return err
		}
		s.Log.Warn("the provider does not answer; it is asked again", "job", j.ID, "err", err)
		if err := httpcall.Sleep(ctx, s.PollEvery); err != nil {
			return err
		}
	}
}

// done records when the provider finished, unless the job has failed in the meantime. Nothing is fetched for a deleted
// job.
func (s *Service) done(ctx context.Context, j *claimedJob) error {
	deleted := false
	err := job.Retry(ctx, func() error {
		return s.DB.InTx(job.WithLimit(ctx), func(tx *db.Tx) error {
			if err := s.jobs.Guard(ctx, tx, j.Claim); err != nil {
				return err
			}
			if err := s.jobs.Set(ctx, tx, j.ID, job.SQL(`provider_done_at = COALESCE(provider_done_at, now_ms())`)); err != nil {
				return err
			}
			return tx.QueryRow(ctx, `SELECT deleted_at IS NOT NULL FROM jobs WHERE id = $1`, j.ID).Scan(&deleted)
		})
	})
	if err == nil && deleted {
		err = job.ErrDeleted
	}
	return err
}
