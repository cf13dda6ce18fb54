package rescue_test

import (
	"errors"
	"strings"
	"testing"

	"cutroom/internal/base/rescue"
)

func TestAPanicBecomesAnErrorThatSaysWhere(t *testing.T) {
	var list []int
	err := rescue.Do(func() error { list[3] = 1; return nil })
	var p *rescue.PanicError
	if !errors.As(err, &p) {
		t.Fatalf("err = %v, want a PanicError", err)
	}
	for _, want := range []string{"panic: runtime error: index out of range [3]", "TestAPanicBecomesAnErrorThatSaysWhere"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
	if strings.Contains(err.Error(), "\n") || len(p.StackTrace()) == 0 {
		t.Errorf("text %q, %d callers", err, len(p.StackTrace()))
	}
	plain := errors.New("plain")
	if err := rescue.Func(func() error { return plain })(); err != plain {
		t.Errorf("an error becomes %v", err)
	}
}
