// Tests of the files for the front: limits on uploads, health checks and certificates.

package deploy

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestFrontLetsUploadsThrough(t *testing.T) {
	values := func(name string) (out []string) {
		for _, m := range regexp.MustCompile(`(?m)^\s*`+name+` (.+);`).FindAllStringSubmatch(read(t, "nginx/nginx.conf"), -1) {
			out = append(out, m[1])
		}
		return out
	}
	upload, _ := key("MAX_UPLOAD_FILE_SIZE_MB")
	megabytes, err := strconv.Atoi(upload.Default)
	if err != nil {
		t.Fatal(err)
	}
	limits := values("client_max_body_size")
	if len(limits) != 2 {
		t.Fatalf("client_max_body_size is %v, want one for the service and one for the object store", limits)
	}
	for _, text := range limits {
		// Enough for the form around the files, so that the service itself refuses, but not much more, so that there is
		// one limit.
		n, err := strconv.Atoi(strings.TrimSuffix(text, "m"))
		if err != nil || n < megabytes+2 || n > megabytes*11/10 {
			t.Errorf("client_max_body_size %s with MAX_UPLOAD_FILE_SIZE_MB %d", text, megabytes)
		}
	}
	silence, err := strconv.Atoi(one(t, "../internal/api/httpserve/guard.go", `bodySilence: (\d+) \* time\.Second`))
	if err != nil {
		t.Fatal(err)
	}
	if got := values("client_body_timeout"); len(got) != 1 || seconds(t, got[0]) <= silence {
		t.Errorf("client_body_timeout %v: the service, after %d s, is to be the first", got, silence)
	}
	if got := values("proxy_read_timeout"); !slices.Contains(got, "600s") || !slices.Contains(got, "4s") {
		t.Errorf("proxy_read_timeout %v: 600 s for uploads, 4 s for what only reads rows", got)
	}
}

func seconds(t testing.TB, text string) int {
	t.Helper()
	n, err := strconv.Atoi(strings.TrimSuffix(text, "s"))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestHealthcheckTellsHealthyFromNot(t *testing.T) {
	status := http.StatusOK
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/healthz" {
			t.Errorf("asked for %s", r.URL.Path)
		}
		w.WriteHeader(status)
	}))
	defer srv.Close()
	u, err := url.Parse(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	env := []string{"PORT=" + u.Port()}
	run := func() error {
		cmd := exec.CommandContext(t.Context(), "bash", "healthcheck.sh")
		cmd.Env = append(os.Environ(), env...)
		return cmd.Run()
	}
	if err := run(); err != nil {
		t.Errorf("healthy: %v", err)
	}
	env = []string{"PORT=1", "ROLES=render,sweep", "OPS_ADDR=:" + u.Port()}
	if err := run(); err != nil {
		t.Errorf("healthy, without a public port: %v", err)
	}
	status = http.StatusServiceUnavailable
	if run() == nil {
		t.Error("503 counts as healthy")
	}
	srv.Close()
	if run() == nil {
		t.Error("nobody there counts as healthy")
	}
}

func TestCertificatesMatchTheirServers(t *testing.T) {
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Fatal("openssl is needed: apt-get install openssl")
	}
	root := t.TempDir()
	run := func(host string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "bash", "certs.sh")
		cmd.Env = append(os.Environ(), "CERTS_ROOT="+root, "CUTROOM_HOST="+host, "S3_HOST=s3.cutroom.example.com")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("certs.sh: %v\n%s", err, out)
		}
		return string(out)
	}
	verify := func(cert, keyFile string, names ...string) {
		t.Helper()
		authority := x509.NewCertPool()
		if !authority.AppendCertsFromPEM([]byte(read(t, filepath.Join(root, "tls/authority/ca.crt")))) {
			t.Fatal("no authority")
		}
		pair, err := tls.LoadX509KeyPair(filepath.Join(root, "tls", cert), filepath.Join(root, "tls", keyFile))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: authority, DNSName: name}); err != nil {
				t.Errorf("%s: %v", cert, err)
			}
		}
		if st, err := os.Stat(filepath.Join(root, "tls", keyFile)); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v, %v: PostgreSQL wants 0600", keyFile, st.Mode(), err)
		}
	}
	run("cutroom.example.com")
	verify("postgres/server.crt", "postgres/server.key", "postgres")
	verify("front/fullchain.pem", "front/privkey.pem", "cutroom.example.com", "s3.cutroom.example.com")
	before := read(t, filepath.Join(root, "tls/authority/ca.crt"))
	if out := run("cutroom.example.com"); !strings.Contains(out, "good") || read(t, filepath.Join(root, "tls/authority/ca.crt")) != before {
		t.Errorf("a second run replaces good certificates: %s", out)
	}
	run("other.example.com")
	verify("front/fullchain.pem", "front/privkey.pem", "other.example.com")
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err == nil && strings.HasPrefix(d.Name(), "ca.") && d.Name() != "ca.crt" {
			t.Errorf("%s is left behind", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
