-- The schema, table by table, for PostgreSQL and SQLite alike. Each comment names the package that owns
-- the table, then what a row is. Times are epoch milliseconds of the database's clock, now_ms().

-- +goose Up

-- user: an account.
CREATE TABLE users (
    id             TEXT PRIMARY KEY,
    provider       TEXT NOT NULL,
    provider_sub   TEXT NOT NULL,
    email          TEXT NOT NULL DEFAULT '',
    name           TEXT NOT NULL DEFAULT '',
    picture        TEXT,
    role           TEXT NOT NULL DEFAULT 'user' CHECK (role IN ('user', 'admin')),
    created_at     BIGINT NOT NULL,
    last_active_at BIGINT NOT NULL,
    signed_out_at  BIGINT, -- access tokens issued before this time are invalid
    erasing_at     BIGINT, -- when deletion began: the account is unknown from then on, and its row goes after its files
    UNIQUE (provider, provider_sub)
);
CREATE INDEX users_by_created ON users (created_at);
CREATE INDEX users_listed ON users (last_active_at DESC, id) WHERE erasing_at IS NULL;
CREATE INDEX users_erasing ON users (erasing_at) WHERE erasing_at IS NOT NULL;
CREATE INDEX users_signed_out ON users (signed_out_at) WHERE signed_out_at IS NOT NULL;

-- credit: a user's balance, which is the sum of the user's ledger entries.
CREATE TABLE credit_balances (
    user_id TEXT PRIMARY KEY REFERENCES users (id) ON DELETE CASCADE,
    balance BIGINT NOT NULL CHECK (balance >= 0)
);

