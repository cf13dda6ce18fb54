package apitest

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
)

// shared is the service that tests use when they need no configuration and
// disturb nobody: each works with users of its own.
var shared struct {
	once   sync.Once
	server *Server
	err    error
}

// forever is the life of the test process.
var forever struct {
	once sync.Once
	life *lifetime
}

// Forever returns a testing.TB whose folders and cleanups live as long as the
// test process, for fixtures that many tests use. A failure reported to it
// fails the process; Fatal panics. The package's TestMain must call Main.
func Forever(t testing.TB) testing.TB {
	forever.once.Do(func() { forever.life = &lifetime{TB: t} })
	return forever.life
}

// NewLife returns a testing.TB for a program that is no test. end runs its cleanups and
// reports whether anything failed.
func NewLife() (t testing.TB, end func() (failed bool)) {
	l := &lifetime{}
	return l, l.end
}

// Shared returns a service that lives as long as the test process, with API
// docs and dev mock off and otherwise in default configuration. Tests that inject faults,
// change the configuration, stop processes or count anything over all users
// need Start instead. The package's TestMain must call Main.
func Shared(t testing.TB) *Server {
	t.Helper()
	shared.once.Do(func() {
		// Many tests separate at once; the queue has tests of its own.
		shared.server, shared.err = start(Forever(t), []Option{Env("SEPARATION_MAX_PROVIDER_IN_FLIGHT", "5")})
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	s := shared.server
	offset := s.replicas[0].log.Len()
	t.Cleanup(func() {
		if t.Failed() {
			// Other tests talk to it at the same time: only what stands out helps.
			t.Logf("log of the shared service since the test began, without the usual:\n%s", tail(unusual(s.replicas[0].log.String()[offset:])))
		}
	})
	return s
}

// unusual leaves out the lines of a log that say that all is well.
func unusual(log string) string {
	var b strings.Builder
	for line := range strings.Lines(log) {
		if !strings.Contains(line, `"level":"INFO"`) {
			b.WriteString(line)
		}
	}
	return b.String()
}

// Main runs the tests of a package, ends the shared service and removes the
// binary. Its result is the exit status: os.Exit(apitest.Main(m)).
func Main(m *testing.M) int {
	code := m.Run()
	if shared.server != nil {
		shared.server.shutdown(forever.life)
	}
	if forever.life != nil && forever.life.end() && code == 0 {
		code = 1
	}
	if build.dir != "" {
		if err := os.RemoveAll(build.dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	return code
}

// lifetime is a testing.TB that may outlive a test. Only the methods that helpers of this
// module use are replaced.
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
	l.Cleanup(func() { _ = os.RemoveAll(dir) }) // a leftover in the system's temp folder harms nobody
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

// Fatalf and Fatal end the process: no test can go on without what is shared.
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
