package job

import (
	"context"
	"errors"
	"time"
)

// Retry rides out a short failure of our own database or store: five tries over
// about fifteen seconds. A job that has moved on is not tried again.
func Retry(ctx context.Context, try func() error) error {
	wait := time.Second
	for attempt := 1; ; attempt++ {
		err := try()
		if err == nil || errors.Is(err, ErrMoved) || attempt == 5 || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(wait):
		}
		wait *= 2
	}
}
