package httpapi

import (
	"context"
	"net/http"
	"strings"

	"cutroom/internal/account"
	"cutroom/internal/fault"
	"cutroom/internal/idempotency"
)

// keyed gives a handler the Idempotency-Key, so that an invalid key is refused before the body is read. The handler
// adds the request's fingerprint.
func keyed(h func(w http.ResponseWriter, r *http.Request, user account.Principal, key idempotency.Key) error) userHandler {
	return func(w http.ResponseWriter, r *http.Request, user account.Principal) error {
		key, err := idempotencyKey(w, r, user)
		if err != nil {
			return err
		}
		return h(w, r, user, key)
	}
}

// idempotencyKey reads the optional header.
func idempotencyKey(w http.ResponseWriter, r *http.Request, user account.Principal) (idempotency.Key, error) {
	v := strings.TrimSpace(r.Header.Get("Idempotency-Key"))
	if len(v) > idempotency.MaxKeyLength || strings.ContainsFunc(v, func(c rune) bool { return c < ' ' || c > '~' }) {
		return idempotency.Key{}, fault.Invalidf("Idempotency-Key must be at most %d printable ASCII characters", idempotency.MaxKeyLength)
	}
	return idempotency.Key{UserID: user.UserID, Value: v, OnReplay: func() { w.Header().Set("Idempotent-Replayed", "true") }}, nil
}

type jobBody struct {
	JobID string `json:"jobId"`
}

// submitted answers with a body that names the submitted job, or returns the domain's error.
func submitted(w http.ResponseWriter, r *http.Request, status int, jobID string, body any, err error) error {
	if err != nil {
		return err
	}
	about(r.Context()).jobID = jobID
	writeJSON(w, status, body)
	return nil
}

// deleteJob returns the endpoint that cancels and deletes a job. remove determines the kind.
func deleteJob(remove func(ctx context.Context, owner, jobID string) error) userHandler {
	return func(w http.ResponseWriter, r *http.Request, user account.Principal) error {
		return noContent(w, remove(r.Context(), user.UserID, r.PathValue("jobId")))
	}
}
