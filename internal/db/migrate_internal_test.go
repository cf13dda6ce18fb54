package db

import (
	"context"
	"testing"
)

// The migration that makes the ledger anew keeps what is in it.
func TestLedgerSurvivesItsNewKinds(t *testing.T) {
	ctx := t.Context()
	d, err := Open(ctx, Options{URL: "sqlite::memory:"})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	p, err := d.provider()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.UpTo(ctx, 7); err != nil {
		t.Fatal(err)
	}
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
