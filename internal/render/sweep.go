package render

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"cutroom/internal/db"
	"cutroom/internal/lease"
	"cutroom/internal/objectstore"
)

// Sweep removes what has outlived its use: expired outputs and inputs, uploads
// whose job has ended or never came, objects without a row, and work folders
// that a crash left behind. It is safe to run on every replica at once.
func (s *Service) Sweep(ctx context.Context) error {
	return errors.Join(s.sweepOutputs(ctx), s.sweepInputs(ctx), s.sweepUploads(ctx), s.sweepOrphans(ctx),
		lease.SweepFolders(ctx, s.db, s.WorkDir, table, "rnd-", assistSuffix))
}

// SweepJobs ends the jobs that no worker will. It is safe to run on every
// replica at once.
func (s *Service) SweepJobs(ctx context.Context) error {
	return s.failAll(ctx, sentenceWorkers, `state = 'PROCESSING' AND lease_until < now_ms() AND attempts >= 3`)
}

// failAll fails the jobs of a condition. What was uploaded for them goes with the
// next sweep of files.
func (s *Service) failAll(ctx context.Context, sentence, where string, args ...any) error {
	var ids []string
	err := s.db.InTx(ctx, func(tx *db.Tx) (err error) {
		ids, err = texts(tx.Query(ctx, `UPDATE render_jobs SET state = 'FAILED', error = $1, finished_at = now_ms(),
			replica = lease_owner, lease_owner = NULL, lease_until = NULL, fence = fence + 1 WHERE `+where+` RETURNING id`, append([]any{sentence}, args...)...))
		for _, id := range ids {
			err = errors.Join(err, releaseSources(ctx, tx, id))
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("give up render jobs: %w", err)
	}
	for _, id := range ids {
		s.log.Warn("render job given up", "job", id, "why", sentence)
	}
	return nil
}

func (s *Service) sweepOutputs(ctx context.Context) error {
	keys, err := s.collectKeys(ctx, `UPDATE render_jobs SET output_key = NULL
		WHERE output_key IS NOT NULL AND expires_at < now_ms() RETURNING id`)
	if err != nil {
		return fmt.Errorf("sweep outputs: %w", err)
	}
	for _, id := range keys {
		if err := s.deletePrefix(ctx, "render/"+id+"/"); err != nil {
			return fmt.Errorf("sweep outputs: %w", err)
		}
	}
	return nil
}

func (s *Service) sweepInputs(ctx context.Context) error {
	keys, err := s.collectKeys(ctx, `DELETE FROM render_inputs WHERE last_used_at < now_ms() - $1
		AND NOT EXISTS (SELECT 1 FROM render_sources rs WHERE rs.object_key = render_inputs.object_key)
		RETURNING object_key`, s.InputLifetime.Milliseconds())
	if err != nil {
		return fmt.Errorf("sweep inputs: %w", err)
	}
	if err := s.Store.Delete(ctx, keys...); err != nil {
		return fmt.Errorf("sweep inputs: %w", err)
	}
	return nil
}

// collectKeys runs a writing statement that returns one text column.
func (s *Service) collectKeys(ctx context.Context, query string, args ...any) ([]string, error) {
	var out []string
	err := s.db.InTx(ctx, func(tx *db.Tx) (err error) {
		out, err = texts(tx.Query(ctx, query, args...))
		return err
	})
	return out, err
}

// texts reads the only column of rows.
func texts(rows *sql.Rows, err error) ([]string, error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []string
	for rows.Next() {
		var v string
		if err := rows.Scan(&v); err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, rows.Err()
}

// sweepUploads removes uploads by the state of their job. Uploads without a job
// wait for UploadLifetime, because the job may be about to be inserted.
func (s *Service) sweepUploads(ctx context.Context) error {
	needed := map[string]ownership{}
	err := s.Store.List(ctx, "uploads/", func(o objectstore.Info) error {
		id, _, _ := strings.Cut(strings.TrimPrefix(o.Key, "uploads/"), "/")
		state, seen := needed[id]
		if !seen {
			var err error
			if state, err = s.uploadState(ctx, id); err != nil {
				return err
			}
			needed[id] = state
		}
		if state == owned || state == ownerUnknown && time.Since(o.ModTime) < s.UploadLifetime {
			return nil
		}
		return s.Store.Delete(ctx, o.Key)
	})
	if err != nil {
		return fmt.Errorf("sweep uploads: %w", err)
	}
	return nil
}

func (s *Service) uploadState(ctx context.Context, jobID string) (ownership, error) {
	return s.ownership(ctx, `SELECT CASE WHEN state IN ('PENDING', 'PROCESSING') THEN 1 ELSE 0 END FROM render_jobs WHERE id = $1
		UNION ALL SELECT CASE WHEN state IN ('QUEUED', 'SUBMITTING', 'PROCESSING') THEN 1 ELSE 0 END FROM separation_jobs WHERE id = $1`,
		jobID)
}

// sweepOrphans removes outputs, inputs and parts that no row speaks for.
func (s *Service) sweepOrphans(ctx context.Context) error {
	owners := map[string]string{
		"render/": `SELECT CASE WHEN state = 'PROCESSING' OR output_key IS NOT NULL THEN 1 ELSE 0 END FROM render_jobs WHERE id = $1`,
		"inputs/": `SELECT CASE WHEN erasing_at IS NULL THEN 1 ELSE 0 END FROM users WHERE id = $1`,
		"parts/":  `SELECT CASE WHEN erasing_at IS NULL THEN 1 ELSE 0 END FROM users WHERE id = $1`,
	}
	for prefix, query := range owners {
		owners := map[string]ownership{}
		err := s.Store.List(ctx, prefix, func(o objectstore.Info) error {
			id, _, _ := strings.Cut(strings.TrimPrefix(o.Key, prefix), "/")
			owner, seen := owners[id]
			if !seen {
				var err error
				if owner, err = s.ownership(ctx, query, id); err != nil {
					return err
				}
				owners[id] = owner
			}
			age := time.Since(o.ModTime)
			switch {
			case owner == ownedNoMore, owner == ownerUnknown && age > lease.OrphanAge, prefix == "parts/" && age > s.PartLifetime:
				return s.Store.Delete(ctx, o.Key)
			case owner == owned:
				return s.sweepInputObject(ctx, prefix, o)
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("sweep %s: %w", prefix, err)
		}
	}
	return nil
}

// ownership is what the database knows of whom an object belongs to.
type ownership int

const (
	ownerUnknown ownership = iota
	owned
	ownedNoMore
)

// ownership runs a query for an id that gives 1 for an owner who still needs the
// object, and 0 for one who does not.
func (s *Service) ownership(ctx context.Context, query, id string) (ownership, error) {
	var needed int
	err := s.db.QueryRow(ctx, query, id).Scan(&needed)
	switch {
	case isNoRows(err):
		return ownerUnknown, nil
	case err != nil:
		return ownerUnknown, err
	case needed == 1:
		return owned, nil
	}
	return ownedNoMore, nil
}

// sweepInputObject removes an input of a living user that has no row: its
// upload was interrupted, or the entry went and the object stayed.
func (s *Service) sweepInputObject(ctx context.Context, prefix string, o objectstore.Info) error {
	if prefix != "inputs/" || time.Since(o.ModTime) < lease.OrphanAge {
		return nil
	}
	var one int
	err := s.db.QueryRow(ctx, `SELECT 1 FROM render_inputs WHERE object_key = $1
		UNION ALL SELECT 1 FROM render_sources WHERE object_key = $1`, o.Key).Scan(&one)
	if isNoRows(err) {
		return s.Store.Delete(ctx, o.Key)
	}
	return err
}

// Erase removes every file of a user's renders and takes running jobs away from
// their workers. The rows go with the user.
func (s *Service) Erase(ctx context.Context, userID string) error {
	if _, err := s.db.Exec(ctx, `UPDATE render_jobs SET fence = fence + 1, lease_owner = NULL, lease_until = NULL
		WHERE user_id = $1 AND state IN ('PENDING', 'PROCESSING')`, userID); err != nil {
		return fmt.Errorf("stop render jobs: %w", err)
	}
	ids, err := s.collectKeys(ctx, `SELECT id FROM render_jobs WHERE user_id = $1`, userID)
	if err != nil {
		return fmt.Errorf("list render jobs: %w", err)
	}
	prefixes := []string{"inputs/" + userID + "/", "parts/" + userID + "/"}
	for _, id := range ids {
		prefixes = append(prefixes, "render/"+id+"/", "uploads/"+id+"/")
	}
	for _, p := range prefixes {
		if err := s.deletePrefix(ctx, p); err != nil {
			return fmt.Errorf("erase renders: %w", err)
		}
	}
	return errors.Join(s.EraseCaches(ctx, userID), s.Keeper.Clear(s.WorkDir, table, ids...))
}
