package identity

import (
	"context"
	"errors"
	"net/http"

	"cutroom/internal/upstream/vendorhttp"
)

// get asks an identity provider; see vendorhttp.Do.
func get(ctx context.Context, client *http.Client, address string) (status int, body []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return 0, nil, errors.New("cannot form a request") // the cause quotes the address
	}
	req.Header.Set("Accept", "application/json")
	return vendorhttp.Do(client, req)
}
