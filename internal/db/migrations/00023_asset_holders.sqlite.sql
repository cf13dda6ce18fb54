-- 00023_asset_holders.postgres.sql for SQLite.

-- +goose Up
INSERT INTO assets (asset_key, size_bytes, content_type)
SELECT asset_key, MAX(size_bytes), '' FROM asset_uploads WHERE true GROUP BY asset_key ON CONFLICT DO NOTHING;
INSERT INTO asset_holders (user_id, asset_key, created_at, last_used_at)
SELECT user_id, asset_key, MIN(created_at), MAX(created_at) FROM asset_uploads WHERE true GROUP BY user_id, asset_key
ON CONFLICT DO NOTHING;

INSERT INTO assets (asset_key, size_bytes, content_type)
SELECT DISTINCT s.key, 0, '' FROM render_jobs j,
    json_each(CASE WHEN j.spec LIKE '{"timeline":%' THEN j.spec ELSE '{"sources":{}}' END, '$.sources') s
WHERE s.key LIKE 'assets/%' AND j.deleted_at IS NULL AND j.created_at > now_ms() - 7776000000 ON CONFLICT DO NOTHING;
INSERT INTO asset_holders (user_id, asset_key, created_at, last_used_at)
SELECT j.user_id, s.key, MIN(j.created_at), MAX(j.created_at) FROM render_jobs j,
    json_each(CASE WHEN j.spec LIKE '{"timeline":%' THEN j.spec ELSE '{"sources":{}}' END, '$.sources') s
WHERE s.key LIKE 'assets/%' AND j.deleted_at IS NULL AND j.created_at > now_ms() - 7776000000 GROUP BY j.user_id, s.key
ON CONFLICT (user_id, asset_key) DO UPDATE SET
    created_at = min(asset_holders.created_at, excluded.created_at),
    last_used_at = max(asset_holders.last_used_at, excluded.last_used_at);

-- +goose Down
DELETE FROM asset_holders;
DELETE FROM assets;
