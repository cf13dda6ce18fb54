// Package installation ties a database to its bucket by an id that both carry. A bucket with another id, or with
// objects but no id, belongs to another database, and nothing may be removed from it.
package installation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"cutroom/internal/base/db"
	"cutroom/internal/base/httpcall"
	"cutroom/internal/storage/objectstore"
	"cutroom/internal/work/audit"
)

// objectKey is the object that holds the id.
const objectKey = "cutroom-installation"

// settle is how long the claim of an empty bucket waits for rival claims if the store has no conditional writes.
const settle = time.Second

// ForeignError says that a bucket does not belong to the database.
type ForeignError struct {
	Bucket string
	Theirs string // the id in the bucket, "" if it has none
	Ours   string // the id in the database
}

func (e *ForeignError) Error() string {
	const remedy = "Check DATABASE_URL and OBJECT_STORE_BUCKET; if the two are meant to go together, run `cutroom adopt-bucket`"
	if e.Theirs == "" {
		return fmt.Sprintf("the bucket %s has no installation id, so its objects may belong to another database. The first start of the "+
			"service writes the id into an empty bucket. %s", e.Bucket, remedy)
	}
	return fmt.Sprintf("the bucket %s belongs to another installation (%s; that of this database: %s). %s",
		e.Bucket, e.Theirs, cmp.Or(e.Ours, "none yet"), remedy)
}

// ID returns the id of the database and creates it on first use.
func ID(ctx context.Context, d *db.DB) (string, error) {
	id, err := known(ctx, d)
	if id != "" || err != nil {
		return id, err
	}
	// If several replicas start at once, one writes the id and all read it.
	if _, err := d.Exec(ctx, `INSERT INTO installation (single, id, created_at) VALUES (1, $1, now_ms()) ON CONFLICT DO NOTHING`,
		uuid.NewString()); err != nil {
		return "", fmt.Errorf("write the installation id: %w", err)
	}
	return known(ctx, d)
}

// known returns the id of the database, "" if it has none yet.
func known(ctx context.Context, d *db.DB) (id string, err error) {
	err = d.QueryRow(ctx, `SELECT id FROM installation WHERE single = 1`).Scan(&id)
	if err != nil && !db.IsNoRows(err) {
		return "", fmt.Errorf("read the installation id: %w", err)
	}
	return id, nil
}

// Claim checks that the bucket belongs to the database, and claims an empty bucket for it. It returns a ForeignError
// for any other bucket. lost reports that the bucket is empty and has no id although the database is not new: its files
// may be in another bucket, or on a disk.
func Claim(ctx context.Context, d *db.DB, b *objectstore.Bucket) (lost bool, err error) {
	before, err := known(ctx, d)
	if err != nil {
		return false, err
	}
	ours, err := ID(ctx, d)
	if err != nil {
		return false, err
	}
	empty, theirs, err := inspect(ctx, b)
	if err != nil {
		return false, err
	}
	lost = before != "" && empty && theirs == ""
	// While the bucket is empty, another installation may be about to overwrite the id.
	switch {
	case empty && (theirs == "" || theirs == ours):
		theirs, err = write(ctx, b, ours)
	case empty:
		theirs, err = settled(ctx, b)
	}
	if err != nil {
		return lost, err
	}
	return lost, compare(b, ours, theirs)
}

// Check returns a ForeignError unless database and bucket carry the same id.
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

// Adopt gives the bucket the id of the database, whatever it held, and returns the bucket's id before ("" for none) and
// after. The audit record names the actor. It is written first: a recorded adoption that did not happen is better than
// an unrecorded one that did.
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

// State describes database and bucket without changing them, and returns an error if Claim would.
func State(ctx context.Context, d *db.DB, b *objectstore.Bucket) (string, error) {
	ours, err := known(ctx, d)
	if err != nil {
		ours = "" // not migrated yet, so another installation filled the bucket
	}
	empty, theirs, err := inspect(ctx, b)
	if err != nil {
		return "", err
	}
	if empty && theirs == "" {
		return "empty; the first start makes it the bucket of this database", nil
	}
	return "of this database", compare(b, ours, theirs)
}

func compare(b *objectstore.Bucket, ours, theirs string) error {
	if ours != "" && ours == theirs {
		return nil
	}
	return &ForeignError{Bucket: b.Name(), Theirs: theirs, Ours: ours}
}

// inspect reports whether the bucket is empty, and returns its id. The id is the first object of a bucket. Reading
// it after the listing makes sure that it is found if the listing saw other objects.
func inspect(ctx context.Context, b *objectstore.Bucket) (empty bool, theirs string, err error) {
	if empty, err = isEmpty(ctx, b); err == nil {
		theirs, err = read(ctx, b)
	}
	return empty, theirs, err
}

// read returns the id in the bucket, "" if it has none.
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

// write puts our id into an empty bucket and returns the id that the bucket then has, because another installation may
// be writing at the same time.
func write(ctx context.Context, b *objectstore.Bucket, ours string) (string, error) {
	data := []byte(ours + "\n")
	err := b.Create(ctx, objectKey, data)
	if err == nil {
		err = b.Create(ctx, objectKey, data) // refused here if the store supports the condition
	}
	switch {
	case errors.Is(err, objectstore.ErrExists):
		if theirs, err := read(ctx, b); theirs != "" || err != nil {
			return theirs, err
		}
		err = nil // another installation is writing it right now
	case errors.Is(err, objectstore.ErrUnsupported):
		err = b.Save(ctx, objectKey, data)
	}
	if err != nil {
		return "", err
	}
	return settled(ctx, b)
}

// settled returns the id in the bucket after the last rival write. A rival that found the bucket empty did so before
// our id was visible, so its write arrives within settle.
func settled(ctx context.Context, b *objectstore.Bucket) (string, error) {
	if err := httpcall.Sleep(ctx, settle); err != nil {
		return "", err
	}
	return read(ctx, b)
}

// errFound ends a listing early.
var errFound = errors.New("found")

// isEmpty reports whether the bucket holds nothing but the id and leftovers of an interrupted probe.
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
