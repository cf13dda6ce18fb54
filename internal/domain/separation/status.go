// What the owner sees of a job: its status with signed links, the history, and the stems themselves.

package separation

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"cutroom/internal/base/clock"
	"cutroom/internal/base/cursor"
	"cutroom/internal/base/db"
	"cutroom/internal/base/fault"
	"cutroom/internal/storage/objectstore"
	"cutroom/internal/work/job"
)

// Stem is one result of a READY job.
type Stem struct {
	ID, Label, URL string
	DurationMs     int64
}

// Status is what the owner sees of a job.
type Status struct {
	JobID, State string
	Progress     int    // percent, never falling, 100 only when READY
	Error        string // a sentence, only when FAILED
	Stems        []Stem // only when READY: voice, speakers ascending, background
	// ActualDurationMs is measured on the first voice stem; 0 before READY.
	ActualDurationMs int64
	// QueuePosition is 1-based over the whole queue and EstimatedWait is from recent history; both are 0 unless QUEUED.
	QueuePosition int64
	EstimatedWait time.Duration
	// LinkAge changes every half lifetime of a link. While it is the same, the links of earlier answers have at least
	// half their lifetime left.
	LinkAge int64

	ErrorCode  string // why it FAILED, from the API's closed list, or ""
	FileName   string // the client's name of the upload
	DurationMs int64  // of the source, as it was priced
	Credits    int64  // the price
	Refunded   bool
	// Each is zero until it has happened. Expires is when the stems are, or were, removed.
	Created, Finished, Expires time.Time
}

// statusColumns of job j and its details d are what scanStatus reads.
const statusColumns = `j.id, j.state, j.progress, COALESCE(j.error, ''), COALESCE(j.error_code, ''), COALESCE(d.actual_duration_ms, 0),
	COALESCE(d.file_name, d.source_name), j.source_duration_ms, d.credits, j.created_at,
	COALESCE(j.finished_at, 0), COALESCE(d.collected_at, 0)`

// scanStatus reads statusColumns, and the columns after them into more.
func (s *Service) scanStatus(row db.Scanner, more ...any) (Status, error) {
	var st Status
	var created, finished, collected int64
	err := row.Scan(append([]any{&st.JobID, &st.State, &st.Progress, &st.Error, &st.ErrorCode, &st.ActualDurationMs,
		&st.FileName, &st.DurationMs, &st.Credits, &created, &finished, &collected}, more...)...)
	if err != nil {
		return Status{}, err
	}
	// A job fails and is refunded in one transaction.
	st.Refunded = st.State == StateFailed
	st.Created, st.Finished = time.UnixMilli(created), db.Time(finished)
	if st.State == StateReady || st.State == StateDisposed {
		st.Expires = time.UnixMilli(max(finished, collected)).Add(s.AbandonAfter)
	}
	st.LinkAge = clock.Now().UnixMilli() / (s.URLLifetime / 2).Milliseconds()
	return st, nil
}

// statusQuery reads a job and its stems, as "id milliseconds id milliseconds", in one row: a row for each stem would
// repeat the job's columns.
var statusQuery = `SELECT ` + statusColumns + `, COALESCE(CASE WHEN j.state = 'READY' THEN
	(SELECT string_agg(t.stem_id || ' ' || t.duration_ms, ' ' ORDER BY t.ordinal) FROM separation_stems t WHERE t.job_id = j.id) END, '')
	FROM ` + rows + ` WHERE j.id = $2 AND ` + job.Known

// Status describes a job to its owner. For anybody else the job is unknown.
func (s *Service) Status(ctx context.Context, owner, jobID string) (Status, error) {
	var stems string
	out, err := s.scanStatus(s.DB.QueryRow(ctx, statusQuery, owner, jobID), &stems)
	if db.IsNoRows(err) {
		return Status{}, errUnknownJob
	}
	if err == nil && out.State == StateQueued {
		err = s.place(ctx, &out)
	}
	if err != nil {
		return Status{}, fmt.Errorf("read separation status: %w", err)
	}
	for pair := range slices.Chunk(strings.Fields(stems), 2) {
		ms, err := strconv.ParseInt(pair[len(pair)-1], 10, 64)
		if err != nil {
			return Status{}, fmt.Errorf("read stems: %w", err)
		}
		out.Stems = append(out.Stems, Stem{ID: pair[0], Label: label(pair[0]), URL: s.stemURL(jobID, pair[0]), DurationMs: ms})
	}
	return out, nil
}

// placeQuery counts the queued jobs up to one job, and averages how long a job takes: three minutes if none has
// finished. Keep it out of statusQuery: most polled jobs are not queued, and it would make each poll 50 % more
// expensive.
const placeQuery = `SELECT COUNT(*), COALESCE((SELECT AVG(h.took) FROM (SELECT j.finished_at - d.submitting_at AS took
		FROM ` + rows + ` WHERE j.kind = 'separation' AND j.finished_at IS NOT NULL AND j.state IN ('READY', 'DISPOSED')
			AND d.submitting_at IS NOT NULL ORDER BY j.finished_at DESC LIMIT 50) h), 180000)
	FROM jobs j WHERE ` + queued + `
		AND (j.created_at < CAST($1 AS BIGINT) OR (j.created_at = CAST($1 AS BIGINT) AND j.id <= $2))`

