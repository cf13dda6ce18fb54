package httpapi

import (
	"context"
	"errors"
	"testing"
)

// A request whose client leaves the line takes no turn with it.
func TestLeavingTheLine(t *testing.T) {
	turns := newTurns()
	for range maxTurns {
		if err := turns.take(t.Context(), "ann"); err != nil {
			t.Fatal(err)
		}
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	if err := turns.take(gone, "ann"); !errors.Is(err, context.Canceled) {
		t.Errorf("a client that left: %v", err)
	}
	for range maxTurns {
		turns.give("ann")
	}
	if len(turns.users) != 0 {
		t.Errorf("%d users are remembered", len(turns.users))
	}
}
