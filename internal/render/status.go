package render

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path"

	"cutroom/internal/db"
	"cutroom/internal/fault"
	"cutroom/internal/objectstore"
	"cutroom/internal/user"
)

// Status is what the owner sees of a job.
type Status struct {
	JobID, State string
	Progress     int    // percent, never falling, 100 only when COMPLETED
	Error        string // a sentence, only when FAILED
}

// Status describes a job to its owner. For anybody else the job is unknown.
func (s *Service) Status(ctx context.Context, owner, jobID string) (Status, error) {
	out := Status{JobID: jobID}
	var sentence sql.NullString
	err := s.db.QueryRow(ctx, `SELECT j.state, j.progress, j.error FROM render_jobs j
		WHERE j.id = $1 AND j.user_id = $2 AND `+user.Exists("j.user_id"), jobID, owner).
		Scan(&out.State, &out.Progress, &sentence)
	if db.IsNoRows(err) {
		return Status{}, errUnknownJob
	}
	if err != nil {
		return Status{}, fmt.Errorf("read render status: %w", err)
	}
	out.Error = sentence.String
	return out, nil
}

// Download is a finished film: either a URL to redirect to, or an object to
// stream, which the caller closes.
type Download struct {
	RedirectURL string
	Object      objectstore.Object
	FileName    string
	ETag        string // hex digest of the content
}

// Open gives the owner the film of a COMPLETED job, and renews its life. A URL to
// redirect to is good for HEAD requests when head is set, and for GET otherwise.
func (s *Service) Open(ctx context.Context, owner, jobID string, head bool) (Download, error) {
	var state string
	var key, sum sql.NullString
	var alive sql.NullBool
	err := s.db.QueryRow(ctx, `SELECT j.state, j.output_key, j.output_sha256, j.expires_at > now_ms() FROM render_jobs j
		WHERE j.id = $1 AND j.user_id = $2 AND `+user.Exists("j.user_id"), jobID, owner).
		Scan(&state, &key, &sum, &alive)
	switch {
	case db.IsNoRows(err):
		return Download{}, errUnknownJob
	case err != nil:
		return Download{}, fmt.Errorf("look for output: %w", err)
	case state != StateCompleted:
		return Download{}, fault.NotFoundf("the render is not completed")
	case !key.Valid || !alive.Bool:
		return Download{}, errExpired
	}
	if _, err := s.db.Exec(ctx, `UPDATE render_jobs SET expires_at = now_ms() + $1
		WHERE id = $2 AND output_key IS NOT NULL AND expires_at < now_ms() + $1 - 1000`, s.OutputLifetime.Milliseconds(), jobID); err != nil {
		return Download{}, fmt.Errorf("renew output: %w", err)
	}
	out := Download{FileName: jobID + path.Ext(key.String), ETag: sum.String}
	if s.Bucket != nil {
		presign := s.Bucket.PresignGet
		if head {
			presign = s.Bucket.PresignHead
		}
		out.RedirectURL, err = presign(ctx, key.String, s.SignedURLLife, out.FileName, objectstore.ContentType(key.String))
		if err != nil {
			return Download{}, fmt.Errorf("presign output: %w", err)
		}
		return out, nil
	}
	out.Object, err = s.Store.Open(ctx, key.String)
	if errors.Is(err, objectstore.ErrNotFound) {
		return Download{}, errExpired.WithCause(err)
	}
	if err != nil {
		return Download{}, fmt.Errorf("open output: %w", err)
	}
	return out, nil
}

var errExpired = fault.NotFoundf("the rendered file has expired")
