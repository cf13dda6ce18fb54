package app

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"cutroom/internal/base/db"
	"cutroom/internal/config"
	"cutroom/internal/storage/diskcache"
	"cutroom/internal/testkit/dbtest"
	"cutroom/internal/work/audit"
)

// An account is erased where its deletion is asked for, which need not be where its films are made.
func TestPartsOfDeletedAccountsGoFromEveryDisk(t *testing.T) {
	d := dbtest.SQLite(t)
	parts, err := diskcache.New(diskcache.Config{Dir: t.TempDir(), MaxBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "part")
	if err := os.WriteFile(file, []byte("pictures"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, user := range []string{"gone", "here"} {
		if err := parts.Put(t.Context(), user, "video-1", file); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.InTx(t.Context(), func(tx *db.Tx) error {
		return errors.Join(audit.Record(t.Context(), tx, audit.Entry{Actor: "cli:0", Action: audit.AccountErased, Target: "gone"}),
			audit.Record(t.Context(), tx, audit.Entry{Actor: "cli:0", Action: audit.SignedOut, Target: "here"}))
	}); err != nil {
		t.Fatal(err)
	}
	b := &builder{App: &App{db: d, cfg: config.Config{Asset: config.Asset{CacheTTL: time.Hour}}, log: slog.New(slog.DiscardHandler)}, parts: parts}
	if err := b.erasePartsOfDeleted(t.Context()); err != nil {
		t.Fatal(err)
	}
	for user, want := range map[string]bool{"gone": false, "here": true} {
		if got, err := parts.Get(t.Context(), user, "video-1", filepath.Join(t.TempDir(), "copy")); err != nil || got != want {
			t.Errorf("parts of %s are there: %v, want %v (%v)", user, got, want, err)
		}
	}
}
