package dbtest

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"cutroom/internal/sandbox/process"
)

// Pooler is URL through a PgBouncer in the given pool mode: session or transaction.
func Pooler(t testing.TB, mode string) (address, user, password string) {
	t.Helper()
	address, user, password = URL(t)
	behind, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "cutroom-pooler-") // PgBouncer's user must be able to enter it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	cred, err := serverUser(dir)
	if err != nil {
		t.Fatal(err)
	}
	port, err := process.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := selfSigned()
	if err != nil {
		t.Fatal(err)
	}
	settings := fmt.Sprintf(`[databases]
* = host=%s port=%s user=%s password=%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %s
unix_socket_dir =
auth_type = any
pool_mode = %s
client_tls_sslmode = require
client_tls_cert_file = %[7]s/crt
client_tls_key_file = %[7]s/key
server_tls_sslmode = require
`, behind.Hostname(), behind.Port(), user, password, port, mode, dir)
	if err := writeFiles(dir, cred, map[string][]byte{"ini": []byte(settings), "crt": cert, "key": key}); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/usr/sbin/pgbouncer", filepath.Join(dir, "ini"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: cred, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatalf("start PgBouncer: %v", err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }) // it has no state to save
	behind.Host = net.JoinHostPort("127.0.0.1", port)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		c, err := net.Dial("tcp", behind.Host)
		if err == nil {
			_ = c.Close()
			return behind.String(), user, password
		}
		if time.Now().After(deadline) {
			t.Fatalf("PgBouncer does not listen: %v", err)
		}
	}
}
