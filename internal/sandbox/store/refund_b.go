package store

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"cutroom/internal/sandbox/fake"
)

// Refund reverses a transaction, or reinstates it.
func (s *PlatformB) Refund(transactionID string, refunded bool) (TransactionB, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, known := s.transactions[transactionID]
	if !known {
		return TransactionB{}, fmt.Errorf("no transaction has the id %q", transactionID)
	}
	if t.RevokedAtMs = 0; refunded {
		t.RevokedAtMs = time.Now().UnixMilli()
	}
	s.transactions[transactionID] = t
	return t, nil
}

// Push returns a server notification, version 2, of the type REFUND or another.
func (s *PlatformB) Push(t TransactionB, kind string) Push {
	signed := s.signPayload(jwt.MapClaims{
		"notificationType": kind, "notificationUUID": fake.RandomHex(16), "version": "2.0", "signedDate": time.Now().UnixMilli(),
		"data": map[string]any{"bundleId": s.bundleID, "environment": environment, "signedTransactionInfo": s.Sign(t)},
	}, t.Forged)
	return Push{Body: fake.Must(json.Marshal(map[string]string{"signedPayload": signed}))}
}
