package job

import (
	"context"
	"errors"
	"time"

	"cutroom/internal/httpcall"
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
		if perr := httpcall.Sleep(ctx, wait); perr != nil {
			return err
		}
		wait *= 2
	}
}
