package media_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"cutroom/internal/media"
	"cutroom/internal/media/confine"
)

func TestMain(m *testing.M) {
	confine.Main()
	switch os.Getenv(roleEnv) {
	case "server":
		serverMain()
	case "poor kernel":
		poorKernelMain()
	}
	goleak.VerifyTestMain(m)
}

// roleEnv makes the test binary, started again, play another program.
const roleEnv = "CUTROOM_MEDIA_TEST_ROLE"

func newRunner(t *testing.T) *media.Runner {
	t.Helper()
	r, err := media.New(media.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}
