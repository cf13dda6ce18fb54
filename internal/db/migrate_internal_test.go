package db

import (
	"context"
	"slices"
	"testing"

	"github.com/pressly/goose/v3"
)

// migratedTo returns an empty SQLite database with the schema of a version.
func migratedTo(t *testing.T, version int64) (*DB, *goose.Provider) {
	t.Helper()
	d, err := Open(t.Context(), Options{URL: "sqlite::memory:"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	p, err := d.provider()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.UpTo(t.Context(), version); err != nil {
		t.Fatal(err)
	}
	return d, p
}

// The migration that makes the ledger anew keeps what is in it.
func TestLedgerSurvivesItsNewKinds(t *testing.T) {
	ctx := t.Context()
	d, p := migratedTo(t, 7)
	exec := func(query string) error {
		_, err := d.Exec(context.WithoutCancel(ctx), query)
		return err
	}
	for _, query := range []string{
		`INSERT INTO users (id, provider, provider_sub, created_at, last_active_at) VALUES ('u', 'p', 's', 1, 1)`,
		`INSERT INTO credit_ledger (ref_id, user_id, kind, amount, created_at) VALUES ('consume-1', 'u', 'consume', -4, 9)`,
		`INSERT INTO purchases (platform, transaction_hash, product_id, credits, buyer_id, created_at) VALUES ('platform_a', 'h', 'c', 10, 'u', 5)`,
	} {
		if err := exec(query); err != nil {
			t.Fatal(err)
		}
	}
	for round := range 2 { // up, down and up again
		if _, err := p.UpTo(ctx, 8); err != nil {
			t.Fatal(err)
		}
		var kind string
		var amount, at, owed int64
		if err := d.QueryRow(ctx, `SELECT kind, amount, created_at, (SELECT owed FROM purchases) FROM credit_ledger`).
			Scan(&kind, &amount, &at, &owed); err != nil || kind != "consume" || amount != -4 || at != 9 || owed != 0 {
			t.Errorf("round %d: %s %d at %d, owed %d, %v", round, kind, amount, at, owed, err)
		}
		if err := exec(`INSERT INTO credit_ledger VALUES ('x', 'u', 'gift', 1, 1)`); err == nil {
			t.Error("an unknown kind was taken")
		}
		if err := exec(`INSERT INTO credit_ledger VALUES ('y', 'nobody', 'support', 1, 1)`); err == nil {
			t.Error("an entry of nobody was taken")
		}
		if _, err := p.DownTo(ctx, 7); err != nil {
			t.Fatal(err)
		}
	}
}

// Assets that earlier releases were given belong to those who uploaded or used them.
func TestAssetsOfEarlierReleasesGetHolders(t *testing.T) {
	ctx := t.Context()
	d, p := migratedTo(t, 21)
	job := `INSERT INTO render_jobs (id, user_id, state, output_kind, created_at, deleted_at, spec) VALUES `
	for _, query := range []string{
		`INSERT INTO users (id, provider, provider_sub, created_at, last_active_at) VALUES ('u', 'p', 's', 1, 1), ('v', 'p', 't', 1, 1)`,
		`INSERT INTO asset_uploads (id, user_id, asset_key, size_bytes, store_id, created_at) VALUES ('1', 'u', 'assets/a.mp4', 7, 's', 5)`,
		job + `('a', 'u', 'COMPLETED', 'video', now_ms(), NULL, '{"timeline":{"x":"\u0000"},"sources":{"assets/a.mp4":{"asset":true},"assets/b.mp4":{"asset":true},"video":{}}}')`,
		job + `('b', 'v', 'FAILED', 'video', now_ms(), NULL, '{"timeline":{},"sources":{"assets/b.mp4":{"asset":true}}}')`,
		job + `('c', 'v', 'FAILED', 'video', now_ms(), 9, '{"timeline":{},"sources":{"assets/c.mp4":{"asset":true}}}')`,
		job + `('d', 'v', 'FAILED', 'video', 9, NULL, '{"timeline":{},"sources":{"assets/c.mp4":{"asset":true}}}')`,
		job + `('e', 'v', 'FAILED', 'video', now_ms(), NULL, '')`,
	} {
		if _, err := d.Exec(ctx, query); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := p.UpTo(ctx, 23); err != nil {
		t.Fatal(err)
	}
	got, err := Texts(d.Query(ctx, `SELECT h.user_id || ' ' || h.asset_key || ' ' || a.size_bytes || ' ' || (h.created_at % 1000)
		FROM asset_holders h JOIN assets a ON a.asset_key = h.asset_key WHERE h.created_at < 10
		UNION ALL SELECT user_id || ' ' || asset_key FROM asset_holders WHERE last_used_at > 10 ORDER BY 1`))
	want := []string{"u assets/a.mp4", "u assets/a.mp4 7 5", "u assets/b.mp4", "v assets/b.mp4"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
}
