// Writes and logs how an unsuccessful attempt changes its job, even if the worker is lost. Each kind of job decides the
// outcome; this file does the rest for all kinds.

package job

import (
	"context"
	"errors"
	"fmt"

	"cutroom/internal/base/db"
)

// Outcome is what becomes of a job whose attempt ended without success. A kind of job decides it from the error and the
// circumstances; [Table.Apply] writes it. The zero value leaves the job to the worker that has it now.
type Outcome struct {
	Return *Return // the job goes back
	Fail   *Ending // the job fails, if there is no Return, or if the job is not as the Return demands
}

// while is an outcome that holds only for a job that still meets a condition.
func (o Outcome) while(still Fragment) Outcome {
	if o.Return != nil {
		r := *o.Return
		r.Still = still.And(r.Still)
		o.Return = &r
	}
	if o.Fail != nil {
		e := *o.Fail
		e.Still = still.And(e.Still)
		o.Fail = &e
	}
	return o
}

// Result is what has become of a job.
type Result int

// The results.
const (
	Unwritten Result = iota // its lease runs out, and another worker recovers it
	Left                    // another worker has it, or its row is deleted
	Returned
	Failed
)

// Apply writes what was decided about a claimed job whose attempt ended with cause, and logs it. Support reads cause if
// the job fails.
func (t Table) Apply(ctx context.Context, c Claim, o Outcome, cause error) (result Result) {
	if o.Fail != nil && o.Fail.Cause == nil {
		e := *o.Fail
		e.Cause = cause
		o.Fail = &e
	}
	repeated := false
	err := Retry(ctx, func() (err error) {
		if result, err = t.settle(ctx, c, o); err == nil && result == Left && repeated {
			result, err = t.settled(ctx, c, o)
		}
		repeated = true
		return err
	})
	log := t.AttemptLog(c)
	switch {
	case err != nil:
		log.Warn(t.Kind+": end of attempt not written; the job will be recovered", "err", err)
		return Unwritten
	case result == Returned:
		says := o.Return.Says
		if says == "" {
			says = "handed back"
		}
		log.With(o.Return.Attrs...).Log(ctx, o.Return.Level, t.Kind+" "+says, "state", o.Return.To,
			"pauseMs", o.Return.Pause.Milliseconds(), "err", cause)
	case result == Failed:
		log.Log(ctx, o.Fail.Level, t.Kind+" ended", "state", "FAILED", "why", o.Fail.Failure.Answer(), "err", cause)
	default:
		log.Info(t.Kind+" taken away", "err", cause)
	}
	return result
}

// settle makes one attempt to write an outcome.
func (t Table) settle(ctx context.Context, c Claim, o Outcome) (Result, error) {
	if o.Return != nil {
		if ok, err := t.HandBack(ctx, c, *o.Return); err != nil {
			return Unwritten, err
		} else if ok {
			return Returned, nil
		}
	}
	if o.Fail == nil {
		return Left, nil
	}
	ok := false
	err := t.DB.InTx(ctx, func(tx *db.Tx) (err error) {
		ok, err = t.Fail(ctx, tx, c, *o.Fail)
		return err
	})
	switch {
	case err != nil:
		return Unwritten, err
	case ok:
		return Failed, nil
	}
	return Left, nil
}

// settled finds out whether an earlier attempt to write an outcome succeeded although its answer was lost.
func (t Table) settled(ctx context.Context, c Claim, o Outcome) (Result, error) {
	if o.Return != nil {
		if did, err := t.did(ctx, t.DB, c, 1, o.Return.To); err != nil || did {
			return Returned, err
		}
	}
	if o.Fail != nil {
		if did, err := t.did(ctx, t.DB, c, 1, "FAILED"); err != nil || did {
			return Failed, err
		}
	}
	return Left, nil
}

// sweepBatch bounds the jobs that one call of Sweep moves.
const sweepBatch = 100

// Sweep moves jobs that no worker will move, or whose workers died: the first ones that meet a condition on the job j
// and its details d, oldest first. Each gets the outcome that decide returns; asked says that the provider has been
// asked. Sweep checks each job again once its row is locked, because its worker may have come back after an outage, or
// may have made progress. A job that cannot be moved does not stop the others.
func (t Table) Sweep(ctx context.Context, which Fragment, decide func(c Claim, asked bool) Outcome) error {
	type found struct {
		Claim
		asked bool
	}
	query, args := statement(nil, `SELECT j.id, j.user_id, j.state, j.fence, j.attempts, j.asked_at IS NOT NULL
		FROM `+t.rows()+` WHERE `, which, fmt.Sprintf(` ORDER BY j.created_at, j.id LIMIT %d`, sweepBatch))
	// A frozen database answers only after every lease has run out, so do not wait for it.
	jobs, err := db.All(db.WithLimit(ctx, TTL/3), t.DB, func(row db.Scanner) (f found, err error) {
		err = row.Scan(&f.ID, &f.UserID, &f.State, &f.Fence, &f.Attempts, &f.asked)
		return f, err
	}, query, args...)
	if err != nil {
		return fmt.Errorf("select %s jobs: %w", t.Kind, err)
	}
	var errs []error
	for _, f := range jobs {
		o := decide(f.Claim, f.asked).while(which)
		result, err := t.settle(ctx, f.Claim, o)
		if err != nil {
			errs = append(errs, fmt.Errorf("move %s: %w", f.ID, err))
			continue
		}
		switch log := t.AttemptLog(f.Claim); result {
		case Returned:
			log.Warn(t.Kind+" requeued, because its worker was lost", "state", f.State)
		case Failed:
			log.Warn(t.Kind+" given up", "state", f.State, "why", o.Fail.Failure.Answer(), "err", o.Fail.Cause)
		}
		if t.Swept != nil {
			t.Swept(ctx, f.Claim, result)
		}
	}
	return errors.Join(errs...)
}
