package apitest

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
)

// shared is the service of the tests that need no special configuration. Each test uses its own users.
var shared struct {
	once   sync.Once
	server *Server
}

// forever is the testing.TB whose cleanups run when the test process ends.
var forever struct {
	once sync.Once
	life *lifetime
}

// Forever returns a testing.TB whose folders last until the test process ends, when its cleanups run. It is for
// fixtures that several tests use. A failure fails the process; Fatal panics. The package's TestMain must call Main.
func Forever(t testing.TB) testing.TB {
	forever.once.Do(func() { forever.life = &lifetime{TB: t} })
	return forever.life
}

// NewLife returns a testing.TB for a program that is not a test. end runs the cleanups and reports whether anything
// failed.
func NewLife() (t testing.TB, end func() (failed bool)) {
	l := &lifetime{}
	return l, l.end
}

// Shared returns a service that runs until the test process ends. API docs and dev mock are off; everything else has
// its default. Tests that inject faults, change the configuration, stop processes or count something across all users
// need Start. The package's TestMain must call Main.
func Shared(t testing.TB) *Server {
	t.Helper()
	shared.once.Do(func() {
		// Many tests separate at the same time. Tests of the queue start their own service.
		shared.server = start(Forever(t), []Option{Env("SEPARATION_MAX_PROVIDER_IN_FLIGHT", "5")})
	})
	s := shared.server
	offset := s.replicas[0].log.Len()
	t.Cleanup(func() {
		if t.Failed() {
			// Other tests use the service at the same time, so its INFO lines explain nothing.
			t.Logf("log of the shared service since the test began, without INFO lines:\n%s", tail(unusual(s.replicas[0].log.String()[offset:])))
		}
	})
	return s
}

// unusual returns the log without its INFO lines.
func unusual(log string) string {
	var b strings.Builder
	for line := range strings.Lines(log) {
		if !strings.Contains(line, `"level":"INFO"`) {
			b.WriteString(line)
		}
	}
	return b.String()
}

// Main runs the tests of a package, stops the shared service and removes the binary. It returns the exit status:
// os.Exit(apitest.Main(m)).
func Main(m *testing.M) int {
	code := m.Run()
	if shared.server != nil {
		shared.server.shutdown(forever.life)
	}
	if forever.life != nil && forever.life.end() && code == 0 {
		code = 1
	}
	if err := os.RemoveAll(buildDir); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return code
}

// lifetime is a testing.TB that may outlive a test. It implements only the methods that helpers in this module use.
type lifetime struct {
	testing.TB // for the interface's private method; may be nil

	mu      sync.Mutex
	cleanup []func()
	failed  bool
}

func (l *lifetime) Cleanup(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cleanup = append(l.cleanup, f)
}

func (l *lifetime) Context() context.Context { return context.Background() }
func (l *lifetime) Helper()                  {}

func (l *lifetime) TempDir() string {
	dir, err := os.MkdirTemp("", "cutroom-shared-")
	if err != nil {
		l.Fatalf("%v", err)
	}
	l.Cleanup(func() { _ = os.RemoveAll(dir) }) // an error leaves a temporary folder, which does no harm
	return dir
}

func (l *lifetime) Failed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed
}

func (l *lifetime) Logf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
}

func (l *lifetime) Errorf(format string, args ...any) {
	l.Logf(format, args...)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed = true
}

func (l *lifetime) Error(args ...any) { l.Errorf("%s", fmt.Sprint(args...)) }
func (l *lifetime) Log(args ...any)   { l.Logf("%s", fmt.Sprint(args...)) }

// Fatalf and Fatal end the process, because no test can run without the shared fixtures.
func (l *lifetime) Fatalf(format string, args ...any) {
	panic(fmt.Sprintf(format, args...))
}

func (l *lifetime) Fatal(args ...any) { l.Fatalf("%s", fmt.Sprint(args...)) }

// end runs the cleanups, last first, and reports whether anything failed.
func (l *lifetime) end() bool {
	for len(l.cleanup) > 0 {
		f := l.cleanup[len(l.cleanup)-1]
		l.cleanup = l.cleanup[:len(l.cleanup)-1]
		f()
	}
	return l.Failed()
}
