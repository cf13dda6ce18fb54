package identity_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"cutroom/internal/upstream/identity"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const clientID = "ios.cutroom.example"

// start is an instant with a fraction, so that rounding mistakes show.
var start = time.Date(2026, 3, 1, 12, 0, 0, 500_000_000, time.UTC)

// wantOnly checks that err is want and not the other of the two errors, and
// that it does not repeat the token.
func wantOnly(t *testing.T, err, want error, token string) {
	t.Helper()
	for _, sentinel := range []error{identity.ErrRejected, identity.ErrUnavailable} {
		if got := errors.Is(err, sentinel); got != (sentinel == want) {
			t.Errorf("errors.Is(%v, %v) = %t", err, sentinel, got)
		}
	}
	if err != nil && len(token) > 8 && strings.Contains(err.Error(), token) {
		t.Errorf("the error repeats the token: %v", err)
	}
}

// waitFor polls a condition that another goroutine fulfils.
func waitFor(t *testing.T, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !condition(); {
		if time.Now().After(deadline) {
			t.Fatal("condition never became true")
		}
		time.Sleep(time.Millisecond)
	}
}
