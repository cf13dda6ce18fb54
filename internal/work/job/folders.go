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

	"cutroom/internal/base/db"
)

// OrphanAge is the age at which an object or a work folder without a row counts as orphaned. Younger ones may belong to
// a submission, which stores its objects before its row, or to the running work of another installation that uses the
// same bucket or disk by mistake.
const OrphanAge = time.Hour

// WorkDir is the folder in which the holder of a lease works. Its name is the job's id and the fence.
func (t Table) WorkDir(l Lease) string {
	return filepath.Join(t.Folder, fmt.Sprintf("%s-%d", l.ID, l.Fence))
}

// clearFolders removes the work folders of revoked jobs. If a worker still writes while it stops, the worker or the
// sweep removes those files.
func (t Table) clearFolders(ids ...string) error {
	entries, err := os.ReadDir(t.Folder)
	if err != nil {
		return fmt.Errorf("clear work folders: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if slices.ContainsFunc(ids, func(id string) bool { return strings.HasPrefix(e.Name(), id+"-") }) {
			errs = append(errs, removeBusy(filepath.Join(t.Folder, e.Name())))
		}
	}
	return errors.Join(errs...)
}

// removeBusy removes a folder into which a stopping worker may still write. Each new file makes one removal fail.
func removeBusy(folder string) (err error) {
	for range 5 {
		if err = os.RemoveAll(folder); err == nil {
			break
		}
	}
	return err
}

// SweepFolders removes the work folders that a crash left behind, which are those of fences that nobody holds. A
// folder's name may end with suffix.
func (t Table) SweepFolders(ctx context.Context, suffix string) error {
	entries, err := os.ReadDir(t.Folder)
	if err != nil {
		return fmt.Errorf("sweep work folders: %w", err)
	}
	for _, e := range entries {
		name := strings.TrimSuffix(e.Name(), suffix)
		i := strings.LastIndex(name, "-")
		if i < 0 || !strings.HasPrefix(name, t.Prefix) {
			continue
		}
		var held int
		err := t.DB.QueryRow(ctx, `SELECT CASE WHEN CAST(fence AS TEXT) = $2 AND lease_until > now_ms() THEN 1 ELSE 0 END
			FROM jobs WHERE id = $1`, name[:i], name[i+1:]).Scan(&held)
		unknown := db.IsNoRows(err)
		if err != nil && !unknown {
			return fmt.Errorf("sweep work folders: %w", err)
		}
		if held == 1 || unknown && young(e) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(t.Folder, e.Name())); err != nil {
			return fmt.Errorf("sweep work folders: %w", err)
		}
	}
	return nil
}

func young(e os.DirEntry) bool {
	info, err := e.Info()
	return err == nil && time.Since(info.ModTime()) < OrphanAge
}
