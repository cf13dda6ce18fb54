package separation

import (
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"syscall"
	"testing"
	"time"

	"cutroom/internal/base/db"
	"cutroom/internal/base/fault"
	"cutroom/internal/base/rescue"
	"cutroom/internal/domain/asset"
	"cutroom/internal/film/media"
	"cutroom/internal/storage/objectstore"
	"cutroom/internal/upstream/separator"
	"cutroom/internal/work/job"
)

func TestTheEndOfAnAttempt(t *testing.T) {
	in := func(state string, asked, project bool) claimedJob {
		return claimedJob{Claim: job.Claim{State: state}, AskedAt: sql.NullInt64{Int64: 1, Valid: asked}, ProjectID: sql.NullInt64{Int64: 7, Valid: project}}
	}
	before, asking, started, paid := in(StateSubmitting, false, false), in(StateSubmitting, true, false), in(StateSubmitting, true, true), in(StateProcessing, true, true)
	tried := paid
	tried.Attempts = job.MaxAttempts
	waiting := before
	waiting.busyFor = 10 * time.Minute
	busy := fmt.Errorf("upload to provider: %w", &separator.Error{Status: 429, Busy: true, RetryAfter: time.Minute})
	crash, noDatabase, noStore := errors.New("crash"), fmt.Errorf("claim: %w", db.ErrUnavailable), fmt.Errorf("store stem: %w", objectstore.ErrUnavailable)
	full := fmt.Errorf("write: %w", syscall.ENOSPC)
	patient := circumstances{busyWait: 10 * time.Minute}
	stopped, unable := circumstances{stopped: true}, circumstances{unable: true}
	for _, tt := range []struct {
		name string
		job  claimedJob
		err  error
		here circumstances
		want verdict
	}{
		{name: "taken away", job: paid, err: crash, here: circumstances{taken: true, stopped: true}, want: leave},
		{name: "submissions pause", job: before, err: fmt.Errorf("upload to provider: %w", errPaused), want: handBack},

		{name: "busy", job: before, err: busy, here: patient, want: wait},
		{name: "busy when asked to start", job: asking, err: busy, here: patient, want: wait},
		{name: "busy during a stop", job: asking, err: busy, here: circumstances{stopped: true, busyWait: time.Minute}, want: wait},
		{name: "busy for too long", job: waiting, err: busy, here: patient, want: fail},
		{name: "busy, and nobody waits", job: before, err: busy, want: fail},
		{name: "busy with a paid job", job: paid, err: busy, here: patient, want: fail},
		{name: "refused", job: asking, err: &separator.Error{Status: 402}, here: patient, want: fail},

		{name: "no answer to the start", job: asking, err: &separator.Error{Transient: true}, here: patient, want: fail},
		{name: "stopped during the start", job: asking, err: crash, here: stopped, want: fail},
		{name: "no database after the start", job: asking, err: noDatabase, want: fail},
		{name: "no database for the project", job: started, err: noDatabase, want: handBack},
		{name: "no database before", job: before, err: noDatabase, want: handBack},

		{name: "stopped", job: before, err: crash, here: stopped, want: handBack},
		{name: "stopped while the provider refused", job: before, err: &separator.Error{Status: 402}, here: stopped, want: handBack},
		{name: "stopped with a paid job", job: paid, err: crash, here: stopped, want: handBack},

		{name: "no store before", job: before, err: noStore, want: fail},
		{name: "no store for stems", job: paid, err: noStore, want: handBack},
		{name: "disk full before", job: before, err: full, want: fail},
		{name: "disk full of stems", job: paid, err: full, want: handBack},
		{name: "this replica cannot work", job: paid, err: crash, here: unable, want: handBack},
		{name: "nor could another", job: paid, err: errProviderFailed, here: unable, want: fail},
		{name: "our own fault before", job: before, err: crash, want: fail},
		{name: "our own fault", job: paid, err: crash, want: again},
		{name: "our own fault again and again", job: tried, err: crash, want: fail},
		{name: "the provider's fault", job: paid, err: errProviderFailed, want: fail},
		{name: "deleted", job: paid, err: job.ErrDeleted, want: fail},
	} {
		if got := decide(tt.job, tt.err, tt.here); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}

// Each failure of a worker has its own error code.
func TestErrorCodes(t *testing.T) {
	for _, tt := range []struct {
		err   error
		want  fault.Reason
		level slog.Level
	}{
		{err: fmt.Errorf("submit to provider: %w", &separator.Error{Status: 402}), want: fault.ProviderQuota, level: slog.LevelWarn},
		{err: fmt.Errorf("poll provider: %w", &separator.Error{Status: 403}), want: fault.ProviderRejected, level: slog.LevelWarn},
		{err: fmt.Errorf("upload to provider: %w", &separator.Error{Transient: true}), want: fault.ProviderUnavailable, level: slog.LevelWarn},
		{err: errors.Join(errProviderFailed, errors.New("hasFailed")), want: fault.ProviderRejected, level: slog.LevelWarn},
		{err: fmt.Errorf("prepare %s: %w", stemVoice, errEmptyStem), want: fault.ProviderRejected, level: slog.LevelWarn},
		{err: fmt.Errorf("%w: 301001 ms", errPriceMismatch), want: fault.PriceMismatch, level: slog.LevelWarn},
		{err: fmt.Errorf("fetch source: %w", objectstore.ErrNotFound), want: fault.SourceMissing, level: slog.LevelError},
		{err: fmt.Errorf("fetch asset: %w", asset.ErrCorrupt), want: fault.SourceMissing, level: slog.LevelError},
		{err: fmt.Errorf("%w: %w", errCut, media.ErrNotMedia), want: fault.SourceUnreadable, level: slog.LevelWarn},
		{err: fmt.Errorf("stem to flac: %w", media.ErrTimeout), want: fault.TimedOut, level: slog.LevelError},
		{err: fmt.Errorf("store stem: %w", objectstore.ErrUnavailable), want: fault.Unexplained, level: slog.LevelError},
		{err: &rescue.PanicError{Value: "boom"}, want: fault.Unexplained, level: slog.LevelError},
		{err: job.ErrDeleted, want: fault.Interrupted, level: slog.LevelInfo},
	} {
		if failure, level := judge(tt.err); failure.Reason != tt.want || level != tt.level || failure.Answer() == "" {
			t.Errorf("%v: %+v at %s, want %s at %s", tt.err, failure, level, tt.want, tt.level)
		}
	}
}
