package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"cutroom/internal/base/db"
	"cutroom/internal/testkit/jobtest"
)

// The year that a database is filled with: everything but users grows with the jobs. Jobs are spread evenly over the
// year, users have unequal shares of them, and a job's id contains its time, as the service's own ids do.
const (
	yearUsers    = 100_000
	yearPurchase = 50 // jobs
)

// yearTables are filled without their indexes and foreign keys, which are restored at the end: that takes half the
// time.
const yearTables = `('users', 'credit_balances', 'credit_ledger', 'purchases', 'jobs', 'renders', 'separations')`

// fillYear fills the database with a year that has the given number of jobs.
func fillYear(ctx context.Context, d *db.DB, jobs int64) error {
	restore, err := bare(ctx, d)
	if err != nil {
		return err
	}
	from := time.Now().Add(-365 * 24 * time.Hour).UnixMilli()
	words := strings.NewReplacer("$jobs", fmt.Sprint(jobs), "$users", fmt.Sprint(yearUsers),
		"$from", fmt.Sprint(from),
		"$somebody", fmt.Sprintf("user_id(%d * random() ^ 1.5)", yearUsers), "$half", fmt.Sprint(jobs/2),
		"$times", fmt.Sprintf(`(SELECT g, %d + g * 31536000000 / %d AS at FROM generate_series(0::bigint, %d - 1) AS g) AS times`,
			from, jobs/2, jobs/2))
	steps := [][]string{ // the statements of a step run concurrently
		{`CREATE FUNCTION user_id(n double precision) RETURNS text LANGUAGE sql IMMUTABLE AS
			$$ SELECT md5(floor(n)::bigint::text)::uuid::text $$`},
		{`CREATE FUNCTION job_id(kind text, at bigint) RETURNS text LANGUAGE sql VOLATILE AS
			$$ SELECT kind || '-' || regexp_replace(lpad(to_hex(at), 12, '0') || '7' || substr(md5(random()::text), 1, 19),
				'^(.{8})(.{4})(.{4})(.{4})', '\1-\2-\3-\4-') $$`},
		{`INSERT INTO users (id, provider, provider_sub, email, name, created_at, last_active_at)
			SELECT user_id(n), CASE n % 2 WHEN 0 THEN 'provider_a' ELSE 'provider_b' END, md5('sub' || n), 'person.' || n || '@example.test',
				'Person ' || md5('name' || n), $from + n::bigint * 31536000000 / $users, now_ms() - (random() * random() * 60 * 86400000)::bigint
			FROM generate_series(0, $users - 1) AS n`},
		{`INSERT INTO credit_balances SELECT id, 5 FROM users`,
			`INSERT INTO purchases (platform, transaction_hash, product_id, credits, buyer_id, order_id, created_at, reversed_at)
			SELECT CASE n % 2 WHEN 0 THEN 'platform_a' ELSE 'platform_b' END, md5('sale' || n), 'credits.50', 50, $somebody, 'order-' || n,
				$from + n::bigint * 31536000000 * ` + fmt.Sprint(yearPurchase) + ` / $jobs, CASE n % 50 WHEN 0 THEN now_ms() END
			FROM generate_series(0, $jobs / ` + fmt.Sprint(yearPurchase) + ` - 1) AS n`},
		{`INSERT INTO jobs (id, kind, user_id, state, source_duration_ms, progress, attempts, fence, created_at, started_at, finished_at,
				error, error_code, replica)
			SELECT job_id('rnd', at), 'render', $somebody, CASE g % 20 WHEN 0 THEN 'FAILED' ELSE 'COMPLETED' END,
				(20000 * exp(6 * random()))::bigint, 100, 1, 2, at, at + 900, at + 60000,
				CASE g % 20 WHEN 0 THEN 'Source not readable' END, CASE g % 20 WHEN 0 THEN 'source_unreadable' END, 'replica-1' FROM $times`,
			`INSERT INTO jobs (id, kind, user_id, state, source_duration_ms, progress, attempts, fence, created_at, started_at, asked_at,
				finished_at, error)
			SELECT job_id('sep', at), 'separation', $somebody, CASE g % 20 WHEN 0 THEN 'FAILED' ELSE CASE WHEN at > now_ms() - 3600000 THEN 'READY'
				ELSE 'DISPOSED' END END, (20000 * exp(5 * random()))::bigint, 100, 1, 3, at, at + 900, at + 2000, at + 60000,
				CASE g % 20 WHEN 0 THEN 'Provider service unavailable' END FROM $times`},
		{`INSERT INTO renders (job_id, spec, output_kind, quality) SELECT id, repeat('{"segment":1}', 50), 'video', 'high' FROM jobs
			WHERE kind = 'render'`,
			`INSERT INTO separations (job_id, source_key, source_name, file_name, source_size_bytes, language, credits, project_id,
				actual_duration_ms, submitting_at, processing_at)
			SELECT id, 'uploads/' || id || '/source', id || '.m4a', 'a song.m4a', 5000000, 'auto', 1 + source_duration_ms / 300000,
				row_number() OVER (), source_duration_ms + 20, created_at + 900, created_at + 3000 FROM jobs WHERE kind = 'separation'`},
		{`INSERT INTO credit_ledger SELECT 'consume-' || id, user_id, 'consume', -credits, created_at FROM jobs JOIN separations ON job_id = id`},
		{`INSERT INTO credit_ledger SELECT 'refund-' || id, user_id, 'refund', credits, created_at FROM jobs JOIN separations ON job_id = id
			WHERE state = 'FAILED'`,
			`INSERT INTO credit_ledger SELECT 'signup-' || id, id, 'signup', 2, created_at FROM users`,
			`INSERT INTO credit_ledger SELECT 'admin-' || n, user_id(n % 10), 'admin', 50, now_ms() FROM generate_series(1, 1000) AS n`,
			`INSERT INTO credit_ledger SELECT 'purchase-' || platform || '-' || order_id, buyer_id, 'purchase', credits, created_at FROM purchases`,
			`INSERT INTO provider_call_days SELECT now_ms() / 86400000 - n, 'separation', endpoint, (30 * power(1.08, bucket))::bigint,
				GREATEST(1, $half * 12 / 365 / 7 / 65), 1
			FROM generate_series(0, 365) AS n, generate_series(0, 64) AS bucket, unnest(ARRAY['upload-token', 'upload',
				'register', 'audio-separation', 'progress', 'project', 'download']) AS endpoint`,
			`INSERT INTO job_days (kind, day, state, bucket, jobs, source_duration_ms) ` + jobtest.Totals},
	}
	for _, step := range append(steps, restore...) {
		var together errgroup.Group
		for _, statement := range step {
			together.Go(func() error {
				if _, err := d.Exec(ctx, words.Replace(statement)); err != nil {
					return fmt.Errorf("%.80s: %w", statement, err)
				}
				return nil
			})
		}
		if err := together.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// bare drops the indexes and foreign keys of the tables of a year, and returns the statements that restore them, in the
// order in which to run them.
func bare(ctx context.Context, d *db.DB) (restore [][]string, err error) {
	texts := func(query string) []string {
		if err != nil {
			return nil
		}
		var out []string
		out, err = db.Texts(d.Query(ctx, query))
		return out
	}
	indexes := texts(`SELECT indexdef FROM pg_indexes WHERE tablename IN ` + yearTables + `
		AND indexname NOT IN (SELECT conname FROM pg_constraint) ORDER BY indexname`)
	drops := texts(`SELECT 'DROP INDEX ' || indexname FROM pg_indexes WHERE tablename IN ` + yearTables + `
		AND indexname NOT IN (SELECT conname FROM pg_constraint)`)
	const foreign = ` FROM pg_constraint WHERE contype = 'f' AND conrelid::regclass::text IN ` + yearTables + ` ORDER BY conname`
	keys := texts(`SELECT 'ALTER TABLE ' || conrelid::regclass || ' ADD CONSTRAINT ' || conname || ' ' || pg_get_constraintdef(oid)` + foreign)
	drops = append(drops, texts(`SELECT 'ALTER TABLE ' || conrelid::regclass || ' DROP CONSTRAINT ' || conname`+foreign)...)
	for _, drop := range drops {
		if err == nil {
			_, err = d.Exec(ctx, drop)
		}
	}
	restore = slices.Collect(slices.Chunk(indexes, 2)) // two at a time: each build uses all the memory that it may
	for _, key := range keys {
		restore = append(restore, []string{key})
	}
	return append(restore, []string{"VACUUM ANALYZE"}), err
}
