-- What one account has waiting and stored is counted at each submit.

-- +goose Up
ALTER TABLE render_jobs ADD COLUMN upload_bytes BIGINT NOT NULL DEFAULT 0; -- uploaded for this job alone
CREATE INDEX render_outputs_by_user ON render_jobs (user_id, output_size_bytes) WHERE output_key IS NOT NULL;
CREATE INDEX separation_kept_by_user ON separation_jobs (user_id, state, source_size_bytes)
    WHERE state IN ('QUEUED', 'SUBMITTING', 'PROCESSING', 'READY');

-- +goose Down
DROP INDEX separation_kept_by_user;
DROP INDEX render_outputs_by_user;
ALTER TABLE render_jobs DROP COLUMN upload_bytes;
