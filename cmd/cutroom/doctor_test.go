// Runs the doctor among stand-ins: on a healthy service, with parts of it broken, and with less configured.

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"cutroom/internal/film/media/confine"
	"cutroom/internal/sandbox"
	"cutroom/internal/sandbox/bucket"
	"cutroom/internal/sandbox/notify"
)

func TestMain(m *testing.M) {
	confine.Main() // the doctor runs ffmpeg
	os.Exit(m.Run())
}

// inWorld makes the environment of this process that of a service among stand-ins, but for what change says; a blank
// value takes a key away.
func inWorld(t *testing.T, change map[string]string) *sandbox.World {
	t.Helper()
	dir := t.TempDir()
	w, err := sandbox.Start(sandbox.Options{DataDir: dir, Fast: true, Bucket: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	env := w.Env()
	env["IAP_PLATFORM_B_ENV"], env["IAP_PLATFORM_B_ALLOW_TEST"] = "production", "true"
	for key, value := range change {
		env[key] = value
	}
	for key, value := range env {
		t.Setenv(key, value)
	}
	t.Chdir(dir) // no stray .env
	return w
}

// examine runs the doctor and returns its exit status and its findings by check, which start with ok or FAIL.
func examine(t *testing.T) (status int, found map[string]string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	status = run([]string{"doctor", "--json"}, &stdout, &stderr)
	var findings []finding
	if err := json.Unmarshal(stdout.Bytes(), &findings); err != nil {
		t.Fatalf("%v\n%s%s", err, &stdout, &stderr)
	}
	found = map[string]string{}
	for _, f := range findings {
		found[f.Check] = map[bool]string{true: "ok ", false: "FAIL "}[f.OK] + f.Detail
	}
	all := stdout.String() + stderr.String()
	for _, key := range []string{"DB_PASSWORD", "AUTH_JWT_SECRET", "SEPARATION_SIGNING_SECRET", "SEPARATION_PROVIDER_API_KEY",
		"OBJECT_STORE_SECRET_ACCESS_KEY", "WEBHOOK_SECRET"} {
		if secret := os.Getenv(key); secret != "" && strings.Contains(all, secret) {
			t.Errorf("the report holds %s", key)
		}
	}
	if strings.Contains(all, "PRIVATE KEY") {
		t.Error("the report holds a private key")
	}
	return status, found
}

var checks = []string{"ffmpeg", "database", "bucket", "storage", "separation provider", "provider_a", "provider_b", "platform_a", "platform_b",
	"platform_b tests", "web hook", "push platform_a", "push platform_b"}

func TestDoctorFindsAHealthyServiceHealthy(t *testing.T) {
	inWorld(t, nil)
	var stdout, stderr bytes.Buffer
	if status := run([]string{"doctor"}, &stdout, &stderr); status != 0 {
		t.Errorf("exit status %d\n%s%s", status, &stdout, &stderr)
	}
	lines := strings.Split(strings.TrimSpace(stdout.String()), "\n")
	for i, name := range checks {
		if i >= len(lines) || !strings.HasPrefix(lines[i], "ok    "+name+" ") || strings.Contains(lines[i], "not configured") {
			t.Errorf("%s is not found healthy:\n%s", name, &stdout)
		}
	}
	if !regexp.MustCompile(`^ok    ffmpeg +ffmpeg version \S+, all codecs and filters; confined by \w`).MatchString(lines[0]) {
		t.Errorf("ffmpeg: %q", lines[0])
	}
}

// A store that knows no conditions works, and a versioned bucket too, but the operator learns of it.
func TestDoctorWarnsAboutTheBucket(t *testing.T) {
	w := inWorld(t, map[string]string{"ROLES": "sweep", "OPS_ADDR": ":9", "OBJECT_STORE_REGION": "eu-west-9", "DATABASE_URL": "postgres://127.0.0.1:1/cutroom?sslmode=require"})
	for _, tt := range []struct {
		manner bucket.Manner
		want   []string
	}{
		{bucket.Manner{Region: "eu-west-9"}, []string{"ok "}},
		{bucket.Manner{Region: "eu-west-9", Conditions: "400 InvalidArgument", Versioned: true},
			[]string{"ok ", "no condition of a put", "no condition of a completion", "400 InvalidArgument", "keeps versions"}},
		{bucket.Manner{Region: "eu-south-1"}, []string{"FAIL ", "AuthorizationHeaderMalformed", "expecting 'eu-south-1'", "OBJECT_STORE_REGION"}},
		{bucket.Manner{Region: "eu-west-9", Addressing: "virtual"}, []string{"FAIL ", "403 SecondLevelDomainForbidden", "OBJECT_STORE_ADDRESSING"}},
	} {
		if err := w.Bucket.SetManner(tt.manner); err != nil {
			t.Fatal(err)
		}
		_, found := examine(t)
		for _, want := range tt.want {
			if !strings.Contains(found["bucket"], want) {
				t.Errorf("%+v: %s, want %q", tt.manner, found["bucket"], want)
			}
		}
		if healthy := len(tt.want) == 1; healthy == strings.Contains(found["bucket"], "warning") && tt.want[0] == "ok " {
			t.Errorf("%+v: %s", tt.manner, found["bucket"])
		}
	}
}

func TestDoctorChecksWhatTheRolesNeed(t *testing.T) {
	inWorld(t, map[string]string{"OPS_ADDR": ":9", "DATABASE_URL": "postgres://127.0.0.1:1/cutroom?sslmode=require",
		"PATH": t.TempDir()}) // what fails is checked, too
	for roles, want := range map[string]string{
		"sweep":          "bucket database platform_a platform_b platform_b tests push platform_a push platform_b storage web hook",
		"render":         "bucket database ffmpeg storage",
		"separation":     "bucket database ffmpeg separation provider storage",
		"api,separation": "bucket database ffmpeg platform_a platform_b platform_b tests provider_a provider_b separation provider storage",
	} {
		t.Setenv("ROLES", roles)
		_, found := examine(t)
		if got := strings.Join(slices.Sorted(maps.Keys(found)), " "); got != want {
			t.Errorf("%s: checked %s, want %s", roles, got, want)
		}
	}
}

func TestDoctorNamesWhatIsBroken(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	const nowhere = "http://127.0.0.1:1"
	// Each round breaks one thing of each check.
	type fault struct{ check, key, value string }
	var rounds [3][]fault
	for _, f := range []fault{
		{"ffmpeg", "PATH", "/no/such/folder"},
		{"database", "DATABASE_URL", "postgres://127.0.0.1:1/cutroom?sslmode=require"},
		{"bucket", "OBJECT_STORE_SECRET_ACCESS_KEY", "not-the-secret-of-the-bucket"},
		{"bucket", "OBJECT_STORE_BUCKET", "no-such-bucket"},
		{"storage", "STORAGE_PATH", file},
		{"separation provider", "SEPARATION_PROVIDER_BASE_URL", nowhere},
		{"separation provider", "SEPARATION_PROVIDER_API_KEY", "not-the-key"},
		{"separation provider", "SEPARATION_PROVIDER_SPACE_ID", "1"},
		{"provider_a", "AUTH_PROVIDER_A_TOKENINFO_URL", nowhere},
		{"provider_b", "AUTH_PROVIDER_B_KEYS_URL", nowhere},
		{"platform_a", "IAP_PLATFORM_A_BASE_URL", nowhere},
		{"platform_a", "IAP_PLATFORM_A_PACKAGE_NAME", "com.example.other"},
		{"platform_b", "IAP_PLATFORM_B_BASE_URL", nowhere},
		{"platform_b", "IAP_PLATFORM_B_KEY_ID", "OTHERKEY"},
		{"platform_b", "IAP_PLATFORM_B_BUNDLE_ID", "com.example.other"},
		{"platform_b tests", "IAP_PLATFORM_B_SANDBOX_BASE_URL", nowhere},
		{"platform_b tests", "IAP_PLATFORM_B_KEY_ID", "OTHERKEY"},
		{"platform_b tests", "IAP_PLATFORM_B_BUNDLE_ID", "com.example.other"},
		{"web hook", "WEBHOOK_URL", nowhere},
		{"push platform_a", "PUSH_PLATFORM_A_SERVICE_ACCOUNT", "another project"},
		{"push platform_b", "PUSH_PLATFORM_B_TOPIC", "com.example.other"},
	} {
		round := slices.IndexFunc(rounds[:], func(faults []fault) bool {
			return !slices.ContainsFunc(faults, func(other fault) bool { return other.check == f.check })
		})
		rounds[round] = append(rounds[round], f)
	}
	for round, faults := range rounds {
		t.Run(fmt.Sprint("round ", round), func(t *testing.T) {
			settings, broken := map[string]string{}, map[string]string{}
			for _, f := range faults {
				settings[f.key], broken[f.check] = f.value, f.key
			}
			w := inWorld(t, settings)
			if key := "PUSH_PLATFORM_A_SERVICE_ACCOUNT"; settings[key] != "" {
				t.Setenv(key, strings.Replace(w.PushA.ServiceAccountJSON(), notify.ProjectID, "another", 1))
			}
			status, found := examine(t)
			if status != 1 {
				t.Errorf("exit status %d", status)
			}
			for _, name := range checks {
				want := "ok "
				if broken[name] != "" {
					want = "FAIL "
				}
				if !strings.HasPrefix(found[name], want) {
					t.Errorf("%s with another %q: %q", name, broken[name], found[name])
				}
			}
		})
	}
}

func TestDoctorWithLessConfigured(t *testing.T) {
	inWorld(t, map[string]string{"OBJECT_STORE_BUCKET": "", "OBJECT_STORE_ACCOUNT_ID": "", "OBJECT_STORE_ENDPOINT": "", "OBJECT_STORE_ACCESS_KEY_ID": "",
		"OBJECT_STORE_SECRET_ACCESS_KEY": "", "AUTH_PROVIDER_B_CLIENT_IDS": "", "IAP_PLATFORM_A_PACKAGE_NAME": "", "IAP_PLATFORM_B_KEY_ID": "",
		"WEBHOOK_URL": "", "PUSH_PLATFORM_A_SERVICE_ACCOUNT": "", "PUSH_PLATFORM_B_KEY": ""})
	status, found := examine(t)
	if status != 0 {
		t.Errorf("exit status %d: %q", status, found)
	}
	for _, name := range []string{"bucket", "provider_b", "platform_a", "platform_b", "web hook", "push platform_a", "push platform_b"} {
		if !strings.HasPrefix(found[name], "ok not configured: ") {
			t.Errorf("%s: %q", name, found[name])
		}
	}
}
