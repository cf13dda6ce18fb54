package store

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"cutroom/internal/sandbox/api"
	"cutroom/internal/sandbox/fake"
)

// Push is a notification for the app's server.
type Push struct {
	Bearer string // "" for a store that signs the body itself
	Body   []byte
}

// Send delivers a push. It returns an error if the server refuses it; a store would then retry.
func (p Push) Send(ctx context.Context, address string) error {
	_, err := api.New("").Call(ctx, api.Request{Method: http.MethodPost, Path: address, Token: p.Bearer, Raw: string(p.Body)}, nil)
	return err
}

// Refund reverses a purchase: its state becomes cancelled, and it is listed among the voided purchases.
func (s *PlatformA) Refund(token string) (PurchaseA, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, known := s.purchases[token]
	if !known {
		return PurchaseA{}, fmt.Errorf("no purchase has the token %q", token)
	}
	p.PurchaseState = 1
	s.purchases[token] = p
	s.voided = append(s.voided, token)
	return p, nil
}

// Push returns the notification of a refund, as the message queue delivers it.
func (s *PlatformA) Push(p PurchaseA) Push {
	data := fake.Must(json.Marshal(map[string]any{
		"version": "1.0", "packageName": s.packageName, "eventTimeMillis": strconv.FormatInt(time.Now().UnixMilli(), 10),
		"voidedPurchaseNotification": map[string]any{
			"purchaseToken": p.Token, "orderId": p.OrderID, "productType": 2, "refundType": 1},
	}))
	return Push{Bearer: s.PushToken(nil), Body: fake.Must(json.Marshal(map[string]any{
		"message":      map[string]any{"data": base64.StdEncoding.EncodeToString(data), "messageId": randomDigits(15)},
		"subscription": "projects/sandbox-project/subscriptions/refunds",
	}))}
}

// PushToken returns the bearer token of a push; changes replace claims.
func (s *PlatformA) PushToken(changes map[string]any) string {
	now := time.Now()
	claims := jwt.MapClaims{"iss": pushIssuer, "aud": PushAudience, "sub": "113774264463038321964", "azp": "113774264463038321964",
		"email": PushSender, "email_verified": true, "iat": now.Unix(), "exp": now.Add(time.Hour).Unix()}
	fake.Adjust(claims, changes, nil)
	token := jwt.NewWithClaims(jwt.SigningMethodRS256, claims)
	token.Header["kid"] = s.account.Key.ID
	return fake.Must(token.SignedString(s.account.Key.Private))
}

func (s *PlatformA) listVoided(w http.ResponseWriter, r *http.Request) {
	if !s.admits(w, r) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// Pages of two, so that reading only the first page fails a test.
	const page = 2
	from, _ := strconv.Atoi(r.URL.Query().Get("token"))
	from = min(max(from, 0), len(s.voided))
	to := min(from+page, len(s.voided))
	list := []map[string]any{}
	for _, token := range s.voided[from:to] {
		list = append(list, map[string]any{"kind": "androidpublisher#voidedPurchase", "purchaseToken": token,
			"orderId": s.purchases[token].OrderID, "voidedSource": 0, "voidedReason": 1,
			"voidedTimeMillis": strconv.FormatInt(time.Now().UnixMilli(), 10)})
	}
	answer := map[string]any{"voidedPurchases": list}
	if to < len(s.voided) {
		answer["tokenPagination"] = map[string]string{"nextPageToken": strconv.Itoa(to)}
	}
	fake.WriteJSON(w, http.StatusOK, answer)
}
