// Package rescue turns panics into errors, so that a bug in one job or sweep does not end the process and all other
// jobs in it.
package rescue

import (
	"fmt"
	"path"
	"runtime"
	"strings"
)

// PanicError is a panic that was caught, as an error.
type PanicError struct {
	Value   any
	callers []uintptr
}

// shownFrames is how much of the stack an error's text holds.
const shownFrames = 8

// Error describes the panic and where it came from, innermost call first, in one line.
func (e *PanicError) Error() string {
	var calls []string
	frames := runtime.CallersFrames(e.callers)
	for len(calls) < shownFrames {
		f, more := frames.Next()
		if f.Function != "" && !strings.HasPrefix(f.Function, "runtime.") {
			calls = append(calls, fmt.Sprintf("%s:%d", path.Base(f.Function), f.Line))
		}
		if !more {
			break
		}
	}
	return fmt.Sprintf("panic: %v in %s", e.Value, strings.Join(calls, " < "))
}

// StackTrace returns the program counters of the goroutine when it panicked.
func (e *PanicError) StackTrace() []uintptr { return e.callers }

// Do calls do and returns a panic in it as a [*PanicError]. It does not catch panics in goroutines that do starts: give
// them to [Func].
func Do(do func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			callers := make([]uintptr, 64)
			err = &PanicError{Value: p, callers: callers[:runtime.Callers(2, callers)]}
		}
	}()
	return do()
}

// Func returns do for a goroutine, which calls it as [Do] would.
func Func(do func() error) func() error { return func() error { return Do(do) } }
