package store

import (
	"cmp"
	"encoding/json"
	"fmt"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"cutroom/internal/sandbox/fake"
)

// Refund reverses a transaction, or reinstates it.
func (s *PlatformB) Refund(transactionID string, refunded bool) (TransactionB, error) {
	return s.RefundShare(transactionID, refunded, 0)
}

// RefundShare is [PlatformB.Refund] for a share, in thousandths of a percent; 0 means all of it.
func (s *PlatformB) RefundShare(transactionID string, refunded bool, share int64) (TransactionB, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, known := s.transactions[transactionID]
	if !known {
		return TransactionB{}, fmt.Errorf("no transaction has the id %q", transactionID)
	}
	t.RevokedAtMs, t.RefundedShare = 0, 0
	if refunded {
		t.RevokedAtMs, t.RefundedShare = time.Now().UnixMilli(), share
	}
	s.transactions[transactionID] = t
	return t, nil
}

// Push returns a server notification, version 2, whose type is kind, such as REFUND.
func (s *PlatformB) Push(t TransactionB, kind string) Push {
	signed := s.signPayload(jwt.MapClaims{
		"notificationType": kind, "notificationUUID": fake.RandomHex(16), "version": "2.0", "signedDate": time.Now().UnixMilli(),
		"data": map[string]any{"bundleId": s.bundleID, "environment": cmp.Or(t.Environment, environment), "signedTransactionInfo": s.Sign(t)},
	}, t.Forged)
	return Push{Body: fake.Must(json.Marshal(map[string]string{"signedPayload": signed}))}
}
