-- What an app asks for beside a job's state: how its result is made, why it
-- failed in a word to branch on, whether its owner has deleted it, and small
-- pictures of what came out.

-- +goose Up

-- error_code is one of the closed list of the API. A job with deleted_at is
-- unknown to its owner; the row stays for the totals.
ALTER TABLE render_jobs ADD COLUMN error_code TEXT;
ALTER TABLE render_jobs ADD COLUMN deleted_at BIGINT;
-- null of jobs from before: then it stands in spec.
ALTER TABLE render_jobs ADD COLUMN quality TEXT;
ALTER TABLE render_jobs ADD COLUMN output_duration_ms BIGINT;
ALTER TABLE render_jobs ADD COLUMN poster_key TEXT;

ALTER TABLE separation_jobs ADD COLUMN error_code TEXT;
-- As the client called what it uploaded; null of jobs from before.
ALTER TABLE separation_jobs ADD COLUMN file_name TEXT;
ALTER TABLE separation_jobs ADD COLUMN deleted_at BIGINT;
ALTER TABLE separation_stems ADD COLUMN peaks_key TEXT;

-- A user's history of credits, newest first.
CREATE INDEX credit_ledger_history ON credit_ledger (user_id, created_at, ref_id);

-- +goose Down
DROP INDEX credit_ledger_history;
ALTER TABLE separation_stems DROP COLUMN peaks_key;
ALTER TABLE separation_jobs DROP COLUMN deleted_at;
ALTER TABLE separation_jobs DROP COLUMN file_name;
ALTER TABLE separation_jobs DROP COLUMN error_code;
ALTER TABLE render_jobs DROP COLUMN poster_key;
ALTER TABLE render_jobs DROP COLUMN output_duration_ms;
ALTER TABLE render_jobs DROP COLUMN quality;
ALTER TABLE render_jobs DROP COLUMN deleted_at;
ALTER TABLE render_jobs DROP COLUMN error_code;
