-- All times are epoch milliseconds, taken from now_ms(), the database's clock.
-- One text serves PostgreSQL and SQLite.

-- +goose Up
CREATE TABLE users (
    id              TEXT PRIMARY KEY,
    provider        TEXT NOT NULL,
    provider_sub    TEXT NOT NULL,
    email           TEXT NOT NULL DEFAULT '',
    name            TEXT NOT NULL DEFAULT '',
    picture         TEXT,
    role            TEXT NOT NULL DEFAULT 'user' CHECK (role IN ('user', 'admin')),
    created_at      BIGINT NOT NULL,
    last_active_at  BIGINT NOT NULL,
    -- Set when deletion begins. From then on the account does not exist for
    -- anybody; the row goes once its files are erased.
    erasing_at      BIGINT,
    UNIQUE (provider, provider_sub)
);
CREATE INDEX users_by_created ON users (created_at);
CREATE INDEX users_by_activity ON users (last_active_at);
CREATE INDEX users_erasing ON users (erasing_at) WHERE erasing_at IS NOT NULL;

CREATE TABLE credit_balances (
    user_id TEXT PRIMARY KEY REFERENCES users (id) ON DELETE CASCADE,
    balance BIGINT NOT NULL CHECK (balance >= 0)
);

-- The ledger. The sum of a user's amounts is the balance; ref_id is the
-- idempotency key of every change.
CREATE TABLE credit_ledger (
    ref_id      TEXT PRIMARY KEY,
    user_id     TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    kind        TEXT NOT NULL CHECK (kind IN ('signup', 'purchase', 'admin', 'consume', 'refund')),
    amount      BIGINT NOT NULL,
    created_at  BIGINT NOT NULL
);
CREATE INDEX credit_ledger_by_user ON credit_ledger (user_id, kind, created_at);

-- Receipts that were paid out. A row outlives its buyer's account (buyer_id
-- becomes null) and holds only a hash of the transaction, so that deleting an
-- account cannot make a receipt pay twice.
CREATE TABLE purchases (
    platform         TEXT NOT NULL,
    transaction_hash TEXT NOT NULL,
    product_id       TEXT NOT NULL,
    credits          BIGINT NOT NULL,
    buyer_id         TEXT REFERENCES users (id) ON DELETE SET NULL,
    created_at       BIGINT NOT NULL,
    PRIMARY KEY (platform, transaction_hash)
);
CREATE INDEX purchases_by_created ON purchases (created_at);
CREATE INDEX purchases_by_buyer ON purchases (buyer_id);

