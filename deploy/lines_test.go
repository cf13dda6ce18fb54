package deploy

import (
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// lines that a file must have. Nothing fails without them, but signals are lost, addresses are open to the network,
// limits count the front as the client, or logs hold signed links.
var lines = map[string][]string{
	// The exec form: a shell in between would swallow SIGTERM.
	"Dockerfile":      {"USER 10001:10001", `ENTRYPOINT ["/usr/local/bin/cutroom"]`},
	"cutroom.service": {"Environment=BIND_ADDR=127.0.0.1", "Environment=OPS_ADDR=127.0.0.1:9090", "KillMode=mixed", "NoNewPrivileges=yes"},
	"nginx/nginx.conf": {
		// The front appends the client; with no hops the service uses the rightmost entry. Port 80 redirects to one
		// name, not to any Host.
		"return 308 https://$server_name$request_uri;",
		"proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;", "proxy_request_buffering off;", "proxy_buffering off;",
		// nginx logs whole request lines, which contain signed links, at every level below crit.
		"error_log /var/log/nginx/error.log crit;",
	},
	"docker-compose.yml": {`RATE_LIMIT_TRUSTED_PROXY_HOPS: "0"`, "- -cssl=on"},
}

// forbidden is what a file must not contain.
var forbidden = map[string]*regexp.Regexp{
	"nginx/nginx.conf":     regexp.MustCompile(`log_format[^;]*\$(request|request_uri|args|query_string|http_referer|http_authorization)\b|return 30\d \S*\$(host|http_host)\b`),
	"postgres/pg_hba.conf": regexp.MustCompile(`(?m)^\s*host(nossl|gssenc|nogssenc)?\s`),      // in without TLS
	"cutroom.service":      regexp.MustCompile(`(?m)^(MemoryDenyWriteExecute|PrivateUsers)=`), // break ffmpeg or its confinement
}

func TestFilesHaveTheLinesThatMatter(t *testing.T) {
	for file, wanted := range lines {
		text := read(t, file)
		for _, line := range wanted {
			if !regexp.MustCompile(`(?m)^\s*` + regexp.QuoteMeta(line) + `$`).MatchString(text) {
				t.Errorf("%s has no line %s", file, line)
			}
		}
	}
	for file, never := range forbidden {
		if m := never.FindString(read(t, file)); m != "" {
			t.Errorf("%s has %q", file, m)
		}
	}
	if n := strings.Count(read(t, "nginx/nginx.conf"), "add_header Strict-Transport-Security"); n != 4 { // in each block with headers of its own
		t.Errorf("nginx sends HSTS from %d blocks, want 4", n)
	}
}

func TestSettingsOfImageAndUnitAreKeys(t *testing.T) {
	for file, pattern := range map[string]string{"cutroom.service": `(?m)^Environment=([A-Z_]+)=`, "Dockerfile": `(?m)^(?:ENV|   ) ([A-Z_]+)=`} {
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(read(t, file), -1) {
			if _, ok := key(m[1]); !ok && m[1] != "CGO_ENABLED" {
				t.Errorf("%s sets %s, which is no key of the service", file, m[1])
			}
		}
	}
}

func TestUnitAllowsTheNamespacesOfConfinement(t *testing.T) {
	allowed := strings.Fields(one(t, "cutroom.service", `(?m)^RestrictNamespaces=(.*)$`))
	used := regexp.MustCompile(`CLONE_NEW(\w+)`).FindAllStringSubmatch(read(t, "../internal/film/media/confine/confine.go"), -1)
	if len(used) == 0 {
		t.Fatal("nothing uses namespaces")
	}
	for _, m := range used {
		if !slices.Contains(allowed, strings.ToLower(m[1])) {
			t.Errorf("RestrictNamespaces %v forbids a new %s namespace", allowed, m[1])
		}
	}
}

func TestWhatTheImageCopiesIsThereAndSent(t *testing.T) {
	sent := "\n" + read(t, "Dockerfile.dockerignore")
	copies := regexp.MustCompile(`(?m)^COPY (?:--chmod=\d+ )?([^-].*) \S+$`).FindAllStringSubmatch(read(t, "Dockerfile"), -1)
	if len(copies) < 4 {
		t.Errorf("the Dockerfile copies %d times", len(copies))
	}
	for _, m := range copies {
		for file := range strings.FieldsSeq(m[1]) {
			if _, err := os.Stat(path.Join("..", file)); err != nil {
				t.Error(err)
			}
			if !strings.Contains(sent, "\n!"+file+"\n") {
				t.Errorf("Dockerfile.dockerignore keeps %s from the builder", file)
			}
		}
	}
}
