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

	"cutroom/internal/asset"
	"cutroom/internal/credit"
	"cutroom/internal/db"
	"cutroom/internal/disk"
	"cutroom/internal/fault"
	"cutroom/internal/httpcall"
	"cutroom/internal/job"
	"cutroom/internal/media"
	"cutroom/internal/objectstore"
	"cutroom/internal/upstream/separator"
	"cutroom/internal/user"
)

// pollQueue is how long a missed wake-up can delay a job, and how long an
// expired lease can go unnoticed.
const pollQueue = time.Second

// Run claims jobs and drives them to their end until ctx ends. It then hands its
// jobs back and returns when all its work has stopped. A stopped job is queued again
// or continued by another replica, without a refund and without a lost attempt.
func (s *Service) Run(ctx context.Context) error {
	wake, stopListening := s.db.Listen(s.jobs.Topic)
	defer stopListening()
	var running sync.WaitGroup
	defer running.Wait()
	job.Poll(ctx, s.log, "separation queue", wake, pollQueue, s.Renewer.AfterOutages(func(ctx context.Context) (bool, error) {
		if err := s.requeueDead(ctx); err != nil && ctx.Err() == nil {
			s.outage.Log(s.log, slog.LevelError, "recover", "jobs of dead workers not recovered", "err", err) // others may still be claimed
		}
		j, ok, err := s.next(ctx)
		if err != nil || !ok {
			return false, err
		}
		running.Go(func() { s.work(ctx, j) })
		return true, nil
	}))
	return nil
}

// work drives one claimed job as far as it goes.
func (s *Service) work(ctx context.Context, j claimedJob) {
	started := time.Now()
	s.jobs.Work(ctx, j.Claim, func(ctx context.Context, dir string) error {
		return s.advance(ctx, &j, dir)
	}, func(last context.Context, taken bool, err error) {
		log := s.jobs.AttemptLog(j.Claim)
		switch {
		case err == nil:
			log.Info("separation ended", "state", StateReady, "ms", time.Since(started).Milliseconds())
		case taken:
			log.Info("separation taken away", "err", err)
			// This worker may have stored stems after an account deletion looked for them.
			s.dropStray(last, j)
		case s.waits(last, j, log, err):
		case s.goesOn(last, j, ctx.Err(), err):
			s.release(last, j, log, err)
		default:
			s.giveUp(last, j, log, err)
		}
	})
}

// release hands a job back and logs why, or that it could not.
func (s *Service) release(ctx context.Context, j claimedJob, log *slog.Logger, why error) {
	if err := job.Retry(ctx, func() error { return s.handBack(ctx, j) }); err != nil {
		log.Warn("separation not handed back; it will be recovered", "err", err)
		return
	}
	log.Info("separation handed back", "state", j.State, "why", why)
}

// waits requeues a job that the busy provider refused, and reports whether it did.
func (s *Service) waits(ctx context.Context, j claimedJob, log *slog.Logger, err error) bool {
	if errors.Is(err, errPaused) {
		s.release(ctx, j, log, err)
		return true
	}
	busy, may := s.busyError(ctx, j, err)
	return may && s.waitForProvider(ctx, j, busy, log)
}

// goesOn reports whether another replica continues a job whose work ended here, because
// this replica stops, cannot work, could not reach the database, or could not store stems
// that are paid for. A job that the provider may be starting ends here, whatever its row
// says.
func (s *Service) goesOn(ctx context.Context, j claimedJob, stopped, err error) bool {
	if j.State == StateSubmitting && j.AskedAt.Valid && !j.ProjectID.Valid {
		return false
	}
	if errors.Is(err, db.ErrUnavailable) || j.State == StateProcessing && (errors.Is(err, objectstore.ErrUnavailable) || disk.IsFull(err)) {
		return true
	}
	if _, _, expected := verdict(err); stopped != nil || expected {
		return stopped != nil
	}
	_, unable := s.CanWork(ctx)
	return unable != nil
}

