package deploy

import (
	"go/version"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// lines that a file must have, each exactly once. No other line may begin with the
// same word, because a second one would override the first.
var lines = map[string][]string{
	"Dockerfile": {
		// Numbers other than 0, which orchestrators can check.
		"USER 10001:10001",
		// The exec form: a shell in between would swallow SIGTERM.
		"STOPSIGNAL SIGTERM", `ENTRYPOINT ["/usr/local/bin/cutroom"]`, `CMD ["serve"]`,
		`HEALTHCHECK --interval=5s --timeout=3s --start-period=30s --retries=3 CMD ["/usr/local/bin/cutroom-healthcheck"]`,
		`ENV STORAGE_PATH=/var/lib/cutroom \`, "VOLUME /var/lib/cutroom", "&& install -d -o cutroom -g cutroom -m 0700 /var/lib/cutroom",
		"PORT=8080", "EXPOSE 8080",
		"&& apt-get install -y --no-install-recommends ca-certificates ffmpeg \\",
		`-ldflags "-s -w -X main.release=${RELEASE} -X main.commit=${COMMIT}" \`,
	},
	"../cmd/cutroom/version.go": {`var release = "dev"`, `var commit = ""`},
	"cutroom.service": {
		"ExecStart=/usr/bin/cutroom serve", "User=cutroom", "StateDirectory=cutroom", "Environment=STORAGE_PATH=/var/lib/cutroom",
		"Environment=BIND_ADDR=127.0.0.1", "Environment=OPS_ADDR=127.0.0.1:9090",
		"KillMode=mixed", "KillSignal=SIGTERM", "OOMPolicy=continue", "NoNewPrivileges=yes", "ProtectSystem=strict",
		"SystemCallFilter=@system-service landlock_create_ruleset landlock_add_rule landlock_restrict_self seccomp",
	},
	"nginx/nginx.conf": {
		"proxy_request_buffering off;", "proxy_buffering off;", "proxy_max_temp_file_size 0;", "proxy_http_version 1.1;",
		"proxy_next_upstream error timeout;", "proxy_next_upstream_tries 3;", "merge_slashes off;", "limit_conn client 200;",
		// The front appends the client; with no hops the service uses the rightmost
		// entry.
		"proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;", "proxy_set_header Host $http_host;",
		"proxy_set_header X-Forwarded-Proto $scheme;", `proxy_set_header Connection "close";`,
		// Queries contain signed links, and nginx logs whole request lines at every
		// level below crit.
		"error_log /var/log/nginx/error.log crit;",
		"server_name ~^s3\\.;",
	},
	"nginx/replicas.conf": {
		"upstream cutroom {", "server cutroom-1:8080 max_fails=1 fail_timeout=20s;", "server cutroom-2:8080 max_fails=1 fail_timeout=20s;",
		"server cutroom-1:8080 max_fails=0 backup;", "server cutroom-2:8080 max_fails=0 backup;",
		"upstream object_store {", "server s3:7070;",
	},
	"rolling-restart.sh": {"for replica in cutroom-1 cutroom-2; do", `put "${saved//server $replica:8080 /server $replica:8080 down }"`},
	"env.example":        {"S3_HOST=s3.cutroom.example.com"}, // the front tells the store by s3.
	"prometheus.yml":     {`- targets: ["ops-1:9090", "ops-2:9090"]`},
	"docker-compose.yml": {`PORT: "8080"`, `OPS_ADDR: ops-1:9090`, `OPS_ADDR: ops-2:9090`, "STORAGE_PATH: /var/lib/cutroom", `RATE_LIMIT_TRUSTED_PROXY_HOPS: "0"`,
		`command: [--port, ":7070", --region, auto, --health, /health, posix, --sidecar, /meta, /data]`,
		"- -cssl=on", "- -cssl_cert_file=/tls/postgres/server.crt", "- -cssl_key_file=/tls/postgres/server.key", "- -chba_file=/etc/postgresql/pg_hba.conf"},
}

// repeated lists first words of lines that the list above does not have in full.
var repeated = []string{"var", "command", "-", "&&", "-ldflags", "put", "for", "server"}

// forbidden is what a file must not contain.
var forbidden = map[string]*regexp.Regexp{
	"nginx/nginx.conf":     regexp.MustCompile(`log_format[^;]*\$(request|request_uri|args|query_string|http_referer|http_authorization)\b`),
	"postgres/pg_hba.conf": regexp.MustCompile(`(?m)^\s*host(nossl|gssenc|nogssenc)?\s`),      // in without TLS
	"cutroom.service":      regexp.MustCompile(`(?m)^(MemoryDenyWriteExecute|PrivateUsers)=`), // break ffmpeg or its confinement
}

func TestFilesHaveTheLinesThatMatter(t *testing.T) {
	word := regexp.MustCompile(`^[^ =:({]+`)
	for file, wanted := range lines {
		begin, have := map[string]int{}, map[string]int{}
		for line := range strings.Lines(read(t, file)) {
			line = strings.TrimSpace(line)
			have[line]++
			begin[word.FindString(line)]++
		}
		for _, line := range wanted {
			w := word.FindString(line)
			same := 0
			for _, other := range wanted {
				if word.FindString(other) == w {
					same++
				}
			}
			if have[line] != 1 || begin[w] != same && !slices.Contains(repeated, w) {
				t.Errorf("%s has %d lines %q, and %d that begin with %s, want %d", file, have[line], line, begin[w], w, same)
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
	used := regexp.MustCompile(`CLONE_NEW(\w+)`).FindAllStringSubmatch(read(t, "../internal/media/confine/confine.go"), -1)
	if len(used) == 0 {
		t.Fatal("nothing uses namespaces")
	}
	for _, m := range used {
		if !slices.Contains(allowed, strings.ToLower(m[1])) {
			t.Errorf("RestrictNamespaces %v forbids a new %s namespace", allowed, m[1])
		}
	}
}

// If systemd is installed, it checks the unit itself.
func TestSystemdAcceptsTheUnit(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Log("no systemd here; the unit was only read")
		return
	}
	file := t.TempDir() + "/cutroom.service"
	text := strings.Replace(read(t, "cutroom.service"), "/usr/bin/cutroom serve", "/bin/true serve", 1)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), analyze, "verify", "--man=no", file).CombinedOutput()
	if err != nil || strings.Contains(string(out), "cutroom.service:") {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}

func TestImageIsBuiltWithAGoThatIsNewEnough(t *testing.T) {
	need, have := one(t, "../go.mod", `(?m)^go (\d+\.\d+)`), one(t, "Dockerfile", `(?m)^FROM golang:(\d+\.\d+)`)
	if version.Compare("go"+have, "go"+need) < 0 {
		t.Errorf("golang:%s builds, go.mod wants %s", have, need)
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
