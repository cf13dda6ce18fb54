package events

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"cutroom/internal/base/db"
	"cutroom/internal/base/fault"
	"cutroom/internal/work/user"
)

// The platforms of devices.
const (
	PlatformA = "platform_a"
	PlatformB = "platform_b"
)

const (
	// maxDevices is how many devices an account may have. Another one replaces the oldest.
	maxDevices = 20
	// maxToken is the longest device token, in bytes.
	maxToken = 4096
)

// Devices registers the devices that get pushes about a user's jobs.
type Devices struct {
	db        *db.DB
	platforms []string // those with push configured
}

// NewDevices returns the registry for a service that pushes to the given platforms.
func NewDevices(d *db.DB, platforms ...string) *Devices { return &Devices{db: d, platforms: platforms} }

// PushTo reports whether push to a platform is configured.
func (s *Devices) PushTo(platform string) bool { return slices.Contains(s.platforms, platform) }

// Register assigns a device to a user, even if it belonged to another user. issued is when the caller's access token
// was issued: a later sign-out has forgotten the user's devices, and a token that is older than the sign-out must not
// add one.
func (s *Devices) Register(ctx context.Context, userID string, issued time.Time, platform, token string) error {
	id, platform, err := s.check(platform, token)
	if err != nil {
		return err
	}
	return s.db.InTx(ctx, func(tx *db.Tx) error {
		if _, err := user.LockSession(ctx, tx, userID, issued); err != nil {
			return err
		}
		// Deleting the row also deletes pending pushes for the former owner.
		if _, err := tx.Exec(ctx, `DELETE FROM devices WHERE id = $1 AND user_id <> $2`, id, userID); err != nil {
			return fmt.Errorf("move device: %w", err)
		}
		_, err := tx.Exec(ctx, `INSERT INTO devices (id, user_id, platform, token, turn, registered_at)
			SELECT $1, $2, $3, $4, COALESCE(MAX(turn), 0) + 1, now_ms() FROM devices WHERE user_id = $2
			ON CONFLICT (id) DO UPDATE SET user_id = excluded.user_id, turn = excluded.turn, registered_at = excluded.registered_at`,
			id, userID, platform, token)
		if err != nil {
			return fmt.Errorf("register device: %w", err)
		}
		_, err = tx.Exec(ctx, `DELETE FROM devices WHERE user_id = $1 AND id NOT IN
			(SELECT id FROM devices WHERE user_id = $1 ORDER BY turn DESC LIMIT $2)`, userID, maxDevices)
		if err != nil {
			return fmt.Errorf("remove old devices: %w", err)
		}
		return nil
	})
}

// Unregister deletes a device. Another user's device stays.
func (s *Devices) Unregister(ctx context.Context, userID, platform, token string) error {
	id, _, err := s.check(platform, token)
	if err != nil {
		return err
	}
	if _, err := s.db.Exec(ctx, `DELETE FROM devices WHERE id = $1 AND user_id = $2`, id, userID); err != nil {
		return fmt.Errorf("unregister device: %w", err)
	}
	return nil
}

// check returns a device's id and platform, or an error that says which argument is invalid.
func (s *Devices) check(platform, token string) (id, name string, err error) {
	platform = strings.ToLower(strings.TrimSpace(platform))
	switch {
	case platform != PlatformA && platform != PlatformB:
		return "", "", fault.New(fault.Invalid, "invalid_platform")
	case !s.PushTo(platform):
		return "", "", fault.New(fault.Unavailable, "push_disabled")
	case token == "" || len(token) > maxToken:
		return "", "", fault.Invalidf("token must have 1 to %d bytes", maxToken)
	case token != db.Clean(token, maxToken):
		return "", "", fault.Invalidf("token must not have control characters, or spaces around it")
	}
	sum := sha256.Sum256([]byte(platform + "\n" + token))
	return hex.EncodeToString(sum[:]), platform, nil
}

// ForgetDevices deletes all devices of a user.
func ForgetDevices(ctx context.Context, q db.Querier, userID string) error {
	if _, err := q.Exec(ctx, `DELETE FROM devices WHERE user_id = $1`, userID); err != nil {
		return fmt.Errorf("forget devices: %w", err)
	}
	return nil
}
