package installation_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"cutroom/internal/work/installation"
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

func TestADatabaseHasNoDiskBeforeServe(t *testing.T) {
	if err := installation.CheckDisk(t.Context(), database(t), t.TempDir()); err == nil || !strings.Contains(err.Error(), "`cutroom serve` once") {
		t.Errorf("%v", err)
	}
}