// place adds the queue position and the estimated wait to the status of a QUEUED job.
func (s *Service) place(ctx context.Context, st *Status) error {
	var position int64
	var meanMs float64
	err := s.DB.QueryRow(ctx, placeQuery, st.Created.UnixMilli(), st.JobID).Scan(&position, &meanMs)
	// The job may have left the queue since its status was read.
	st.QueuePosition = max(1, position)
	seconds := math.Ceil(float64(st.QueuePosition) * meanMs / float64(s.InFlight) / 1000)
	st.EstimatedWait = time.Duration(seconds) * time.Second
	return err
}

// History returns a page of the owner's jobs, newest first and without their stems, and the cursor of the next page, ""
// at the end.
func (s *Service) History(ctx context.Context, owner string, p cursor.Page) (jobs []Status, next string, err error) {
	return job.Page(ctx, s.jobs, statusColumns, owner, p, func(row db.Scanner) (Status, error) { return s.scanStatus(row) },
		func(st Status) cursor.Cursor { return cursor.Cursor{At: st.Created.UnixMilli(), ID: st.JobID} })
}

// storedStem is the row of a READY job's stem.
type storedStem struct {
	jobID, stemID, key string
	owner              string // of the job
	sizeBytes, readyAt int64  // readyAt in epoch ms
	durationMs         int64
	sha256             string
	collected          bool // within the last second
}

// object describes the stem without asking the store.
func (t storedStem) object() objectstore.Info {
	return objectstore.Info{Key: t.key, SizeBytes: t.sizeBytes, ModTime: time.UnixMilli(t.readyAt), ETag: `"` + t.sha256 + `"`}
}

// findStem finds a stem by its signed token.
func (s *Service) findStem(ctx context.Context, jobID, stemID, token string) (storedStem, error) {
	t := storedStem{jobID: jobID, stemID: stemID}
	if err := s.signer.check(jobID, stemID, token, clock.Now()); err != nil {
		return t, err
	}
	err := s.DB.QueryRow(ctx,
		`SELECT t.object_key, t.size_bytes, t.sha256, t.duration_ms, j.user_id, j.finished_at, COALESCE(d.collected_at, 0) > now_ms() - 1000
		FROM `+rows+` JOIN separation_stems t ON t.job_id = j.id
		WHERE t.job_id = $1 AND t.stem_id = $2 AND `+readable, jobID, stemID).
		Scan(&t.key, &t.sizeBytes, &t.sha256, &t.durationMs, &t.owner, &t.readyAt, &t.collected)
	if db.IsNoRows(err) {
		return t, ErrNoStem
	}
	if err != nil {
		return t, fmt.Errorf("look for stem: %w", err)
	}
	return t, nil
}

// ErrNoStem is the error of a stem that does not exist, or no longer does.
var ErrNoStem = fault.NotFoundf("stem not found")

// OpenStem opens a stem by its signed token, for reading until ctx ends. The format is "" for the stem as it is
// stored, or "wav". The job then counts as collected. The caller closes the object and offers it to the client under
// fileName. If the object is missing from a bucket, only the first Read fails.
func (s *Service) OpenStem(ctx context.Context, jobID, stemID, token, format string) (obj objectstore.Object, fileName string, err error) {
	t, err := s.findStem(ctx, jobID, stemID, token)
	if err != nil {
		return nil, "", err
	}
	if format != "" && format != formatWAV {
		return nil, "", errFormat
	}
	if err := s.noteCollection(ctx, t); err != nil {
		return nil, "", err
	}
	ext := path.Ext(t.key)
	if format == formatWAV && ext != ".wav" {
		ext = ".wav"
		obj, err = s.openWAV(ctx, t)
	} else {
		obj, err = s.Store.OpenKnown(ctx, t.object())
	}
	if errors.Is(err, objectstore.ErrNotFound) {
		return nil, "", ErrNoStem.WithCause(err)
	}
	if err != nil {
		return nil, "", fmt.Errorf("open stem: %w", err)
	}
	return obj, stemID + ext, nil
}

// noteCollection makes a job count as collected now, so that its stems stay for as long as a client reads them. One
// write a second is enough.
func (s *Service) noteCollection(ctx context.Context, t storedStem) error {
	if t.collected {
		return nil
	}
	return s.DB.InTx(ctx, func(tx *db.Tx) error {
		ok, err := keepStems(ctx, tx, t.jobID)
		if err != nil {
			return err
		}
		if !ok {
			return ErrNoStem
		}
		if err := s.jobs.Set(ctx, tx, t.jobID, job.SQL(`collected_at = now_ms()`)); err != nil {
			return err
		}
		return job.Announce(ctx, tx, t.jobID)
	})
}
