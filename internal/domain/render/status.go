package render

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path"
	"time"

	"cutroom/internal/base/cursor"
	"cutroom/internal/base/db"
	"cutroom/internal/base/fault"
	"cutroom/internal/storage/objectstore"
	"cutroom/internal/work/job"
)

// Status is what the owner sees of a job.
type Status struct {
	JobID, State        string
	Progress            int    // percent, never falling, 100 only when COMPLETED
	Error               string // a sentence, only when FAILED
	ErrorCode           string // why it FAILED, from the API's closed list, or ""
	OutputKind, Quality string
	DurationMs          int64 // of the film, 0 before it is planned
	SizeBytes           int64 // of the film, 0 before there is one
	// Each is zero until it has happened. Expires is when the film is, or was, removed.
	Created, Finished, Expires time.Time
}

// statusColumns of job j and its details d are what scanStatus reads.
const statusColumns = `j.id, j.state, j.progress, COALESCE(j.error, ''), COALESCE(j.error_code, ''), d.output_kind,
	d.quality, COALESCE(d.output_duration_ms, 0), COALESCE(d.output_size_bytes, 0),
	j.created_at, COALESCE(j.finished_at, 0), COALESCE(d.expires_at, 0)`

func scanStatus(row db.Scanner) (Status, error) {
	var st Status
	var created, finished, expires int64
	err := row.Scan(&st.JobID, &st.State, &st.Progress, &st.Error, &st.ErrorCode, &st.OutputKind, &st.Quality,
		&st.DurationMs, &st.SizeBytes, &created, &finished, &expires)
	if err != nil {
		return Status{}, err
	}
	st.Created, st.Finished, st.Expires = time.UnixMilli(created), db.Time(finished), db.Time(expires)
	return st, nil
}

// Status describes a job to its owner. For anybody else the job is unknown.
func (s *Service) Status(ctx context.Context, owner, jobID string) (Status, error) {
	st, err := scanStatus(s.DB.QueryRow(ctx, statusQuery, owner, jobID))
	if db.IsNoRows(err) {
		return Status{}, errUnknownJob
	}
	if err != nil {
		return Status{}, fmt.Errorf("read render status: %w", err)
	}
	return st, nil
}

var statusQuery = `SELECT ` + statusColumns + ` FROM jobs j JOIN renders d ON d.job_id = j.id WHERE j.id = $2 AND ` + job.Known

// History returns a page of the owner's jobs, newest first, and the cursor of the next page, "" at the end.
func (s *Service) History(ctx context.Context, owner string, p cursor.Page) (jobs []Status, next string, err error) {
	return job.Page(ctx, s.jobs, statusColumns, owner, p, scanStatus,
		func(st Status) cursor.Cursor { return cursor.Cursor{At: st.Created.UnixMilli(), ID: st.JobID} })
}

// Download is a finished film: either a URL to redirect to, or an object to stream, which the caller closes.
type Download struct {
	RedirectURL string
	Object      objectstore.Object
	FileName    string
	ETag        string // hex digest of the content
}

// findFilm finds the owner's film, unless it has expired.
func (s *Service) findFilm(ctx context.Context, owner, jobID string) (stored, error) {
	var f stored
	var state string
	var alive sql.NullBool
	err := s.DB.QueryRow(ctx, `SELECT j.state, d.output_kind, COALESCE(d.output_key, ''), COALESCE(d.output_size_bytes, 0),
		COALESCE(d.output_sha256, ''), d.expires_at > now_ms() FROM jobs j JOIN renders d ON d.job_id = j.id
		WHERE j.id = $2 AND `+job.Known, owner, jobID).
		Scan(&state, &f.kind, &f.key, &f.size, &f.sha256, &alive)
	switch {
	case db.IsNoRows(err):
		return f, errUnknownJob
	case err != nil:
		return f, fmt.Errorf("look for output: %w", err)
	case state != StateCompleted:
		return f, fault.NotFoundf("the render is not completed")
	case f.key == "" || !alive.Bool:
		return f, errExpired
	}
	return f, nil
}

// Open gives the owner the film of a COMPLETED job and renews its lifetime. A URL to redirect to works for HEAD
// requests if head is set, and for GET otherwise.
func (s *Service) Open(ctx context.Context, owner, jobID string, head bool) (Download, error) {
	f, err := s.findFilm(ctx, owner, jobID)
	if err != nil {
		return Download{}, err
	}
	_, err = s.DB.ExecNotify(ctx, job.Topic(jobID), `UPDATE renders SET expires_at = now_ms() + $1
		WHERE job_id = $2 AND output_key IS NOT NULL AND expires_at < now_ms() + $1 - 1000`, s.OutputLifetime.Milliseconds(), jobID)
	if err != nil {
		return Download{}, fmt.Errorf("renew output: %w", err)
	}
	out := Download{FileName: jobID + path.Ext(f.key), ETag: f.sha256}
	if s.Bucket != nil {
		out.RedirectURL, err = s.Bucket.PresignGet(ctx, f.key, s.SignedURLLife, out.FileName, objectstore.ContentType(f.key), head)
		if err != nil {
			return Download{}, fmt.Errorf("presign output: %w", err)
		}
		return out, nil
	}
	out.Object, err = s.Store.Open(ctx, f.key)
	if errors.Is(err, objectstore.ErrNotFound) {
		return Download{}, errExpired.WithCause(err)
	}
	if err != nil {
		return Download{}, fmt.Errorf("open output: %w", err)
	}
	return out, nil
}

var errExpired = fault.NotFoundf("the rendered file has expired")
