-- The hashes of bonus_identities are now made with SIGNUP_BONUS_KEY. Those made
-- with the former key, sealed in sealed_keys, would match nobody. sealed_keys
-- stays for replicas of the release before and goes with the next one.

-- +goose Up
DELETE FROM bonus_identities;

-- +goose Down
SELECT 1;