// verdict returns the failure that the client sees for err, and the message for the log.
// Expected reports that the service is not to blame.
func verdict(err error) (failure *fault.Error, message string, expected bool) {
	const ours = "separation failed"
	var refused *separator.Error
	switch {
	case errors.As(err, &refused):
		return toldOf(refused), "separation refused by the provider", true
	case errors.Is(err, errProviderFailed):
		return errProviderFailed, "separation failed at the provider", true
	case errors.Is(err, errPriceMismatch):
		return errPriceMismatch, "separation costs more than was paid", true
	case errors.Is(err, objectstore.ErrNotFound), errors.Is(err, asset.ErrCorrupt): // nothing else is fetched
		return errNoSource, ours, false
	case errors.Is(err, errCut) && media.BlameFor(err) == media.BlameFile:
		return errUnreadable, "the sound of an asset cannot be decoded", true
	case errors.Is(err, errCut) && media.BlameFor(err) == media.BlameCost:
		return errTooLarge, "an asset takes too much to cut", true
	case errors.Is(err, media.ErrTimeout):
		return errSlow, ours, false
	case errors.Is(err, errDeleted):
		return errDeleted, "the provider is done with a deleted separation", true
	}
	return errInternal, ours, false
}

// toldOf returns what the owner reads after the provider refused.
func toldOf(refused *separator.Error) *fault.Error {
	return fault.Failedf(refused.Reason(), "%s", refused.Sentence())
}

