package job

import (
	"context"
	"fmt"

	"cutroom/internal/base/db"
)

// Hold keeps objects that a job is going to read from every sweep until [Release]. It runs in the transaction that puts
// the job into the queue. An object may belong to another job, such as the stems of a separation, so the holds are kept
// here, where all sweeps find them.
func Hold(ctx context.Context, tx *db.Tx, jobID string, objectKeys ...string) error {
	for _, key := range objectKeys {
		if _, err := tx.Exec(ctx, `INSERT INTO held_objects (job_id, object_key) VALUES ($1, $2)
			ON CONFLICT (job_id, object_key) DO NOTHING`, jobID, key); err != nil {
			return fmt.Errorf("hold object: %w", err)
		}
	}
	return nil
}

// Release ends the holds of a job, in the transaction that ends it. Deleting the job's row deletes its holds as well.
func Release(ctx context.Context, tx *db.Tx, jobID string) error {
	if _, err := tx.Exec(ctx, `DELETE FROM held_objects WHERE job_id = $1`, jobID); err != nil {
		return fmt.Errorf("release objects: %w", err)
	}
	return nil
}

// Held is the SQL condition that a job holds an object. Key is a column or a parameter.
func Held(key string) string {
	return `EXISTS (SELECT 1 FROM held_objects h WHERE h.object_key = ` + key + `)`
}
