package httpapi

import (
	"context"
	"net/http"

	"cutroom/internal/account"
)

type deviceRequest struct {
	Platform string `json:"platform"`
	Token    string `json:"token"`
}

// device returns an endpoint that registers or unregisters a device of the caller.
func device(do func(ctx context.Context, userID, platform, token string) error) userHandler {
	return func(w http.ResponseWriter, r *http.Request, user account.Principal) error {
		var req deviceRequest
		if err := readSmall(w, r, &req); err != nil {
			return err
		}
		return noContent(w, do(r.Context(), user.UserID, req.Platform, req.Token))
	}
}
