-- +goose Up
ALTER TABLE separation_stems ADD COLUMN wav_key TEXT;

-- +goose Down
ALTER TABLE separation_stems DROP COLUMN wav_key;
