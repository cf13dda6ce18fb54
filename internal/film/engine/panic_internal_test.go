package engine

import (
	"context"
	"strings"
	"testing"
)

type panickingCoordinator struct{ PartCoordinator }

func (panickingCoordinator) Next(context.Context) (Part, error) { panic("boom") }

// A bug in one render ends neither the process nor the other renders.
func TestAPanicFailsItsRenderAlone(t *testing.T) {
	_, claimErr := PartLoop{Coordinator: panickingCoordinator{}, Parallel: func(int) int { return 1 }}.Claim(t.Context(), Part{})
	stepErr := each(t.Context(), 1, []int{1}, func(context.Context, int) error { panic("boom") })
	for _, err := range []error{claimErr, stepErr} {
		if err == nil || !strings.Contains(err.Error(), "panic: boom") {
			t.Errorf("%v, want the panic", err)
		}
	}
}
