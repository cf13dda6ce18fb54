package job

import (
	"context"
	"fmt"

	"cutroom/internal/db"
)

// Hold keeps objects that a render job is going to read, whoever's they are, from
// every sweep until [Release], inside the transaction that makes the job. What the
// job reads may belong to other jobs, such as the stems of a separation, so the
// holds are kept here, where all sweeps can ask for them.
func Hold(ctx context.Context, tx *db.Tx, jobID, objectKey string) error {
	if _, err := tx.Exec(ctx, `INSERT INTO render_sources (job_id, object_key) VALUES ($1, $2)
		ON CONFLICT (job_id, object_key) DO NOTHING`, jobID, objectKey); err != nil {
		return fmt.Errorf("hold object: %w", err)
	}
	return nil
}

// Release ends the holds of a job, inside the transaction that ends it. A job's
// holds go with its row, too.
func Release(ctx context.Context, tx *db.Tx, jobID string) error {
	if _, err := tx.Exec(ctx, `DELETE FROM render_sources WHERE job_id = $1`, jobID); err != nil {
		return fmt.Errorf("release objects: %w", err)
	}
	return nil
}

// Held is the SQL condition that a job holds the object whose key a column of the
// query, or a parameter, is.
func Held(key string) string {
	return `EXISTS (SELECT 1 FROM render_sources h WHERE h.object_key = ` + key + `)`
}

// NodeSeen is the SQL condition that the disk which a column of the query names
// was there within so many milliseconds, a parameter.
func NodeSeen(column, ms string) string {
	return `EXISTS (SELECT 1 FROM nodes n WHERE n.id = ` + column + ` AND n.seen_at > now_ms() - ` + ms + `)`
}
