// Package drill rehearses failures of whole machines. Its tests measure real time, so no other test
// run includes them. See the drill- targets of the Makefile.
package drill

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"cutroom/internal/apitest"
)

func TestMain(m *testing.M) { os.Exit(apitest.Main(m)) }

// watchdog is how long systemd takes to replace a hung replica: WatchdogSec, TimeoutAbortSec,
// RestartSec and a start.
const watchdog = 20 * time.Second

// A suspended replica accepts connections but sends no responses. The nginx of deploy/, in front of two
// replicas, must stop using it after one time-out, and use it again after systemd has restarted it.
func TestHungReplica(t *testing.T) {
	if os.Getenv("CUTROOM_DRILL") == "" {
		t.Skip("runs in make drill-hang")
	}
	s := apitest.Start(t, apitest.Replicas(2))
	token := s.SignIn(t).Token
	load := startLoad(t, startFront(t, s).url, token)
	time.Sleep(3 * time.Second)

	if err := syscall.Kill(s.PID(0), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	hung := time.Now()
	time.Sleep(watchdog)
	if err := syscall.Kill(s.PID(0), syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	before := strings.Count(s.Replica(0).Logs(), `"msg":"request"`)
	time.Sleep(30*time.Second - watchdog)
	load.end()

	after := strings.Count(s.Replica(0).Logs(), `"msg":"request"`)
	t.Logf("%d requests, %d failed; %d took longer than a second, the longest %v; replica 0 answered %d in the 10 s after its return",
		load.count, load.failed, load.slow, load.longest.Round(time.Millisecond), after-before)
	if load.failed > 0 || load.longest > 5*time.Second {
		t.Errorf("%d requests failed (%v), the longest took %v", load.failed, load.failure, load.longest)
	}
	if late := load.lastSlow.Sub(hung); late > 6*time.Second {
		t.Errorf("a request was still slow %v after the replica hung", late)
	}
	if after == before {
		t.Error("replica 0 is not used again")
	}
}

// load is 16 clients that repeatedly request a balance.
type load struct {
	end func()

	mu            sync.Mutex
	count, failed int
	slow          int
	failure       error
	longest       time.Duration
	lastSlow      time.Time
}

func startLoad(t *testing.T, front, token string) *load {
	l := &load{}
	stop := make(chan struct{})
	var clients sync.WaitGroup
	l.end = sync.OnceFunc(func() { close(stop); clients.Wait() })
	t.Cleanup(l.end)
	for range 16 {
		clients.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(20 * time.Millisecond):
					l.ask(front, token)
				}
			}
		})
	}
	return l
}

func (l *load) ask(front, token string) {
	began := time.Now()
	err := balance(front, token)
	took := time.Since(began)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count++
	l.longest = max(l.longest, took)
	if took > time.Second {
		l.slow++
		l.lastSlow = time.Now()
	}
	if err != nil {
		l.failed++
		l.failure = err
	}
}

func balance(front, token string) error {
	req, err := http.NewRequest(http.MethodGet, front+"/api/v2/credits", nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%d %s %w", resp.StatusCode, body, err)
	}
	return nil
}
