package httpapi

import (
	"context"
	"net/http"
	"strconv"

	"cutroom/internal/base/fault"
	"cutroom/internal/domain/account"
	"cutroom/internal/domain/credit"
)

type balanceBody struct {
	Balance int64 `json:"balance"`
}

func (s *Server) balance(w http.ResponseWriter, r *http.Request, user account.Principal) error {
	n, err := s.o.Credits.Balance(r.Context(), user.UserID)
	return answer(w, balanceBody{n}, err)
}

func (s *Server) cost(w http.ResponseWriter, r *http.Request, user account.Principal) error {
	ms, err := strconv.ParseInt(only(r.URL.Query(), "durationMs"), 10, 64)
	if err != nil {
		return fault.New(fault.Invalid, "missing_duration_ms")
	}
	if ms < 0 {
		return fault.New(fault.Invalid, "duration_ms_negative")
	}
	q, err := s.o.Credits.Quote(r.Context(), user.UserID, ms)
	return answer(w, q, err)
}

func (s *Server) products(w http.ResponseWriter, _ *http.Request, _ account.Principal) error {
	return ok(w, map[string]any{"products": s.o.Credits.Products()})
}

type entryBody struct {
	Kind      string  `json:"kind"`
	Credits   int64   `json:"credits"`
	JobID     *string `json:"jobId"`
	CreatedAt int64   `json:"createdAt"` // epoch ms
}

func bodyOfEntry(e credit.Entry) entryBody {
	return entryBody{e.Kind, e.Credits, orNull(e.JobID), e.At.UnixMilli()}
}

type adminGrantRequest struct {
	ProductID string `json:"productId"`
}

func (s *Server) adminGrant(ctx context.Context, userID string, req adminGrantRequest) (credit.Grant, error) {
	return s.o.Credits.AdminGrant(ctx, userID, req.ProductID)
}

// storeNotification receives a store's notifications about sales. It answers every signed one with 200, even an
// unknown one, so that the store stops repeating it.
func (s *Server) storeNotification(platform string) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		body, err := readBody(w, r)
		if err != nil {
			return err
		}
		return answer(w, struct{}{}, s.o.Credits.Notify(r.Context(), platform, bearer(r), body))
	}
}
