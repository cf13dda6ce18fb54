// Submission of a separation: an upload is measured, priced and stored, and one transaction charges the owner and
// enqueues the job.

package separation

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"cutroom/internal/base/db"
	"cutroom/internal/domain/asset"
	"cutroom/internal/domain/credit"
	"cutroom/internal/domain/separation/price"
	"cutroom/internal/storage/objectstore"
	"cutroom/internal/storage/staging"
	"cutroom/internal/work/idempotency"
	"cutroom/internal/work/job"
	"cutroom/internal/work/quota"
	"cutroom/internal/work/user"
)

// Admit refuses an owner without an account or without credits, before the upload is read. It admits the repeat of an
// answered request, which costs nothing.
func (s *Service) Admit(ctx context.Context, owner string, key idempotency.Key) error {
	err := s.affordable(ctx, owner, 1)
	if err == nil {
		err = s.Quota.Check(ctx, s.DB, owner, quota.Usage{WaitingJobs: 1})
	}
	if err == nil || errors.Is(err, user.ErrDeleted) {
		return err
	}
	if known, kerr := idempotency.Known(ctx, s.DB, key); known || kerr != nil {
		return kerr
	}
	return err
}

// Submit charges the owner and enqueues the job in one transaction, so a crash leaves neither without the other. The
// caller keeps the staged file. A repeat under the same idempotency key returns the first job and charges nothing. The
// language is "auto" or an ISO code.
func (s *Service) Submit(ctx context.Context, owner string, file staging.File, language string,
	key idempotency.Key) (jobID string, err error) {
	j := newJob{id: s.jobs.NewID(), owner: owner, language: language, fileName: fileName(file.FileName)}
	answer, err := idempotency.Prepare(ctx, s.DB, key, func() error { return s.priceUpload(ctx, &j, file) })
	if err != nil || answer != "" {
		return answer, err
	}
	if err := s.Store.Put(ctx, j.source(), file.Path, objectstore.ContentType(j.source())); err != nil {
		return "", fmt.Errorf("store source: %w", err)
	}
	return s.enqueue(ctx, key, j)
}

// newJob is a job that is not in the queue yet.
type newJob struct {
	id, owner, language string
	fileName            string // as the client called it, its asset key, or ""
	sizeBytes           int64  // of the source
	audio               price.Sound
	// A job by reference has no source of its own: its worker cuts it out of the asset.
	reference *Reference
	cut       string
	used      []asset.Found
}

func (j newJob) source() string { return sourceKey(j.id, j.audio.Ext) }

func (j newJob) price() int64 { return credit.Price(j.audio.DurationMs) }

// maxFileName is the number of characters kept of an upload's name.
const maxFileName = 255

// fileName is the name of an upload as its status shows it, without the folders that some clients send.
func fileName(name string) string {
	return db.Clean(name[strings.LastIndexAny(name, `/\`)+1:], maxFileName)
}

// priceUpload completes the job with the length and the size of an upload, if the owner can pay for it.
func (s *Service) priceUpload(ctx context.Context, j *newJob, file staging.File) error {
	have, err := credit.Balance(ctx, s.DB, j.owner)
	if err != nil {
		return err
	}
	j.sizeBytes = file.SizeBytes
	if j.audio, err = s.meter.Measure(ctx, j.owner, have, file); err != nil {
		return err
	}
	return s.affordable(ctx, j.owner, j.price())
}

// affordable refuses a job before its source is stored if the charge would refuse it later.
func (s *Service) affordable(ctx context.Context, owner string, cost int64) error {
	have, err := credit.Balance(ctx, s.DB, owner)
	if err != nil {
		return err
	}
	if have >= cost {
		return nil
	}
	// Report the deleted account rather than its missing balance.
	if err := user.Check(ctx, s.DB, owner); err != nil {
		return err
	}
	return credit.Insufficient(cost, have)
}

// enqueue charges the owner of a job and puts it into the queue, unless the idempotency key has an answer.
func (s *Service) enqueue(ctx context.Context, key idempotency.Key, j newJob) (jobID string, err error) {
	answer, unused, err := s.jobs.Enqueue(ctx, key, s.job(j))
	if unused && j.cut == "" {
		s.dropSource(context.WithoutCancel(ctx), j.source())
	}
	return answer, err
}

// job returns the job with its price.
func (s *Service) job(j newJob) job.New {
	n := job.New{ID: j.id, UserID: j.owner, State: StateQueued, SourceDurationMs: j.audio.DurationMs, StoredBytes: j.sizeBytes,
		Reserve: func(ctx context.Context, tx *db.Tx) error { return s.reserve(ctx, tx, j) },
		Details: map[string]any{"source_key": j.source(), "source_name": j.id + "." + j.audio.Ext, "source_size_bytes": j.sizeBytes,
			"language": j.language, "credits": j.price()}}
	if j.fileName != "" {
		n.Details["file_name"] = j.fileName
	}
	if j.reference != nil {
		n.Details["reference"] = j.reference.sound()
	}
	if j.cut != "" {
		n.Details["cut"] = j.cut
		n.Holds = []string{j.reference.Source.String()}
	}
	return n
}

// reserve charges the owner of a job and keeps its asset from the sweep until the job holds it.
func (s *Service) reserve(ctx context.Context, tx *db.Tx, j newJob) error {
	if j.reference != nil && !j.reference.Again {
		if id, err := s.sameSound(ctx, tx, j.owner, *j.reference); err != nil {
			return err
		} else if id != "" {
			return errChanged
		}
	}
	if err := asset.Hold(ctx, tx, j.owner, j.used...); err != nil {
		return err
	}
	return credit.Charge(ctx, tx, j.owner, j.id, j.price())
}

// dropSource removes an upload that no job needs. If it fails, the sweep of orphaned uploads removes it.
func (s *Service) dropSource(ctx context.Context, key string) {
	if err := s.Store.Delete(ctx, key); err != nil {
		s.Log.Warn("source not deleted; the sweep will", "key", key, "err", err)
	}
}
