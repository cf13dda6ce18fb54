package media_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"cutroom/internal/media"
)

func TestMain(m *testing.M) {
	media.CageMain()
	if os.Getenv(parentEnv) != "" {
		parentMain()
	}
	goleak.VerifyTestMain(m)
}

func newRunner(t *testing.T) *media.Runner {
	t.Helper()
	r, err := media.New(media.Config{CageLog: func(msg string) { t.Log(msg) }})
	if err != nil {
		t.Fatal(err)
	}
	return r
}
