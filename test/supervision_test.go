package test

import (
	"net"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"cutroom/internal/apitest"
)

// The service notifies systemd when it is ready, and then regularly that it is alive. SIGHUP
// does not end or interrupt it.
func TestSupervision(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	address := &net.UnixAddr{Name: filepath.Join(t.TempDir(), "notify"), Net: "unixgram"}
	systemd, err := net.ListenUnixgram("unixgram", address)
	if err != nil {
		t.Fatal(err)
	}
	defer systemd.Close()
	s := apitest.Start(t, apitest.Replicas(1), apitest.Env("NOTIFY_SOCKET", address.Name), apitest.Env("WATCHDOG_USEC", "30000000"))
	if err := syscall.Kill(s.PID(0), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if err := systemd.SetReadDeadline(time.Now().Add(maxWait)); err != nil {
		t.Fatal(err)
	}
	var heard []string
	for len(heard) < 3 {
		message := make([]byte, 100)
		n, err := systemd.Read(message)
		if err != nil {
			t.Fatalf("heard %q, then: %v", heard, err)
		}
		heard = append(heard, string(message[:n]))
	}
	if !slices.Equal(heard, []string{"READY=1", "WATCHDOG=1", "WATCHDOG=1"}) {
		t.Errorf("heard %q", heard)
	}
	s.Do(t, apitest.Request{Path: "/healthz"}).Expect(200)
	if !strings.Contains(s.Logs(), "SIGHUP ignored") {
		t.Error("the log says nothing of the SIGHUP")
	}
}
