package media_test

import (
	"os"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"cutroom/internal/film/media"
	"cutroom/internal/film/media/confine"
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

// roleEnv makes the test binary, when started again, act as another program.
const roleEnv = "CUTROOM_MEDIA_TEST_ROLE"

// shared returns a shared runner, which checks the kernel only once.
var shared = sync.OnceValues(func() (*media.Runner, error) { return media.New(media.Config{}) })

func newRunner(t *testing.T) *media.Runner {
	t.Helper()
	r, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	return r
}
