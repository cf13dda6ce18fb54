package drill

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"cutroom/internal/sandbox/process"
	"cutroom/internal/testkit/apitest"
)

// front is an nginx with the configuration of deploy/, but without TLS, in front of two replicas.
type front struct {
	*testing.T
	url string
	dir string // of its configuration
	s   *apitest.Server
	cmd *exec.Cmd
}

func startFront(t *testing.T, s *apitest.Server) *front {
	t.Helper()
	f := &front{T: t, dir: t.TempDir(), s: s}
	var ports [2]string
	for i := range ports {
		var err error
		if ports[i], err = process.FreePort(); err != nil {
			t.Fatal(err)
		}
	}
	f.url = "http://127.0.0.1:" + ports[0]
	conf := f.read("nginx.conf",
		`(?m)^\s*ssl_.*$`, "",
		`listen 80 default_server;`, "listen 127.0.0.1:"+ports[1]+";",
		`listen 443 ssl http2( default_server)?;`, "listen 127.0.0.1:"+ports[0]+"$1;",
		`/etc/nginx/cutroom/`, f.dir+"/",
		`/var/log/nginx/|/run/`, f.dir+"/",
		`worker_rlimit_nofile 16384;`, "daemon off;",
		`user www-data;`, "user root;", // root may open the test's folder
		`limit_conn client 200;`, "",
	)
	f.write("nginx.conf", conf)
	f.useReplicas(f.read("replicas.conf"))
	f.cmd = f.nginx()
	if err := f.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.cmd.Process.Signal(syscall.SIGTERM); _ = f.cmd.Wait() })
	apitest.Eventually(t, 30*time.Second, func() bool {
		resp, err := http.Get(f.url + "/healthz")
		return err == nil && resp.Body.Close() == nil
	}, func() string { return "nginx does not listen" })
	return f
}

// nginx returns the command that starts nginx with the front's configuration, followed by more arguments.
func (f *front) nginx(args ...string) *exec.Cmd {
	cmd := exec.Command("/usr/sbin/nginx", append([]string{"-c", filepath.Join(f.dir, "nginx.conf"), "-p", f.dir}, args...)...)
	cmd.Stderr = os.Stderr
	return cmd
}

// useReplicas writes replicas.conf with the addresses of the test's replicas.
func (f *front) useReplicas(text string) {
	f.Helper()
	for i := range f.s.Processes() {
		text = strings.ReplaceAll(text, fmt.Sprintf("cutroom-%d:8080", i+1), strings.TrimPrefix(f.s.Replica(i).URL, "http://"))
	}
	f.write("replicas.conf", strings.ReplaceAll(text, "s3:7070", "127.0.0.1:1"))
}

func (f *front) write(name, text string) {
	f.Helper()
	if err := os.WriteFile(filepath.Join(f.dir, name), []byte(text), 0o644); err != nil {
		f.Fatal(err)
	}
}

// read returns a file of deploy/nginx with each pattern in changes replaced by the text after it.
func (f *front) read(name string, changes ...string) string {
	f.Helper()
	text, err := os.ReadFile("../../deploy/nginx/" + name)
	if err != nil {
		f.Fatal(err)
	}
	out := string(text)
	for i := 0; i < len(changes); i += 2 {
		out = regexp.MustCompile(changes[i]).ReplaceAllString(out, changes[i+1])
	}
	return out
}
