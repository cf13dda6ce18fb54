package receipt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
)

// nothing is the id of a purchase that does not exist.
const nothing = "0"

// Check tests our credentials with a query for a purchase that does not exist. The store answers it only for a
// known app.
func (p *PlatformA) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	status, body, err := p.get(ctx, p.purchasesURL+"products/"+nothing+"/tokens/"+nothing)
	switch {
	case err != nil:
		return fmt.Errorf("platform_a: %w", err)
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return fmt.Errorf("platform_a: the service account has no access to the app's purchases: status %d", status)
	case reasonOf(body) == "applicationNotFound":
		return errors.New("platform_a: the store knows no app of this package name")
	}
	return nil
}

// reasonOf returns the store's error code, or "".
func reasonOf(body []byte) string {
	var answer struct {
		Error struct {
			Errors []struct {
				Reason string `json:"reason"`
			} `json:"errors"`
		} `json:"error"`
	}
	if json.Unmarshal(body, &answer) != nil || len(answer.Error.Errors) == 0 {
		return ""
	}
	return answer.Error.Errors[0].Reason
}

// Check tests our credentials with a query for a transaction that does not exist. The store answers it only for a known
// app.
func (p *PlatformB) Check(ctx context.Context) error {
	return p.check(ctx, p.cfg.BaseURL)
}

// Tests returns the check of the store of test purchases, or nil if these are not accepted in addition to production
// ones.
func (p *PlatformB) Tests() *PlatformBTests {
	if p == nil || p.cfg.SandboxURL == "" {
		return nil
	}
	return &PlatformBTests{p}
}

// PlatformBTests is platform_b's store of test purchases.
type PlatformBTests struct{ store *PlatformB }

// Check is [PlatformB.Check] for test purchases.
func (p *PlatformBTests) Check(ctx context.Context) error {
	return p.store.check(ctx, p.store.cfg.SandboxURL)
}

func (p *PlatformB) check(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	bearer, err := p.requestToken()
	if err != nil {
		return fmt.Errorf("platform_b: sign request: %w", err)
	}
	status, _, err := authorizedGet(ctx, p.client, address+transactionsPath+nothing, bearer)
	switch {
	case err != nil:
		return fmt.Errorf("platform_b: %w", err)
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return fmt.Errorf("platform_b: the key, its id, the issuer or the bundle id is refused, or the app was never released: status %d", status)
	}
	return nil
}