-- credit: a change of a balance. ref_id is the change's idempotency key.
CREATE TABLE credit_ledger (
    ref_id     TEXT PRIMARY KEY,
    user_id    TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    kind       TEXT NOT NULL CHECK (kind IN ('signup', 'purchase', 'admin', 'consume', 'refund', 'support', 'reversal')),
    amount     BIGINT NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE INDEX credit_ledger_by_user ON credit_ledger (user_id, kind, created_at);
CREATE INDEX credit_ledger_history ON credit_ledger (user_id, created_at, ref_id);
CREATE INDEX credit_ledger_minted ON credit_ledger (amount) WHERE kind = 'admin';

-- credit: a receipt that was paid out. A row outlives its buyer's account (buyer_id becomes null) and has only
-- a hash of the transaction, so that deleting an account cannot make a receipt pay twice.
CREATE TABLE purchases (
    platform         TEXT NOT NULL,
    transaction_hash TEXT NOT NULL,
    product_id       TEXT NOT NULL,
    credits          BIGINT NOT NULL,
    buyer_id         TEXT REFERENCES users (id) ON DELETE SET NULL,
    created_at       BIGINT NOT NULL,
    order_id         TEXT CHECK (order_id IS NULL OR buyer_id IS NOT NULL), -- the store's order number, for support
    by_support       INTEGER NOT NULL DEFAULT 0, -- 1: support granted the order's credits; counts in no revenue figure
    test             INTEGER NOT NULL DEFAULT 0, -- 1: nobody paid the store; counts in no revenue figure
    asked_at         BIGINT, -- when the store last confirmed the purchase; 0: ask at once, null: as created_at
    refunded         BIGINT NOT NULL DEFAULT 0 CHECK (refunded BETWEEN 0 AND credits), -- credits of the share that the store has refunded
    taken            BIGINT NOT NULL DEFAULT 0 CHECK (taken >= 0), -- of refunded: taken back from the buyer, or never granted
    owed             BIGINT NOT NULL DEFAULT 0 CHECK (owed >= 0), -- of refunded: credits spent and not settled yet
    reversals        INTEGER NOT NULL DEFAULT 0, -- how many ledger entries of the kind reversal it has
    reversed_at      BIGINT, -- when the store had refunded all of it
    PRIMARY KEY (platform, transaction_hash)
);
CREATE INDEX purchases_by_created ON purchases (created_at);
CREATE INDEX purchases_by_buyer ON purchases (buyer_id);
CREATE INDEX purchases_by_order ON purchases (order_id);
CREATE INDEX purchases_paid ON purchases (buyer_id) WHERE reversed_at IS NULL AND by_support = 0 AND test = 0;
CREATE INDEX purchases_to_ask ON purchases (platform, created_at) WHERE order_id IS NOT NULL;
CREATE INDEX purchases_tested ON purchases (buyer_id, created_at) WHERE test = 1;

-- credit: a store's notification that is not settled: the store has not confirmed it yet, or its purchase is not paid
-- out yet.
CREATE TABLE sale_notices (
    platform   TEXT NOT NULL,
    order_id   TEXT NOT NULL, -- '' if only the purchase token is known
    token      TEXT NOT NULL, -- platform_a's purchase token, or ''
    product_id TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    due_at     BIGINT NOT NULL, -- when to ask the store again
    PRIMARY KEY (platform, order_id, token)
);
CREATE INDEX sale_notices_due ON sale_notices (due_at);

-- credit: an order that a user presented without success; its receipt is not stored.
CREATE TABLE receipt_refusals (
    user_id    TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    platform   TEXT NOT NULL,
    order_id   TEXT NOT NULL,
    product_id TEXT NOT NULL,
    reason     TEXT NOT NULL, -- of the last attempt
    attempts   BIGINT NOT NULL,
    created_at BIGINT NOT NULL, -- the last attempt
    PRIMARY KEY (user_id, platform, order_id, product_id)
);
CREATE INDEX receipt_refusals_by_order ON receipt_refusals (order_id);
CREATE INDEX receipt_refusals_by_user ON receipt_refusals (user_id, created_at);
CREATE INDEX receipt_refusals_by_time ON receipt_refusals (created_at);

-- credit: a person who had the signup bonus in an account that has since been deleted, as a keyed hash of provider and
-- subject.
CREATE TABLE bonus_identities (
    identity_hash TEXT PRIMARY KEY,
    created_at    BIGINT NOT NULL
);

-- job: a job of either kind, with its progress and the lease of the worker that holds it. The columns of its kind are
-- in separations or in renders. Lock this row before you change those columns because of its state.
CREATE TABLE jobs (
    id                 TEXT PRIMARY KEY, -- begins with sep- or rnd-
    kind               TEXT NOT NULL,
    user_id            TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    state              TEXT NOT NULL,
    source_duration_ms BIGINT NOT NULL,
    stored_bytes       BIGINT NOT NULL DEFAULT 0, -- of the job's files, as they count for its owner
    progress           INTEGER NOT NULL DEFAULT 0, -- percent
    error              TEXT, -- a sentence for the owner
    error_code         TEXT, -- of the API's closed list
    failure_cause      TEXT, -- for support
    attempts           INTEGER NOT NULL DEFAULT 0,
    created_at         BIGINT NOT NULL,
    started_at         BIGINT, -- when a worker first claimed it
    asked_at           BIGINT, -- just before the one call to the provider that must not be repeated
    finished_at        BIGINT,
    deleted_at         BIGINT, -- by the owner, to whom the job is unknown from then on
    lease_owner        TEXT,
    lease_until        BIGINT, -- of a waiting job: the end of its pause before a retry
    fence              BIGINT NOT NULL DEFAULT 0,
    replica            TEXT, -- that worked on the job last
    trace_parent       TEXT, -- of the request that submitted the job (W3C traceparent)
    CHECK (kind = 'separation' AND state IN ('QUEUED', 'SUBMITTING', 'PROCESSING', 'READY', 'FAILED', 'DISPOSED')
        OR kind = 'render' AND state IN ('PENDING', 'PROCESSING', 'COMPLETED', 'FAILED'))
);
-- No index has lease_until or progress, because each renewal of a lease would then write to every index of the table.
-- The conditions of the first four are job.Waiting and job.AtWork, word for word: SQLite recognises them by their text.
CREATE INDEX jobs_queue ON jobs (kind, created_at, id) WHERE state IN ('QUEUED', 'PENDING');
CREATE INDEX jobs_waiting_by_user ON jobs (user_id, created_at, id) WHERE state IN ('QUEUED', 'PENDING');
CREATE INDEX jobs_at_work ON jobs (kind, created_at, id) WHERE state IN ('SUBMITTING', 'PROCESSING');
CREATE INDEX jobs_at_work_by_user ON jobs (user_id) WHERE state IN ('SUBMITTING', 'PROCESSING');
CREATE INDEX jobs_ready ON jobs (finished_at) WHERE state = 'READY';
CREATE INDEX jobs_failed ON jobs (finished_at, id) WHERE state = 'FAILED';
CREATE INDEX jobs_by_user ON jobs (user_id, kind, created_at, id);
CREATE INDEX jobs_finished ON jobs (kind, finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX jobs_failed_by_user ON jobs (user_id, kind, finished_at) WHERE state = 'FAILED';
CREATE INDEX jobs_stored ON jobs (user_id, stored_bytes) WHERE stored_bytes > 0;

-- job: an object that a job still reads. Every sweep keeps it.
CREATE TABLE held_objects (
    job_id     TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
    object_key TEXT NOT NULL,
    PRIMARY KEY (job_id, object_key)
);
CREATE INDEX held_objects_by_key ON held_objects (object_key);

-- job: how many of the jobs submitted on a day ended in a state, by the bucket of the histogram of source durations. A
-- job stays counted after its row is deleted.
CREATE TABLE job_days (
    kind               TEXT NOT NULL,
    day                BIGINT NOT NULL, -- since 1970-01-01, in UTC
    state              TEXT NOT NULL,
    bucket             INTEGER NOT NULL,
    jobs               BIGINT NOT NULL,
    source_duration_ms BIGINT NOT NULL, -- the sum
    PRIMARY KEY (kind, day, state, bucket)
);

-- separation: what a separation has in addition to its row in jobs.
CREATE TABLE separations (
    job_id             TEXT PRIMARY KEY REFERENCES jobs (id) ON DELETE CASCADE,
    source_key         TEXT NOT NULL,
    source_name        TEXT NOT NULL,
    file_name          TEXT, -- as the client called the upload
    reference          TEXT, -- the asset, trims and language of a separation by reference
    cut                TEXT, -- how its worker cuts the sound out of the asset, as JSON
    source_size_bytes  BIGINT NOT NULL,
    language           TEXT NOT NULL,
    credits            BIGINT NOT NULL,
    project_id         BIGINT, -- the provider's id of the job
    actual_duration_ms BIGINT, -- of the first voice stem
    submitting_at      BIGINT, -- when it last entered SUBMITTING, or went back to QUEUED
    processing_at      BIGINT,
    provider_done_at   BIGINT, -- the end of the provider's time-out; fetching the stems may take longer
    collected_at       BIGINT, -- the last download of a stem
    busy_since         BIGINT, -- when the provider first refused the job because it was busy
    busy_status        INTEGER
);
CREATE INDEX separations_by_reference ON separations (reference) WHERE reference IS NOT NULL;
CREATE INDEX separations_dequeued ON separations (submitting_at) WHERE submitting_at IS NOT NULL;
CREATE INDEX separations_underpaid ON separations (job_id) WHERE actual_duration_ms > credits * 300000 + 1000;

-- separation: a stem of a READY job, and what was derived from it.
CREATE TABLE separation_stems (
    job_id       TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
    stem_id      TEXT NOT NULL,
    ordinal      INTEGER NOT NULL,
    object_key   TEXT NOT NULL,
    content_type TEXT NOT NULL,
    size_bytes   BIGINT NOT NULL,
    duration_ms  BIGINT NOT NULL,
    sha256       TEXT NOT NULL,
    peaks_key    TEXT,
    wav_key      TEXT,
    wav_size_bytes BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (job_id, stem_id)
);

-- separation: one row. Until until_ms no replica submits anything to the provider. refusals counts how often in
-- a row the provider was busy without saying for how long.
CREATE TABLE separation_pause (
    id       INTEGER PRIMARY KEY,
    until_ms BIGINT NOT NULL,
    refusals INTEGER NOT NULL
);
INSERT INTO separation_pause (id, until_ms, refusals) VALUES (1, 0, 0);

-- render: what a render has in addition to its row in jobs.
CREATE TABLE renders (
    job_id             TEXT PRIMARY KEY REFERENCES jobs (id) ON DELETE CASCADE,
    spec               TEXT NOT NULL, -- the request, '' once nobody needs it
    output_kind        TEXT NOT NULL,
    quality            TEXT NOT NULL DEFAULT 'medium',
    upload_bytes       BIGINT NOT NULL DEFAULT 0, -- of the files uploaded only for this job
    output_key         TEXT,
    output_size_bytes  BIGINT,
    output_sha256      TEXT,
    output_duration_ms BIGINT,
    poster_key         TEXT,
    needs_bytes        BIGINT, -- of free disk, if a replica had too little
    short_since        BIGINT, -- since when no live replica has had needs_bytes
    expires_at         BIGINT  -- of the output
);
CREATE INDEX renders_expiring ON renders (expires_at) WHERE output_key IS NOT NULL;
CREATE INDEX renders_with_spec ON renders (job_id) WHERE spec <> '';

-- render: an account that has submitted a render, in the order in which accounts get slots. Every move of a render
-- updates it.
CREATE TABLE render_turns (
    user_id         TEXT PRIMARY KEY REFERENCES users (id) ON DELETE CASCADE,
    processing      BIGINT NOT NULL DEFAULT 0, -- the account's PROCESSING jobs
    last_started_at BIGINT NOT NULL DEFAULT 0, -- 0: none was ever started
    next_created_at BIGINT, -- of the oldest PENDING job, null if there is none
    next_job_id     TEXT
);
CREATE INDEX render_turns_waiting ON render_turns (processing, last_started_at, next_created_at, next_job_id)
    WHERE next_job_id IS NOT NULL;

-- render: a part of a film that several replicas may make.
CREATE TABLE render_parts (
    job_id      TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
    part_key    TEXT NOT NULL,
    state       TEXT NOT NULL CHECK (state IN ('OPEN', 'MAKING', 'MADE', 'FAILED')), -- FAILED: by an assistant
    place       INTEGER NOT NULL DEFAULT 0, -- in the order of claims, the most expensive first
    threads     INTEGER NOT NULL DEFAULT 0, -- of its encoder, as first announced: they decide the part's bytes
    owner       TEXT,
    lease_until BIGINT,
    PRIMARY KEY (job_id, part_key)
);
CREATE INDEX render_parts_open ON render_parts (job_id, place) WHERE state = 'OPEN';

-- render: a cached video of one user.
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

-- job: a running process, with the number of jobs that it runs at once and the bytes it may still write. A replica that
-- has not been seen for a while counts as gone.
CREATE TABLE replicas (
    id         TEXT PRIMARY KEY,
    slots      INTEGER NOT NULL,
    free_bytes BIGINT NOT NULL,
    seen_at    BIGINT NOT NULL
);

-- job: the lease for work that one replica does for all, by the name of the work.
CREATE TABLE leases (
    id          TEXT PRIMARY KEY,
    lease_owner TEXT NOT NULL,
    lease_until BIGINT NOT NULL,
    fence       BIGINT NOT NULL
);

-- job: a kind of job whose submission an operator has paused.
CREATE TABLE pauses (
    kind       TEXT PRIMARY KEY,
    created_at BIGINT NOT NULL
);

-- asset: an uploaded object. It belongs to every account that asked for its upload or used it.
CREATE TABLE assets (
    asset_key    TEXT PRIMARY KEY,
    size_bytes   BIGINT NOT NULL, -- as announced, until the object is seen
    content_type TEXT NOT NULL,
    seen_at      BIGINT, -- when the object was last seen in the bucket
    verified     TEXT,   -- size and ETag of the object whose bytes were hashed and fit the key
    -- The sweep sets removing_at before it deletes an object that nobody holds, and raises removals: a hold that began
    -- with an earlier lookup of the object is refused.
    removing_at  BIGINT,
    given_up_at  BIGINT, -- when the sweep first did so
    removal_at   BIGINT, -- when the sweep deletes the object again
    removals     BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX assets_by_sight ON assets (COALESCE(seen_at, 0));

-- asset: an account that holds an asset.
CREATE TABLE asset_holders (
    user_id      TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    asset_key    TEXT NOT NULL,
    size_bytes   BIGINT NOT NULL, -- as in assets, and written together with it: an account's sum reads no other table
    created_at   BIGINT NOT NULL,
    last_used_at BIGINT NOT NULL,
    given_up_at  BIGINT, -- the account gave the asset up, which counts for it until the object is erased
    PRIMARY KEY (user_id, asset_key)
);
CREATE INDEX asset_holders_by_key ON asset_holders (asset_key);
CREATE INDEX asset_holders_stored ON asset_holders (user_id, size_bytes);
CREATE INDEX asset_holders_history ON asset_holders (user_id, created_at, asset_key);
CREATE INDEX asset_holders_given_up ON asset_holders (given_up_at) WHERE given_up_at IS NOT NULL;

-- asset: an upload in parts. Only the store, which knows it as store_id, knows which parts have arrived.
CREATE TABLE asset_uploads (
    id           TEXT PRIMARY KEY,
    user_id      TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    asset_key    TEXT NOT NULL,
    size_bytes   BIGINT NOT NULL,
    store_id     TEXT NOT NULL,
    created_at   BIGINT NOT NULL,
    completed_at BIGINT, -- when the complete object was seen
    UNIQUE (user_id, asset_key, size_bytes)
);
CREATE INDEX asset_uploads_by_age ON asset_uploads (created_at);

-- events: a device that gets a user's push messages.
CREATE TABLE devices (
    id            TEXT PRIMARY KEY, -- a hash of platform and token: a token is too long for an index
    user_id       TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    platform      TEXT NOT NULL,
    token         TEXT NOT NULL,
    turn          BIGINT NOT NULL, -- of registration, among the user's devices
    registered_at BIGINT NOT NULL
);
CREATE INDEX devices_by_user ON devices (user_id, turn);

-- events: the end of a job, recorded in the transaction that ends it.
CREATE TABLE events (
    id            TEXT PRIMARY KEY,
    type          TEXT NOT NULL,
    job_id        TEXT NOT NULL,
    user_id       TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    error_code    TEXT,
    created_at    BIGINT NOT NULL,
    fanned_out_at BIGINT -- when its deliveries were made
);
CREATE INDEX events_new ON events (created_at, id) WHERE fanned_out_at IS NULL;
CREATE INDEX events_by_time ON events (created_at, id);
CREATE INDEX events_by_job ON events (job_id);
CREATE INDEX events_by_user ON events (user_id);

-- events: the delivery of an event to the web hook, or to one of the owner's devices.
CREATE TABLE event_deliveries (
    id         TEXT PRIMARY KEY, -- the event's, and the device's or "webhook"
    event_id   TEXT NOT NULL REFERENCES events (id) ON DELETE CASCADE,
    channel    TEXT NOT NULL, -- webhook, platform_a or platform_b
    device_id  TEXT REFERENCES devices (id) ON DELETE CASCADE,
    state      TEXT NOT NULL, -- PENDING, DELIVERED or FAILED
    attempts   BIGINT NOT NULL,
    queued_at  BIGINT NOT NULL,
    due_at     BIGINT NOT NULL, -- of the next attempt
    ended_at   BIGINT,
    last_error TEXT
);
CREATE INDEX event_deliveries_due ON event_deliveries (channel, attempts, due_at) WHERE state = 'PENDING';
CREATE INDEX event_deliveries_by_event ON event_deliveries (event_id);
CREATE INDEX event_deliveries_by_device ON event_deliveries (device_id) WHERE device_id IS NOT NULL;
CREATE INDEX event_deliveries_failed ON event_deliveries (event_id) WHERE state = 'FAILED';

-- idempotency: an Idempotency-Key and the first answer to it.
CREATE TABLE idempotency_keys (
    user_id     TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    key         TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    answer      TEXT NOT NULL,
    created_at  BIGINT NOT NULL,
    PRIMARY KEY (user_id, key)
);
CREATE INDEX idempotency_by_created ON idempotency_keys (created_at);

-- ratelimit: the last requests under a limit.
CREATE TABLE request_times (
    bucket TEXT PRIMARY KEY,
    times  TEXT NOT NULL -- newest first, 13 digits of epoch milliseconds each
);

-- audit: who did what to whom. It outlives accounts and has ids only, no personal data, so actor and target are
-- no foreign keys.
CREATE TABLE audit (
    id         TEXT PRIMARY KEY,
    created_at BIGINT NOT NULL,
    actor      TEXT NOT NULL, -- a user's id, 'cli:<uid>' for the command line, or 'service'
    action     TEXT NOT NULL,
    target     TEXT NOT NULL, -- the id of a user or an installation
    detail     TEXT NOT NULL  -- a JSON object
);
CREATE INDEX audit_by_time ON audit (created_at, id);
CREATE INDEX audit_by_target ON audit (target, created_at);

-- installation: one row, the id that the database shares with its bucket, or the id of its disk. Without it, a database
-- could mistake another database's objects for its own objects whose rows are lost.
CREATE TABLE installation (
    single     INTEGER PRIMARY KEY CHECK (single = 1),
    id         TEXT NOT NULL,
    disk       TEXT, -- the id of the disk with the files, if there is no bucket
    created_at BIGINT NOT NULL
);

-- admin: how many of a day's calls to an endpoint took about latency_ms.
CREATE TABLE provider_call_days (
    day        BIGINT NOT NULL, -- since 1970-01-01, in UTC
    provider   TEXT NOT NULL,
    endpoint   TEXT NOT NULL,
    latency_ms BIGINT NOT NULL, -- to 5 %
    calls      BIGINT NOT NULL,
    failures   BIGINT NOT NULL,
    PRIMARY KEY (day, provider, endpoint, latency_ms)
);
