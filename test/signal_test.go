package test

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"cutroom/internal/testkit/apitest"
)

// The first SIGTERM lets a running request end. A second one ends the service at once.
func TestSecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	s := apitest.Start(t, apitest.Replicas(1))
	address := strings.TrimPrefix(s.URL, "http://")
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	// The body of this request never arrives. The interim answer shows that its handler waits for it.
	fmt.Fprintf(conn, "POST /api/v2/auth/provider_a HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n"+
		"Content-Length: 100\r\nExpect: 100-continue\r\n\r\n", address)
	if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 100 ") {
		t.Fatalf("%q, %v", line, err)
	}
	terminate := func() {
		if err := syscall.Kill(s.PID(0), syscall.SIGTERM); err != nil && err != syscall.ESRCH { // it may end at any time
			t.Fatal(err)
		}
	}
	terminate()
	apitest.Eventually(t, time.Minute, func() bool {
		probe, err := net.Dial("tcp", address)
		if err == nil {
			_ = probe.Close()
		}
		return err != nil
	}, func() string { return "the service did not close its port" })
	if status, ended := s.Exited(0); ended {
		t.Fatalf("the service ended with status %d although a request ran", status)
	}
	apitest.Eventually(t, time.Minute, func() bool {
		status, ended := s.Exited(0)
		if ended && status != -1 {
			t.Fatalf("exit status %d, want the end by a signal", status)
		}
		if !ended {
			terminate() // the service may not have begun to heed it
		}
		return ended
	}, func() string { return "the service still runs" })
	s.Restart(t)
	s.SignIn(t)
}
