package lease

import (
	"fmt"
	"runtime/debug"
)

// PanicError is a panic that was caught, as an error.
type PanicError struct {
	Value any
	Stack string // of the goroutine that panicked
}

// Error describes the panic, without its stack.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// LogValue puts the stack into a log that says where.
func (e *PanicError) String() string { return e.Error() + "\n" + e.Stack }

// Guard runs a piece of background work and turns a panic in it into a
// [*PanicError], so that one job or sweep that trips over a bug of ours does not
// take the process, and every other job in it, down. It does not reach
// goroutines that do starts.
func Guard(do func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &PanicError{Value: p, Stack: string(debug.Stack())}
		}
	}()
	return do()
}
