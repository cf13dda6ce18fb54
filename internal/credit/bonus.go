package credit

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"

	"cutroom/internal/db"
	"cutroom/internal/user"
)

// identities recognises who has had the signup bonus in an account that is gone.
//
// What it keeps of a person is an HMAC of provider and subject under a key of
// its own, drawn once. The key lies in the database sealed under every secret of
// the configuration it was given, so a copy of the database alone recognises
// nobody, and a rotation of secrets loses the key only when it replaces all of
// them at once: each start opens it with what it has and seals it anew for what
// is missing.
type identities struct{ key []byte }

// bonusKey names the key in the table.
const bonusKey = "bonus-identities"

// newIdentities opens the key, or draws it.
func newIdentities(ctx context.Context, d *db.DB, secrets []string) (*identities, error) {
	var id identities
	err := d.InTx(ctx, func(tx *db.Tx) error {
		if err := tx.Lock(ctx, bonusKey); err != nil {
			return err
		}
		sealed, err := db.Texts(tx.Query(ctx, `SELECT sealed FROM sealed_keys WHERE name = $1 ORDER BY created_at`, bonusKey))
		if err != nil {
			return err
		}
		opens := make([]bool, len(secrets))
		id.key = nil
		for i, secret := range secrets {
			for _, s := range sealed {
				if key, err := unseal(secret, s); err == nil && (id.key == nil || hmac.Equal(id.key, key)) {
					id.key, opens[i] = key, true
				}
			}
		}
		if id.key == nil {
			id.key = make([]byte, sha256.Size)
			_, _ = rand.Read(id.key) // never fails
		}
		for i, secret := range secrets {
			if opens[i] {
				continue
			}
			s, err := seal(secret, id.key)
			if err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, `INSERT INTO sealed_keys (name, sealed, created_at) VALUES ($1, $2, now_ms())`, bonusKey, s); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("key of the bonus: %w", err)
	}
	return &id, nil
}

// box is what a secret seals with.
func box(secret string) (cipher.AEAD, error) {
	key, err := hkdf.Key(sha256.New, []byte(secret), nil, "cutroom "+bonusKey, 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

func seal(secret string, key []byte) (string, error) {
	b, err := box(secret)
	if err != nil {
		return "", err
	}
	return base64.RawStdEncoding.EncodeToString(b.Seal(nil, nil, key, nil)), nil
}

func unseal(secret, sealed string) ([]byte, error) {
	b, err := box(secret)
	if err != nil {
		return nil, err
	}
	raw, err := base64.RawStdEncoding.DecodeString(sealed)
	if err != nil {
		return nil, err
	}
	return b.Open(nil, nil, raw, nil)
}

// hash is what is kept of a person.
func (id *identities) hash(provider, subject string) string {
	m := hmac.New(sha256.New, id.key)
	m.Write([]byte(provider + "\x00" + subject))
	return hex.EncodeToString(m.Sum(nil))
}

// hadBonus reports whether an earlier account of the user's identity had the
// bonus.
func (l *Ledger) hadBonus(ctx context.Context, tx *db.Tx, userID string) (bool, error) {
	hash, err := l.identityOf(ctx, tx, userID)
	if err != nil || hash == "" {
		return false, err
	}
	var one int
	err = tx.QueryRow(ctx, `SELECT 1 FROM bonus_identities WHERE identity_hash = $1`, hash).Scan(&one)
	if db.IsNoRows(err) {
		return false, nil
	}
	return err == nil, err
}

// identityOf returns the hash of a user's identity, "" for an unknown user and
// where identities are not remembered.
func (l *Ledger) identityOf(ctx context.Context, tx *db.Tx, userID string) (string, error) {
	if l.identities == nil {
		return "", nil
	}
	who, err := user.IdentityOf(ctx, tx, userID)
	if err != nil || who == (user.Identity{}) {
		return "", err
	}
	return l.identities.hash(who.Provider, who.Subject), nil
}

// Forget removes what names a user's purchases, inside the transaction that
// deletes the user. That they were paid out stays known, and, where the bonus is
// granted once, that this identity has had it.
func (l *Ledger) Forget(ctx context.Context, tx *db.Tx, userID string) error {
	if _, err := lockBalance(ctx, tx, userID); err != nil {
		return err
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