CREATE TABLE separation_jobs (
    id                 TEXT PRIMARY KEY,
    user_id            TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    state              TEXT NOT NULL CHECK (state IN ('QUEUED', 'SUBMITTING', 'PROCESSING', 'READY', 'FAILED', 'DISPOSED')),
    -- The node whose disk holds the source and the stems; null when they live
    -- in the bucket, where every replica can reach them.
    node_id            TEXT,
    source_key         TEXT NOT NULL,
    source_name        TEXT NOT NULL,
    source_size_bytes  BIGINT NOT NULL,
    source_duration_ms BIGINT NOT NULL,
    language           TEXT NOT NULL,
    credits            BIGINT NOT NULL,
    media_seq          BIGINT,
    project_id         BIGINT,
    progress           INTEGER NOT NULL DEFAULT 0,
    progress_reason    TEXT,
    error              TEXT,
    actual_duration_ms BIGINT,
    attempts           INTEGER NOT NULL DEFAULT 0,
    created_at         BIGINT NOT NULL,
    submitting_at      BIGINT,
    -- Set just before the one call that must not be repeated.
    submit_intent_at   BIGINT,
    processing_at      BIGINT,
    ready_at           BIGINT,
    collected_at       BIGINT,
    finished_at        BIGINT,
    lease_owner        TEXT,
    lease_until        BIGINT,
    fence              BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX separation_queue ON separation_jobs (created_at, id) WHERE state = 'QUEUED';
CREATE INDEX separation_in_flight ON separation_jobs (lease_until) WHERE state IN ('SUBMITTING', 'PROCESSING');
CREATE INDEX separation_ready ON separation_jobs (ready_at) WHERE state = 'READY';
CREATE INDEX separation_by_user ON separation_jobs (user_id, created_at);
CREATE INDEX separation_by_created ON separation_jobs (created_at);
CREATE INDEX separation_history ON separation_jobs (ready_at) WHERE ready_at IS NOT NULL;
CREATE INDEX separation_dequeued ON separation_jobs (submitting_at) WHERE submitting_at IS NOT NULL;

CREATE TABLE separation_stems (
    job_id       TEXT NOT NULL REFERENCES separation_jobs (id) ON DELETE CASCADE,
    stem_id      TEXT NOT NULL,
    ordinal      INTEGER NOT NULL,
    object_key   TEXT NOT NULL,
    content_type TEXT NOT NULL,
    size_bytes   BIGINT NOT NULL,
    duration_ms  BIGINT NOT NULL,
    sha256       TEXT NOT NULL,
    PRIMARY KEY (job_id, stem_id)
);

CREATE TABLE render_jobs (
    id                 TEXT PRIMARY KEY,
    user_id            TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    state              TEXT NOT NULL CHECK (state IN ('PENDING', 'PROCESSING', 'COMPLETED', 'FAILED')),
    node_id            TEXT,
    spec               TEXT NOT NULL,
    output_kind        TEXT NOT NULL,
    source_duration_ms BIGINT NOT NULL DEFAULT 0,
    progress           INTEGER NOT NULL DEFAULT 0,
    error              TEXT,
    output_key         TEXT,
    output_size_bytes  BIGINT,
    output_sha256      TEXT,
    attempts           INTEGER NOT NULL DEFAULT 0,
    created_at         BIGINT NOT NULL,
    started_at         BIGINT,
    finished_at        BIGINT,
    expires_at         BIGINT,
    lease_owner        TEXT,
    lease_until        BIGINT,
    fence              BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX render_queue ON render_jobs (created_at, id) WHERE state = 'PENDING';
CREATE INDEX render_running ON render_jobs (lease_until) WHERE state = 'PROCESSING';
CREATE INDEX render_expiring ON render_jobs (expires_at) WHERE output_key IS NOT NULL;
CREATE INDEX render_by_user ON render_jobs (user_id, created_at);
CREATE INDEX render_by_created ON render_jobs (created_at);

-- What a job that has not ended still reads: these objects must outlive
-- every sweep until then.
CREATE TABLE render_sources (
    job_id     TEXT NOT NULL REFERENCES render_jobs (id) ON DELETE CASCADE,
    object_key TEXT NOT NULL,
    PRIMARY KEY (job_id, object_key)
);
CREATE INDEX render_sources_by_key ON render_sources (object_key);

CREATE TABLE render_inputs (
    user_id      TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    input_id     TEXT NOT NULL,
    sha256       TEXT NOT NULL,
    object_key   TEXT NOT NULL,
    size_bytes   BIGINT NOT NULL,
    last_used_at BIGINT NOT NULL,
    PRIMARY KEY (user_id, input_id)
);
CREATE INDEX render_inputs_by_use ON render_inputs (last_used_at);

CREATE TABLE idempotency_keys (
    user_id     TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    key         TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    answer      TEXT NOT NULL,
    created_at  BIGINT NOT NULL,
    PRIMARY KEY (user_id, key)
);
CREATE INDEX idempotency_by_created ON idempotency_keys (created_at);

CREATE TABLE rate_limits (
    bucket       TEXT PRIMARY KEY,
    window_start BIGINT NOT NULL,
    hits         BIGINT NOT NULL
);
CREATE INDEX rate_limits_by_start ON rate_limits (window_start);

CREATE TABLE provider_calls (
    id         TEXT PRIMARY KEY,
    provider   TEXT NOT NULL,
    endpoint   TEXT NOT NULL,
    success    INTEGER NOT NULL,
    status     INTEGER NOT NULL,
    latency_ms BIGINT NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE INDEX provider_calls_by_created ON provider_calls (created_at);

-- Machines that hold files of their own, alive while seen_at is recent.
CREATE TABLE nodes (
    id      TEXT PRIMARY KEY,
    seen_at BIGINT NOT NULL
);

-- +goose Down
DROP TABLE nodes;
DROP TABLE provider_calls;
DROP TABLE rate_limits;
DROP TABLE idempotency_keys;
DROP TABLE render_inputs;
DROP TABLE render_sources;
DROP TABLE render_jobs;
DROP TABLE separation_stems;
DROP TABLE separation_jobs;
DROP TABLE purchases;
DROP TABLE credit_ledger;
DROP TABLE credit_balances;
DROP TABLE users;
