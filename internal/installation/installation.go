// Package installation keeps a database and its bucket together. Both carry one
// id; a bucket with another id, or one that holds objects and no id, is not
// this database's, and nothing may be removed from it because the database does
// not know it.
package installation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"cutroom/internal/audit"
	"cutroom/internal/db"
	"cutroom/internal/httpcall"
	"cutroom/internal/objectstore"
)

// objectKey holds the id in the bucket.
const objectKey = "cutroom-installation"

// settle is how long the claim of an empty bucket waits for rival claims where
// the store does not decide between them.
const settle = time.Second

// ForeignError says that a bucket does not belong to the database.
type ForeignError struct {
	Bucket string
	Theirs string // the id in the bucket, "" where there is none
	Ours   string // the id in the database
}

func (e *ForeignError) Error() string {
	const remedy = "Check DATABASE_URL and OBJECT_STORE_BUCKET; if the two are meant to go together, run `cutroom adopt-bucket`"
	if e.Theirs == "" {
		return fmt.Sprintf("the bucket %s holds objects and no installation id, so nothing says that they belong to this database. %s "+
			"(once after an upgrade from a version that wrote no id)", e.Bucket, remedy)
	}
	return fmt.Sprintf("the bucket %s belongs to another installation (%s; that of this database: %s). %s",
		e.Bucket, e.Theirs, cmp.Or(e.Ours, "none yet"), remedy)
}

// ID returns the id of the database, which gets one when it is first asked.
func ID(ctx context.Context, d *db.DB) (string, error) {
	id, err := known(ctx, d)
	if id != "" || err != nil {
		return id, err
	}
	// Of replicas that start at once one writes, and all read what it wrote.
	if _, err := d.Exec(ctx, `INSERT INTO installation (single, id, created_at) VALUES (1, $1, now_ms()) ON CONFLICT DO NOTHING`,
		uuid.NewString()); err != nil {
		return "", fmt.Errorf("write the installation id: %w", err)
	}
	return known(ctx, d)
}

// known is the id of the database, "" as long as it has none.
func known(ctx context.Context, d *db.DB) (id string, err error) {
	err = d.QueryRow(ctx, `SELECT id FROM installation WHERE single = 1`).Scan(&id)
	if err != nil && !db.IsNoRows(err) {
		return "", fmt.Errorf("read the installation id: %w", err)
	}
	return id, nil
}

// Claim makes sure that the bucket is the database's, and makes it so where it
// is empty. It fails with a ForeignError where it is not.
func Claim(ctx context.Context, d *db.DB, b *objectstore.Bucket) error {
	ours, err := ID(ctx, d)
	if err != nil {
		return err
	}
	// The id is the first object of a bucket. Looked for after the others, it
	// cannot be missed while they are seen.
	empty, err := isEmpty(ctx, b)
	if err != nil {
		return err
	}
	theirs, err := read(ctx, b)
	if err != nil {
		return err
	}
	// In a bucket that is still empty another installation may be about to
	// overwrite the id.
	switch {
	case empty && (theirs == "" || theirs == ours):
		theirs, err = write(ctx, b, ours)
	case empty:
		theirs, err = settled(ctx, b)
	}
	if err != nil {
		return err
	}
	return compare(b, ours, theirs)
}

// Check fails with a ForeignError unless database and bucket carry one id.
func Check(ctx context.Context, d *db.DB, b *objectstore.Bucket) error {
	ours, err := known(ctx, d)
	if err != nil {
		return err
	}
	theirs, err := read(ctx, b)
	if err != nil {
		return err
	}
	return compare(b, ours, theirs)
}

// Adopt gives the bucket the id of the database, whatever was there, and
// returns both the id that it had ("" for none) and the one that it has. The
// record names the actor, and is written first: better an adoption recorded that
// did not happen than the reverse.
func Adopt(ctx context.Context, d *db.DB, b *objectstore.Bucket, actor string) (before, after string, err error) {
	if after, err = ID(ctx, d); err != nil {
		return "", "", err
	}
	if before, err = read(ctx, b); err != nil || before == after {
		return before, after, err
	}
	err = d.InTx(ctx, func(tx *db.Tx) error {
		return audit.Record(ctx, tx, audit.Entry{Actor: actor, Action: audit.BucketAdopted, Target: after,
			Detail: audit.Detail{"bucket": b.Name(), "before": before}})
	})
	if err != nil {
		return "", "", err
	}
	return before, after, b.Save(ctx, objectKey, []byte(after+"\n"))
}

// State describes the pair without changing it, and fails where Claim would.
func State(ctx context.Context, d *db.DB, b *objectstore.Bucket) (string, error) {
	ours, err := known(ctx, d)
	if err != nil {
		ours = "" // not migrated yet, so it is not of the installation that filled the bucket
	}
	empty, err := isEmpty(ctx, b)
	if err != nil {
		return "", err
	}
	theirs, err := read(ctx, b)
	if err != nil {
		return "", err
	}
	if empty && theirs == "" {
		return "empty, will be of this database", nil
	}
	return "of this database", compare(b, ours, theirs)
}

func compare(b *objectstore.Bucket, ours, theirs string) error {
	if ours != "" && ours == theirs {
		return nil
	}
	return &ForeignError{Bucket: b.Name(), Theirs: theirs, Ours: ours}
}

// read returns the id in the bucket, "" where there is none.
func read(ctx context.Context, b *objectstore.Bucket) (string, error) {
	data, err := b.Load(ctx, objectKey)
	if errors.Is(err, objectstore.ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	id := strings.TrimSpace(string(data))
	if id == "" || len(id) > 100 {
		id = "an unreadable id"
	}
	return id, nil
}

// write puts our id into an empty bucket and returns the one that it has then:
// another installation may do the same at this moment, and one of them wins.
func write(ctx context.Context, b *objectstore.Bucket, ours string) (string, error) {
	data := []byte(ours + "\n")
	err := b.Create(ctx, objectKey, data)
	if err == nil {
		err = b.Create(ctx, objectKey, data) // refused now where the store honours the condition
	}
	switch {
	case errors.Is(err, objectstore.ErrExists):
		if theirs, err := read(ctx, b); theirs != "" || err != nil {
			return theirs, err
		}
		err = nil // it is only just being written
	case errors.Is(err, objectstore.ErrUnconditional):
		err = b.Save(ctx, objectKey, data)
	}
	if err != nil {
		return "", err
	}
	return settled(ctx, b)
}

// settled returns the id in the bucket once the last write has won. Whoever
// else claims it found it empty before ours could be seen, so their writes are
// on their way.
func settled(ctx context.Context, b *objectstore.Bucket) (string, error) {
	if err := httpcall.Sleep(ctx, settle); err != nil {
		return "", err
	}
	return read(ctx, b)
}

// errFound ends a listing early.
var errFound = errors.New("found")

// isEmpty reports whether the bucket holds nothing but the id and what a probe
// that was cut short left behind.
func isEmpty(ctx context.Context, b *objectstore.Bucket) (bool, error) {
	err := b.List(ctx, "", func(o objectstore.Info) error {
		if o.Key == objectKey || strings.HasPrefix(o.Key, "doctor/") || strings.HasPrefix(o.Key, "ready/") {
			return nil
		}
		return errFound
	})
	if errors.Is(err, errFound) {
		return false, nil
	}
	return err == nil, err
}
