// Package idempotency remembers a user's answers to requests with an Idempotency-Key for 24 hours, so that a client may
// repeat them.
//
// The transaction that does the work also stores the answer, so a repeat finds both or neither. The fingerprint covers
// what the request means, not its bytes on the wire: a repeated multipart body has another boundary, and an encoder may
// write the same JSON in another order.
package idempotency

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"cutroom/internal/base/db"
	"cutroom/internal/base/fault"
)

// Lifetime is how long a key is remembered.
const Lifetime = 24 * time.Hour

// MaxKeyLength bounds a key, in bytes.
const MaxKeyLength = 255

// Key is one client's idempotency key. The zero Key means that the client sent none. Every function then does nothing.
type Key struct {
	UserID      string
	Value       string
	Fingerprint string // hex digest of the request's content and endpoint
	OnReplay    func() // called if the answer is that of an earlier request; nil does nothing
}

// scheme begins the stored fingerprints that compare requests by meaning.
const scheme = "meaning:"

// errReused refuses a key that was used with another body.
var errReused = fault.Sentencef(fault.Invalid, "Idempotency-Key was already used with a different request")

// errRace reports that the same key was stored by a concurrent request between Find and save. The caller rolls back and
// calls Find again.
var errRace = errors.New("idempotency key stored concurrently")

// Find returns the stored answer of k, or "" if there is none. A key that was used with another fingerprint is the
// client's error.
func Find(ctx context.Context, q db.Querier, k Key) (answer string, err error) {
	answer, err = find(ctx, q, k)
	if answer != "" {
		k.replayed()
	}
	return answer, err
}

func (k Key) replayed() {
	if k.OnReplay != nil {
		k.OnReplay()
	}
}

func find(ctx context.Context, q db.Querier, k Key) (answer string, err error) {
	if k.Value == "" {
		return "", nil
	}
	var fingerprint string
	err = q.QueryRow(ctx, `SELECT fingerprint, answer FROM idempotency_keys
		WHERE user_id = $1 AND key = $2 AND created_at > now_ms() - $3`,
		k.UserID, k.Value, Lifetime.Milliseconds()).Scan(&fingerprint, &answer)
	if db.IsNoRows(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("find idempotency key: %w", err)
	}
	// For a day after an upgrade there are fingerprints of the bytes, which say nothing about the meaning.
	if strings.HasPrefix(fingerprint, scheme) && fingerprint != scheme+k.Fingerprint {
		return "", errReused
	}
	return answer, nil
}

// Prepare returns the stored answer of k. If there is none, it calls work, which does all that must precede [Once]. If
// work fails, Prepare looks for the answer again: in the meantime, an equal request may have spent the credits or taken
// the place that work lacked.
func Prepare(ctx context.Context, q db.Querier, k Key, work func() error) (answer string, err error) {
	if answer, err := Find(ctx, q, k); err != nil || answer != "" {
		return answer, err
	}
	err = work()
	if err == nil {
		return "", nil
	}
	if answer, ferr := Find(ctx, q, k); ferr != nil || answer != "" {
		return answer, ferr
	}
	return "", err
}

// Known reports whether k has an answer, even if the fingerprint differs.
func Known(ctx context.Context, q db.Querier, k Key) (bool, error) {
	_, err := find(ctx, q, k)
	if errors.Is(err, errReused) {
		return true, nil
	}
	return false, err
}

// save stores the answer of k in the transaction that does the work. It returns errRace if the key already exists.
func save(ctx context.Context, tx *db.Tx, k Key, answer string) error {
	if k.Value == "" {
		return nil
	}
	if _, err := tx.Exec(ctx, `DELETE FROM idempotency_keys WHERE user_id = $1 AND key = $2 AND created_at <= now_ms() - $3`,
		k.UserID, k.Value, Lifetime.Milliseconds()); err != nil {
		return fmt.Errorf("drop stale idempotency key: %w", err)
	}
	n, err := tx.Exec(ctx, `INSERT INTO idempotency_keys (user_id, key, fingerprint, answer, created_at)
		VALUES ($1, $2, $3, $4, now_ms()) ON CONFLICT (user_id, key) DO NOTHING`,
		k.UserID, k.Value, scheme+k.Fingerprint, answer)
	if err != nil {
		return fmt.Errorf("save idempotency key: %w", err)
	}
	if n == 0 {
		return errRace
	}
	return nil
}

// Once runs work in a transaction under key k and returns its answer. If another request with the same key has
// committed since the caller's Find, Once returns that request's answer instead, even if work failed: the first of two
// equal requests may have spent the credits that the second lacks.
func Once(ctx context.Context, d *db.DB, k Key,
	work func(tx *db.Tx) (answer string, err error)) (answer string, first bool, err error) {
	err = d.InTx(ctx, func(tx *db.Tx) error {
		if answer, err = work(tx); err != nil {
			return err
		}
		return save(ctx, tx, k, answer)
	})
	if err == nil {
		return answer, true, nil
	}
	stored, ferr := find(context.WithoutCancel(ctx), d, k)
	switch {
	case ferr != nil && errors.Is(err, errRace):
		return "", false, ferr
	case stored != "" && ferr == nil:
		// If only the reply to our commit was lost, the stored answer is our own.
		if stored != answer {
			k.replayed()
		}
		return stored, stored == answer, nil
	}
	return "", false, err
}

// Sweep forgets keys past their lifetime.
func Sweep(ctx context.Context, d *db.DB) error {
	_, err := d.Exec(ctx, `DELETE FROM idempotency_keys WHERE created_at <= now_ms() - $1`, Lifetime.Milliseconds())
	if err != nil {
		return fmt.Errorf("sweep idempotency keys: %w", err)
	}
	return nil
}
