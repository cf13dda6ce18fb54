package installation

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"

	"cutroom/internal/base/db"
	"cutroom/internal/work/audit"
)

// DiskID returns the id of the disk that holds dir. The first call creates it in a file there, so processes that
// share the disk share the id.
func DiskID(dir string) (string, error) {
	path := filepath.Join(dir, "disk-id")
	if id := readDiskID(path); id != "" {
		return id, nil
	}
	id, temp := uuid.NewString(), filepath.Join(dir, ".disk-id-"+rand.Text())
	if err := os.WriteFile(temp, []byte(id+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("write disk id: %w", err)
	}
	defer os.Remove(temp)
	// Link fails if another process was faster; then use the id of that process.
	if err := os.Link(temp, path); err != nil {
		if id := readDiskID(path); id != "" {
			return id, nil
		}
		if err := os.Rename(temp, path); err != nil {
			return "", fmt.Errorf("keep disk id: %w", err)
		}
	}
	return id, nil
}

// readDiskID returns "" if the file has no id.
func readDiskID(path string) string {
	text, _ := os.ReadFile(path)
	id, err := uuid.Parse(strings.TrimSpace(string(text)))
	if err != nil {
		return ""
	}
	return id.String()
}

// ClaimDisk ties the database to the disk that holds dir, if it has none yet. It returns an error if the files of the
// database are on another disk. It is for services without a bucket.
func ClaimDisk(ctx context.Context, d *db.DB, dir string) error {
	if _, err := ID(ctx, d); err != nil {
		return err
	}
	here, err := DiskID(dir)
	if err != nil {
		return err
	}
	if _, err := d.Exec(ctx, `UPDATE installation SET disk = $1 WHERE single = 1 AND disk IS NULL`, here); err != nil {
		return fmt.Errorf("write the id of the disk: %w", err)
	}
	return CheckDisk(ctx, d, dir)
}

// CheckDisk returns an error unless the files of the database are on the disk that holds dir.
func CheckDisk(ctx context.Context, d *db.DB, dir string) error {
	here, err := DiskID(dir)
	if err != nil {
		return err
	}
	var ours sql.NullString
	err = d.QueryRow(ctx, `SELECT disk FROM installation WHERE single = 1`).Scan(&ours)
	switch {
	case err != nil && !db.IsNoRows(err):
		return fmt.Errorf("read the id of the disk: %w", err)
	case ours.String == "":
		return fmt.Errorf("no service has used the folder %s with this database yet: start `cutroom serve` once", dir)
	case ours.String != here:
		return fmt.Errorf("the folder %s is on disk %s, but the files of this database are on disk %s. Without a bucket there is one "+
			"machine: check DATABASE_URL and STORAGE_PATH, or configure a bucket. If disk %s is lost, run `cutroom adopt-disk`",
			dir, here, ours.String, ours.String)
	}
	return nil
}

// AdoptDisk makes the disk that holds dir the disk of the database, and returns the ids of the disk before ("" for
// none) and after. The audit record names the actor.
func AdoptDisk(ctx context.Context, d *db.DB, dir, actor string) (before, after string, err error) {
	id, err := ID(ctx, d)
	if err != nil {
		return "", "", err
	}
	if after, err = DiskID(dir); err != nil {
		return "", "", err
	}
	err = d.InTx(ctx, func(tx *db.Tx) error {
		if err := tx.QueryRow(ctx, `SELECT COALESCE(disk, '') FROM installation WHERE single = 1`+tx.ForUpdate()).Scan(&before); err != nil {
			return fmt.Errorf("read the id of the disk: %w", err)
		}
		if before == after {
			return nil
		}
		if _, err := tx.Exec(ctx, `UPDATE installation SET disk = $1 WHERE single = 1`, after); err != nil {
			return fmt.Errorf("write the id of the disk: %w", err)
		}
		return audit.Record(ctx, tx, audit.Entry{Actor: actor, Action: audit.DiskAdopted, Target: id,
			Detail: audit.Detail{"disk": after, "before": before}})
	})
	return before, after, err
}
