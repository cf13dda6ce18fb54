package deploy

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// directives parses nginx's configuration into one line a directive, with the
// blocks around it in front: "http/server/location / proxy_pass http://x".
func directives(t testing.TB, file string) []string {
	t.Helper()
	token := regexp.MustCompile(`#[^\n]*|'[^']*'|"[^"]*"|[{};]|[^\s{};]+`)
	var blocks, words, out []string
	for _, w := range token.FindAllString(read(t, file), -1) {
		switch {
		case strings.HasPrefix(w, "#"):
		case w == ";":
			if len(words) == 0 {
				t.Fatalf("%s: a semicolon too many in %v", file, blocks)
			}
			out = append(out, strings.Join(append(append([]string{}, blocks...), strings.Join(words, " ")), "/"))
			words = nil
		case w == "{":
			blocks, words = append(blocks, strings.Join(words, " ")), nil
		case w == "}":
			if len(words) > 0 || len(blocks) == 0 {
				t.Fatalf("%s: %v is not ended before }", file, words)
			}
			blocks = blocks[:len(blocks)-1]
		default:
			words = append(words, w)
		}
	}
	if len(blocks)+len(words) > 0 {
		t.Fatalf("%s ends within %v %v", file, blocks, words)
	}
	return out
}

// values are the values of a directive, wherever it stands.
func values(list []string, name string) []string {
	var out []string
	for _, d := range list {
		d = d[strings.LastIndex(d, "/"+name+" ")+1:]
		if v, ok := strings.CutPrefix(d, name+" "); ok {
			out = append(out, v)
		}
	}
	return out
}

func TestFrontFitsTheService(t *testing.T) {
	d := directives(t, "nginx/nginx.conf")
	for name, want := range map[string]string{
		"proxy_request_buffering": "off", "proxy_buffering": "off", "proxy_max_temp_file_size": "0",
		"proxy_http_version": "1.1", "merge_slashes": "off", "proxy_next_upstream": "error timeout",
	} {
		if got := values(d, name); len(got) != 1 || got[0] != want {
			t.Errorf("%s is %v, want %s", name, got, want)
		}
	}
	headers := strings.Join(values(d, "proxy_set_header"), "\n")
	for _, want := range []string{"X-Forwarded-For $proxy_add_x_forwarded_for", "Host $http_host"} {
		if !strings.Contains(headers, want) {
			t.Errorf("headers are %q, want %s", headers, want)
		}
	}
	// The front appends the client, so the rightmost entry is it.
	for name, s := range compose(t).replicas() {
		if hops := s.Environment["RATE_LIMIT_TRUSTED_PROXY_HOPS"]; hops != "0" {
			t.Errorf("%s counts %s hops behind one proxy, want 0", name, hops)
		}
	}
}

func TestFrontLetsUploadsThrough(t *testing.T) {
	d := directives(t, "nginx/nginx.conf")
	upload, _ := key("MAX_UPLOAD_FILE_SIZE_MB")
	megabytes, err := strconv.Atoi(upload.Default)
	if err != nil {
		t.Fatal(err)
	}
	limits := values(d, "client_max_body_size")
	if len(limits) != 2 {
		t.Fatalf("client_max_body_size is %v, want one for the service and one for the object store", limits)
	}
	for _, text := range limits {
		// Enough for the form around the files, so that the service itself
		// refuses; and not much more, so that the limit is one.
		n, err := strconv.Atoi(strings.TrimSuffix(text, "m"))
		if err != nil || n < megabytes+2 || n > megabytes*11/10 {
			t.Errorf("client_max_body_size %s with MAX_UPLOAD_FILE_SIZE_MB %d", text, megabytes)
		}
	}
	silence, err := strconv.Atoi(one(t, "../internal/httpapi/timeouts.go", `bodySilence: (\d+) \* time\.Second`))
	if err != nil {
		t.Fatal(err)
	}
	if got := values(d, "client_body_timeout"); len(got) != 1 || seconds(t, got[0]) <= silence {
		t.Errorf("client_body_timeout %v: the service, after %d s, is to be the first", got, silence)
	}
	if got := values(d, "proxy_read_timeout"); len(got) != 1 || seconds(t, got[0]) < 300 {
		t.Errorf("proxy_read_timeout %v: an upload is answered when it is stored", got)
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

func TestFrontReachesReplicasAndStore(t *testing.T) {
	c := compose(t)
	upstreams := directives(t, "nginx/replicas.conf")
	ports := map[string]string{}
	for name, s := range c.replicas() {
		ports[name] = s.Environment["PORT"]
	}
	for i, arg := range c.Services["s3"].Command {
		if arg == "--port" {
			ports["s3"] = strings.TrimPrefix(c.Services["s3"].Command[i+1], ":")
		}
	}
	for name, port := range ports {
		upstream := "upstream cutroom"
		if name == "s3" {
			upstream = "upstream object_store"
		}
		found := false
		for _, d := range upstreams {
			found = found || strings.HasPrefix(d+" ", fmt.Sprintf("%s/server %s:%s ", upstream, name, port))
		}
		if !found {
			t.Errorf("%s:%s is not in %s", name, port, upstream)
		}
	}
	if len(upstreams) != len(ports) {
		t.Errorf("%d servers behind the front, want %d", len(upstreams), len(ports))
	}
	d := directives(t, "nginx/nginx.conf")
	for _, to := range values(d, "proxy_pass") {
		if !strings.Contains(read(t, "nginx/replicas.conf"), "upstream "+strings.TrimPrefix(to, "http://")+" {") {
			t.Errorf("proxy_pass to %s, which is no upstream", to)
		}
	}
	env, _ := envExample(t)
	if !regexp.MustCompile(`^s3\.`).MatchString(env["S3_HOST"]) || strings.HasPrefix(env["CUTROOM_HOST"], "s3.") {
		t.Error("the front tells the object store by a name that begins with s3.")
	}
	script := read(t, "rolling-restart.sh")
	for name, port := range ports {
		if name == "s3" {
			continue
		}
		if !strings.Contains(read(t, "nginx/replicas.conf"), "server "+name+":"+port+" ") || !strings.Contains(script, "server $replica:"+port+" ") || !strings.Contains(script, name) {
			t.Errorf("rolling-restart.sh does not find %s", name)
		}
	}
	scraped := read(t, "prometheus.yml")
	for name, s := range c.replicas() {
		if target := fmt.Sprintf("%q", name+s.Environment["OPS_ADDR"]); !strings.Contains(scraped, target) {
			t.Errorf("prometheus.yml does not scrape %s", target)
		}
	}
}

func TestScriptsParse(t *testing.T) {
	for _, name := range []string{"certs.sh", "rolling-restart.sh", "healthcheck.sh"} {
		if out, err := exec.CommandContext(t.Context(), "bash", "-n", name).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
		if st, err := os.Stat(name); err != nil || st.Mode()&0o111 == 0 {
			t.Errorf("%s cannot be executed (%v)", name, err)
		}
	}
}

func TestCertificatesServeWhoTheyAreFor(t *testing.T) {
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
