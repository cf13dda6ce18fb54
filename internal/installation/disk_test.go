package installation_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"cutroom/internal/dbtest"
	"cutroom/internal/installation"
)

func TestADiskHasOneID(t *testing.T) {
	dir := t.TempDir()
	ids := make(chan string, 8)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			id, err := installation.DiskID(dir)
			if err != nil {
				t.Error(err)
			}
			ids <- id
		})
	}
	all.Wait()
	first := <-ids
	for range 7 {
		if id := <-ids; id != first {
			t.Errorf("two ids on one disk: %s and %s", first, id)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "disk-id"), []byte("rubbish"), 0o600); err != nil {
		t.Fatal(err)
	}
	fresh, err := installation.DiskID(dir)
	if err != nil || fresh == first {
		t.Fatalf("%s, %v", fresh, err)
	}
	if again, err := installation.DiskID(dir); err != nil || again != fresh {
		t.Errorf("%s after %s, %v", again, fresh, err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("files left: %v, %v", entries, err)
	}
}

func TestADatabaseHasOneDisk(t *testing.T) {
	d, ctx, dir, other := database(t), t.Context(), t.TempDir(), t.TempDir()
	if err := installation.CheckDisk(ctx, d, dir); err == nil {
		t.Error("a database without a disk has this one")
	}
	for range 2 { // processes of one machine share the disk
		if err := installation.ClaimDisk(ctx, d, dir); err != nil {
			t.Fatal(err)
		}
	}
	first, err := installation.DiskID(dir)
	second, serr := installation.DiskID(other)
	if err != nil || serr != nil {
		t.Fatal(err, serr)
	}
	if err := installation.ClaimDisk(ctx, d, other); err == nil || !strings.Contains(err.Error(), first) ||
		!strings.Contains(err.Error(), second) || !strings.Contains(err.Error(), "cutroom adopt-disk") {
		t.Errorf("another disk: %v, want both ids and what to do", err)
	}
	for _, was := range []string{first, second} {
		if before, after, err := installation.AdoptDisk(ctx, d, other, "cli:0"); before != was || after != second || err != nil {
			t.Errorf("adopted %s after %s, %v", after, before, err)
		}
	}
	if err := installation.CheckDisk(ctx, d, dir); err == nil {
		t.Error("the database still has the disk before")
	}
	if err := installation.CheckDisk(ctx, d, other); err != nil {
		t.Error(err)
	}
	if n := dbtest.Number(t, d, `SELECT COUNT(*) FROM audit WHERE action = 'disk-adopted'`); n != 1 {
		t.Errorf("%d audit entries", n)
	}
}
