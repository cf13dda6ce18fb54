package separation

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"path"
	"time"

	"cutroom/internal/db"
	"cutroom/internal/fault"
	"cutroom/internal/objectstore"
	"cutroom/internal/user"
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
	// QueuePosition is 1-based over the whole queue and EstimatedWait is
	// from recent history; both are 0 unless QUEUED.
	QueuePosition int64
	EstimatedWait time.Duration
}

const (
	// noHistory is what a job takes while there is nothing to average.
	noHistory = 180 * time.Second
)

// statusQuery reads job, stems, queue position and history in one round trip.
var statusQuery = `SELECT j.state, j.progress, j.error, j.actual_duration_ms,
	CASE WHEN j.state = 'QUEUED' THEN (SELECT COUNT(*) FROM separation_jobs q WHERE q.state = 'QUEUED'
		AND (q.created_at < j.created_at OR (q.created_at = j.created_at AND q.id <= j.id))) END,
	CASE WHEN j.state = 'QUEUED' THEN (SELECT AVG(h.took) FROM (SELECT ready_at - submitting_at AS took
		FROM separation_jobs WHERE ready_at IS NOT NULL AND submitting_at IS NOT NULL ORDER BY ready_at DESC LIMIT 50) h) END,
	t.stem_id, t.duration_ms
	FROM separation_jobs j LEFT JOIN separation_stems t ON t.job_id = j.id AND j.state = 'READY'
	WHERE j.id = $1 AND j.user_id = $2 AND ` + user.Exists("j.user_id") + ` ORDER BY t.ordinal`

// Status describes a job to its owner. For anybody else the job is unknown.
func (s *Service) Status(ctx context.Context, owner, jobID string) (Status, error) {
	rows, err := s.db.Query(ctx, statusQuery, jobID, owner)
	if err != nil {
		return Status{}, fmt.Errorf("read separation status: %w", err)
	}
	defer rows.Close()
	out := Status{JobID: jobID}
	for rows.Next() {
		var sentence, stemID sql.NullString
		var actual, position, stemMs sql.NullInt64
		var took sql.NullFloat64
		err := rows.Scan(&out.State, &out.Progress, &sentence, &actual, &position, &took, &stemID, &stemMs)
		if err != nil {
			return Status{}, fmt.Errorf("read separation status: %w", err)
		}
		out.Error, out.ActualDurationMs, out.QueuePosition = sentence.String, actual.Int64, position.Int64
		if position.Valid {
			out.EstimatedWait = estimate(position.Int64, took, s.InFlight)
		}
		if stemID.Valid {
			out.Stems = append(out.Stems, Stem{ID: stemID.String, Label: Label(stemID.String),
				URL: s.stemURL(jobID, stemID.String), DurationMs: stemMs.Int64})
		}
	}
	if err := rows.Err(); err != nil {
		return Status{}, fmt.Errorf("read separation status: %w", err)
	}
	if out.State == "" {
		return Status{}, errUnknownJob
	}
	return out, nil
}

// estimate is position x mean of the recent processing times / jobs at a time.
func estimate(position int64, meanMs sql.NullFloat64, inFlight int) time.Duration {
	per := float64(noHistory.Milliseconds())
	if meanMs.Valid {
		per = meanMs.Float64
	}
	seconds := math.Ceil(float64(position) * per / float64(inFlight) / 1000)
	return time.Duration(seconds) * time.Second
}

// OpenStem opens a stem by its signed token, for reading until ctx ends, and
// counts as collecting the result. The caller closes the object. The file name
// is the one to offer to the client.
func (s *Service) OpenStem(ctx context.Context, jobID, stemID, token string) (obj objectstore.Object, fileName string, err error) {
	if err := s.signer.check(jobID, stemID, token, time.Now()); err != nil {
		return nil, "", err
	}
	var key string
	err = s.db.QueryRow(ctx, `SELECT t.object_key FROM separation_stems t JOIN separation_jobs j ON j.id = t.job_id
		WHERE t.job_id = $1 AND t.stem_id = $2 AND j.state = 'READY' AND `+user.Exists("j.user_id"), jobID, stemID).Scan(&key)
	if db.IsNoRows(err) {
		return nil, "", fault.NotFoundf("stem not found")
	}
	if err != nil {
		return nil, "", fmt.Errorf("look for stem: %w", err)
	}
	if _, err := s.db.Exec(ctx, `UPDATE separation_jobs SET collected_at = now_ms()
		WHERE id = $1 AND COALESCE(collected_at, 0) < now_ms() - 1000`, jobID); err != nil {
		return nil, "", fmt.Errorf("note collection: %w", err)
	}
	obj, err = s.Store.Open(ctx, key)
	if errors.Is(err, objectstore.ErrNotFound) {
		return nil, "", fault.NotFoundf("stem not found").WithCause(err)
	}
	if err != nil {
		return nil, "", fmt.Errorf("open stem: %w", err)
	}
	return obj, stemID + path.Ext(key), nil
}