// giveUp fails a job. If the failure cannot be written, the lease runs out and another
// worker recovers the job from its row.
func (s *Service) giveUp(ctx context.Context, j claimedJob, log *slog.Logger, cause error) {
	failure, message, expected := verdict(cause)
	moved, err := s.fail(ctx, j, failure, cause)
	if err != nil {
		log.Warn("end of separation not written; it will be recovered", "err", err)
		return
	}
	s.dropStray(ctx, j)
	if !moved {
		return
	}
	level := slog.LevelWarn
	switch {
	case !expected:
		level = slog.LevelError
	case errors.Is(cause, errDeleted):
		level = slog.LevelInfo
	}
	log.Log(ctx, level, message, "err", cause)
	log.Info("separation ended", "state", StateFailed, "why", failure.Answer())
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

// submit uploads the source and makes the provider start on it, once.
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
	// A stop of the service must not interrupt what follows until the project id is
	// stored: the provider bills every call that it received.
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

// started stores the provider's project id and moves SUBMITTING to PROCESSING. From
// then on any worker can continue the job.
func (s *Service) started(ctx context.Context, j *claimedJob, project int64) error {
	j.ProjectID.Int64, j.ProjectID.Valid = project, true // for handBack, if the write gets no answer
	if err := s.db.InTx(job.Briefly(ctx), func(tx *db.Tx) error {
		moved, err := s.jobs.Move(ctx, tx, j.ID, StateSubmitting, StateProcessing, "", ` AND fence = $4`, j.Fence)
		if err != nil {
			return err
		}
		if !moved {
			return job.ErrMoved
		}
		if err := s.jobs.Set(ctx, tx, j.ID, `project_id = $2, processing_at = now_ms(), busy_since = NULL, busy_status = NULL`, project); err != nil {
			return err
		}
		return job.Announce(ctx, tx, j.ID)
	}); err != nil {
		return err
	}
	j.State = StateProcessing
	if _, err := s.db.Exec(ctx, `UPDATE separation_pause SET refusals = 0 WHERE refusals > 0`); err != nil {
		s.jobs.AttemptLog(j.Claim).Warn("end of the provider's refusals not noted; the next pause is longer", "err", err)
	}
	return nil
}

// intend records that the provider is about to be asked. A stop of the service does not
// interrupt the write, because it must know whether the intent is stored. If the stop
// came first, intend withdraws the intent, so that another replica can run the job. A
// job deleted in the meantime was not refunded and must not be queued again.
func (s *Service) intend(ctx context.Context, j *claimedJob) error {
	if err := job.Retry(ctx, func() error {
		return s.jobs.Ask(job.Briefly(context.WithoutCancel(ctx)), j.Claim, StateSubmitting)
	}); err != nil {
		return err
	}
	if ctx.Err() == nil {
		j.AskedAt.Valid = true
		return nil
	}
	undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := s.jobs.NotAsked(undo, j.Claim, StateSubmitting); err != nil {
		return err
	}
	return context.Cause(ctx)
}

// dropStray removes stored stems of a job that will not be READY. The sweep of orphans
// removes what it could not.
func (s *Service) dropStray(ctx context.Context, j claimedJob) {
	if j.State != StateProcessing {
		return // nothing can have been stored yet
	}
	err := user.Check(ctx, s.db, j.UserID)
	if errors.Is(err, user.ErrDeleted) { // whatever its row says while there is one
		err = objectstore.DeletePrefix(ctx, s.Store, folder(j.ID))
	} else if err == nil {
		err = s.Sweeper.Clean(ctx, kindStems, folder(j.ID))
	}
	if err != nil {
		s.jobs.AttemptLog(j.Claim).Warn("stray stems not deleted; the sweep of orphans will", "err", err)
	}
}

// follow polls the provider until it is done. The poll time-out is kept by the
// sweep, which takes the job away from its worker.
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
		// Fetching the stems has the last part of the progress bar.
		percent := min(95, max(0, p.Percent*95/100))
		if err := s.jobs.Progress(job.Briefly(ctx), j.Claim, percent, ""); err != nil {
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

// untilAnswered asks the provider about a paid project, at each interval until it
// answers. Like all polling it ends when the sweep revokes the job.
func (s *Service) untilAnswered(ctx context.Context, j *claimedJob, ask func() error) error {
	for {
		err := ask()
		var e *separator.Error
		if err == nil || !errors.As(err, &e) || !e.Transient {
			return err
		}
		s.log.Warn("the provider does not answer; it is asked again", "job", j.ID, "err", err)
		if err := httpcall.Sleep(ctx, s.PollEvery); err != nil {
			return err
		}
	}
}

// done records when the provider finished, unless the job has failed in the meantime.
// Nothing is fetched for a deleted job.
func (s *Service) done(ctx context.Context, j *claimedJob) error {
	deleted := false
	err := job.Retry(ctx, func() error {
		return s.db.InTx(job.Briefly(ctx), func(tx *db.Tx) error {
			if err := s.jobs.Guard(ctx, tx, j.Claim, StateProcessing); err != nil {
				return err
			}
			if err := s.jobs.Set(ctx, tx, j.ID, `provider_done_at = COALESCE(provider_done_at, now_ms())`); err != nil {
				return err
			}
			return tx.QueryRow(ctx, `SELECT deleted_at IS NOT NULL FROM jobs WHERE id = $1`, j.ID).Scan(&deleted)
		})
	})
	if err == nil && deleted {
		err = errDeleted
	}
	return err
}

// handBack gives up a job that another replica continues. Its place in the queue, its
// attempts and its project stay as they were.
func (s *Service) handBack(ctx context.Context, j claimedJob) error {
	if j.State == StateSubmitting && j.ProjectID.Valid { // the project is not stored yet
		if err := s.started(ctx, &j, j.ProjectID.Int64); err != nil {
			return err
		}
	}
	if j.State == StateSubmitting {
		_, err := s.withdraw(ctx, j)
		return err
	}
	_, err := s.jobs.HandBack(ctx, j.Claim, job.Return{From: StateProcessing, To: StateProcessing})
	return err
}

// withdraw requeues a job before its worker has asked the provider, and removes an intent
// whose write got no answer. A deleted job with an intent was not refunded and must not
// be queued again.
func (s *Service) withdraw(ctx context.Context, j claimedJob) (bool, error) {
	return s.jobs.HandBack(ctx, j.Claim, job.Return{From: StateSubmitting, To: StateQueued, Forgive: true,
		Withdraw: true, And: ` AND (asked_at IS NULL OR deleted_at IS NULL)`, Set: `submitting_at = now_ms()`, Topics: []string{TopicQueue}})
}
