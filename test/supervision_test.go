package test

import (
	"net"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"cutroom/internal/testkit/apitest"
)

// The service notifies systemd when it is ready, and then sends regular watchdog messages. SIGHUP does not stop it.
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
	var received []string
	for len(received) < 3 {
		message := make([]byte, 100)
		n, err := systemd.Read(message)
		if err != nil {
			t.Fatalf("received %q, then: %v", received, err)
		}
		received = append(received, string(message[:n]))
	}
	if !slices.Equal(received, []string{"READY=1", "WATCHDOG=1", "WATCHDOG=1"}) {
		t.Errorf("received %q", received)
	}
	s.Do(t, apitest.Request{Path: "/healthz"}).Expect(200)
}
