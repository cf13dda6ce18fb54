package separation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"cutroom/internal/base/db"
	"cutroom/internal/upstream/separator"
	"cutroom/internal/work/job"
)

// errPaused ends an attempt at a job while submissions are paused.
var errPaused = errors.New("submissions pause, because the provider is busy")

// notPaused is the condition that new jobs may be submitted to the provider.
const notPaused = `(SELECT until_ms FROM separation_pause WHERE id = 1) < now_ms()`

// maySubmit returns errPaused while submissions are paused.
func (s *Service) maySubmit(ctx context.Context) error {
	var open bool
	if err := job.Retry(ctx, func() error { return s.DB.QueryRow(ctx, `SELECT `+notPaused).Scan(&open) }); err != nil {
		return fmt.Errorf("read pause of submissions: %w", err)
	}
	if !open {
		return errPaused
	}
	return nil
}

// Without a Retry-After, the pause doubles from firstPause up to longestPause.
const firstPause, longestPause = 5 * time.Second, 2 * time.Minute

// pauseSubmissions extends the pause of all replicas. Refusals during a pause belong to requests that were under way,
// and do not make the next one longer.
func (s *Service) pauseSubmissions(ctx context.Context, retryAfter time.Duration) (pause time.Duration, err error) {
	err = s.DB.InTx(ctx, func(tx *db.Tx) error {
		var refusals int
		var leftMs int64
		if err := tx.QueryRow(ctx, `SELECT refusals, until_ms - now_ms() FROM separation_pause WHERE id = 1`+tx.ForUpdate()).
			Scan(&refusals, &leftMs); err != nil {
			return err
		}
		pause = max(retryAfter, time.Duration(leftMs)*time.Millisecond)
		if leftMs <= 0 {
			pause = cmp.Or(retryAfter, min(firstPause<<min(refusals, 10), longestPause))
			refusals++
		}
		_, err := tx.Exec(ctx, `UPDATE separation_pause SET until_ms = now_ms() + $1, refusals = $2 WHERE id = 1`, pause.Milliseconds(), refusals)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("pause submissions: %w", err)
	}
	return pause, nil
}

// failBusy fails queued jobs for which the provider has been busy for too long, each with the provider's sentence.
func (s *Service) failBusy(ctx context.Context) error {
	for _, status := range []int{429, 503} {
		refused := &separator.Error{Status: status, Transient: status == 503}
		if err := s.failAll(ctx, refused.Public(), "the provider was busy for too long", job.SQL(
			queued+` AND d.busy_since < now_ms() - $1 AND d.busy_status = $2`, s.BusyWait.Milliseconds(), status)); err != nil {
			return err
		}
	}
	return nil
}
