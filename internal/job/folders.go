package job

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"cutroom/internal/db"
)

// OrphanAge is how old an object or a work folder without any row must be before
// it counts as left behind. A submission stores objects first and writes its row
// after; and should another installation use the same bucket or disk by mistake,
// its work does not vanish under its hands. Where a row says that a thing is
// over, nothing waits.
const OrphanAge = time.Hour

// WorkDir is the folder in which the holder of a lease works, in a folder for all
// of them: it is named by the job's id and the fence.
func (l Lease) WorkDir(root string) string {
	return filepath.Join(root, fmt.Sprintf("%s-%d", l.ID, l.Fence))
}

// EraseTimeout bounds how long a client who deletes a job waits for the erasure of
// its files.
const EraseTimeout = 8 * time.Second

// Clear removes from dir the work folders of jobs that were taken away for good,
// and announced as [Revoked]. What a worker still writes while it stops is removed
// by the worker, or by the sweep.
func Clear(dir string, ids ...string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("clear work folders: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if slices.ContainsFunc(ids, func(id string) bool { return strings.HasPrefix(e.Name(), id+"-") }) {
			errs = append(errs, removeBusy(filepath.Join(dir, e.Name())))
		}
	}
	return errors.Join(errs...)
}

// removeBusy removes a folder that a worker which is just stopping may still
// put files into, each of which makes one removal fail.
func removeBusy(folder string) (err error) {
	for range 5 {
		if err = os.RemoveAll(folder); err == nil {
			break
		}
	}
	return err
}

// SweepFolders removes from dir the work folders that a crash left behind: those
// of jobs of the table that nobody holds under that fence. Job ids begin with
// prefix; suffix, when not "", may follow a folder's name.
func SweepFolders(ctx context.Context, d *db.DB, dir, table, prefix, suffix string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("sweep work folders: %w", err)
	}
	for _, e := range entries {
		name := strings.TrimSuffix(e.Name(), suffix)
		i := strings.LastIndex(name, "-")
		if i < 0 || !strings.HasPrefix(name, prefix) {
			continue
		}
		var held int
		err := d.QueryRow(ctx, `SELECT CASE WHEN CAST(fence AS TEXT) = $2 AND lease_until > now_ms() THEN 1 ELSE 0 END
			FROM `+table+` WHERE id = $1`, name[:i], name[i+1:]).Scan(&held)
		unknown := db.IsNoRows(err)
		if err != nil && !unknown {
			return fmt.Errorf("sweep work folders: %w", err)
		}
		if held == 1 || unknown && young(e) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return fmt.Errorf("sweep work folders: %w", err)
		}
	}
	return nil
}

func young(e os.DirEntry) bool {
	info, err := e.Info()
	return err == nil && time.Since(info.ModTime()) < OrphanAge
}
