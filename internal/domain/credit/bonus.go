package credit

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"cutroom/internal/base/db"
	"cutroom/internal/work/user"
)

// hadBonus reports whether an earlier account of the user's identity had the bonus.
func (l *Ledger) hadBonus(ctx context.Context, tx *db.Tx, userID string) (bool, error) {
	hash, err := l.identityOf(ctx, tx, userID)
	if err != nil || hash == "" {
		return false, err
	}
	return db.HasRow(ctx, tx, `SELECT 1 FROM bonus_identities WHERE identity_hash = $1`, hash)
}

// identityOf returns the hash that identifies a user's identity in the ledger: an HMAC of provider and subject. It is
// "" for an unknown user, and if every account gets the bonus.
func (l *Ledger) identityOf(ctx context.Context, tx *db.Tx, userID string) (string, error) {
	if l.o.BonusKey == "" {
		return "", nil
	}
	who, err := user.IdentityOf(ctx, tx, userID)
	if err != nil || who == (user.Identity{}) {
		return "", err
	}
	m := hmac.New(sha256.New, []byte(l.o.BonusKey))
	m.Write([]byte(who.Provider + "\x00" + who.Subject))
	return hex.EncodeToString(m.Sum(nil)), nil
}

// Forget removes the order numbers of a user's purchases inside the transaction that deletes the user. It keeps the
// fact that they were paid out and, if the bonus is granted once per identity, that this identity had it.
func (l *Ledger) Forget(ctx context.Context, tx *db.Tx, userID string) error {
	if _, err := lockBalance(ctx, tx, userID); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `DELETE FROM sale_notices WHERE (platform, order_id) IN (
		SELECT platform, order_id FROM purchases WHERE buyer_id = $1)`, userID); err != nil {
		return fmt.Errorf("forget notifications: %w", err)
	}
	if _, err := tx.Exec(ctx, `UPDATE purchases SET order_id = NULL WHERE buyer_id = $1`, userID); err != nil {
		return fmt.Errorf("forget order numbers: %w", err)
	}
	hash, err := l.identityOf(ctx, tx, userID)
	if err != nil || hash == "" {
		return err
	}
	if _, err := tx.Exec(ctx, `INSERT INTO bonus_identities (identity_hash, created_at)
		SELECT $1, now_ms() FROM credit_ledger WHERE ref_id = $2 ON CONFLICT (identity_hash) DO NOTHING`,
		hash, "signup-"+userID); err != nil {
		return fmt.Errorf("remember the bonus: %w", err)
	}
	return nil
}
