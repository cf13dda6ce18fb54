package config

import (
	"flag"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/joho/godotenv"
)

var update = flag.Bool("update", false, "rewrite .env.example and docs/configuration.md")

func TestDocumentsAreInStep(t *testing.T) {
	for path, want := range map[string]string{
		"../../.env.example":          envExample(),
		"../../docs/configuration.md": markdown(),
	} {
		if *update {
			if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Errorf("%s is out of step: run go test ./internal/config -update", path)
		}
	}
}

// A key documented but not read is a lie to whoever runs the service.
func TestEveryKeyIsReadOnce(t *testing.T) {
	names := map[string]bool{}
	for _, k := range Keys {
		if names[k.Name] {
			t.Errorf("%s is declared twice", k.Name)
		}
		names[k.Name] = true
	}
	read := map[string]bool{}
	env := lookup(required())
	_, err := Load(func(key string) (string, bool) {
		read[key] = true
		return env(key)
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range Keys {
		if k.Secret {
			names[k.Name+"_FILE"] = true
		}
	}
	if !maps.Equal(read, names) {
		t.Errorf("read\n%v\ndeclared\n%v", read, names)
	}
}

// Being read is not enough: each key must move something.
func TestEveryKeyChangesTheConfiguration(t *testing.T) {
	other := map[string]string{
		"PUBLIC_BASE_URL": "https://x.example", "CORS_ALLOWED_ORIGINS": "https://x.example", "TRUSTED_PROXIES": "192.0.2.0/24",
		"ADMIN_SLUG": "backoffice", "ADMIN_PROVIDER_A_CLIENT_ID": "web.example", "ENABLE_API_DOCS": "true", "ENABLE_TESTDATA_MOCK": "true", "LOG_LEVEL": "debug", "LOG_FORMAT": "text",
		"OPS_ADDR": ":9100", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://x.example:4318", "MONITORING_DSN": "https://k@x.example/1", "MONITORING_TRACES_SAMPLE_RATE": "0.5",
		"DATABASE_URL": "sqlite://other.db", "AUTH_JWT_SECRET": strings.Repeat("y", 40), "SEPARATION_SIGNING_SECRET": strings.Repeat("z", 40),
		"AUTH_JWT_SECRET_PREVIOUS": strings.Repeat("v", 40), "SEPARATION_SIGNING_SECRET_PREVIOUS": strings.Repeat("w", 40), "BIND_ADDR": "127.0.0.1",
		"AUTH_PROVIDER_A_TOKENINFO_URL": "https://x.example", "AUTH_PROVIDER_B_KEYS_URL": "https://x.example",
		"SEPARATION_PROVIDER_BASE_URL": "https://x.example", "SEPARATION_PROVIDER_STORAGE_BASE_URL": "https://x.example",
		"OBJECT_STORE_BUCKET": "other-bucket", "OBJECT_STORE_ACCOUNT_ID": strings.Repeat("1", 32), "OBJECT_STORE_ENDPOINT": "https://x.example",
		"CREDIT_PRODUCTS": "other=1", "IAP_PLATFORM_A_BASE_URL": "https://x.example", "IAP_PLATFORM_B_BASE_URL": "https://x.example",
		"IAP_PLATFORM_A_SERVICE_ACCOUNT_JSON": serviceAccount(nil), "IAP_PLATFORM_B_PRIVATE_KEY": privateKeyPEM(),
		"IAP_PLATFORM_B_ENV": "sandbox", "MEDIA_CAGE": "best-effort", "IAP_PLATFORM_B_ROOT_CA_FILE": rootFile, "SEPARATION_URL_TTL_SEC": "600", "SEPARATION_ABANDON_TTL_MS": "604800001",
		"IAP_PLATFORM_A_ALLOW_TEST": "true", "SIGNUP_BONUS_PER_IDENTITY": "once",
		"SIGNUP_BONUS_KEY": strings.Repeat("u", 40),
		"WEBHOOK_URL":      "https://x.example/hook?a=b", "WEBHOOK_SECRET": webhookSecretOf(40), "WEBHOOK_SECRET_PREVIOUS": webhookSecretOf(41),
		"PUSH_PLATFORM_A_SERVICE_ACCOUNT": serviceAccount(map[string]string{"project_id": "p"}), "PUSH_PLATFORM_A_BASE_URL": "https://x.example",
		"PUSH_PLATFORM_B_KEY": privateKeyPEM(), "PUSH_PLATFORM_B_BASE_URL": "https://x.example",
		"RENDER_MAX_CONCURRENT": "37", "MIGRATE_ON_START": "false", "ROLES": "api",
	}
	base := with(map[string]string{
		"DATABASE_URL": "postgres://h/db?sslmode=require", "SIGNUP_BONUS_KEY": strings.Repeat("b", 40),
		"OBJECT_STORE_BUCKET": "films", "OBJECT_STORE_ACCOUNT_ID": strings.Repeat("0", 32),
		"OBJECT_STORE_ACCESS_KEY_ID": "id", "OBJECT_STORE_SECRET_ACCESS_KEY": "s",
		"IAP_PLATFORM_A_NOTIFICATION_AUDIENCE": "a", "IAP_PLATFORM_A_NOTIFICATION_SENDER": "s@x.example",
		"IAP_PLATFORM_B_ISSUER_ID": "i", "IAP_PLATFORM_B_KEY_ID": "k", "IAP_PLATFORM_B_BUNDLE_ID": "b", "IAP_PLATFORM_B_PRIVATE_KEY": privateKeyPEM(),
		"WEBHOOK_SECRET":      webhookSecretOf(32),
		"PUSH_PLATFORM_B_KEY": privateKeyPEM(), "PUSH_PLATFORM_B_KEY_ID": "k", "PUSH_PLATFORM_B_TEAM_ID": "t", "PUSH_PLATFORM_B_TOPIC": "app",
	})
	plain, err := Load(lookup(base))
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range Keys {
		value, ok := other[k.Name]
		switch {
		case ok:
		case k.Max == 0:
			value = "other"
		case k.Default == strconv.FormatInt(k.Min, 10):
			value = strconv.FormatInt(k.Min+1, 10)
		default:
			value = strconv.FormatInt(k.Min, 10)
		}
		env := maps.Clone(base)
		env[k.Name] = value
		changed, err := Load(lookup(env))
		if err != nil {
			t.Errorf("%s: %v", k.Name, err)
			continue
		}
		changed.Warnings = nil
		if reflect.DeepEqual(changed, plain) {
			t.Errorf("%s changes nothing", k.Name)
		}
	}
}

// Copied as it is, the example lacks exactly the required keys; with those
// filled in and every other line uncommented, it is the default configuration.
func TestTheExampleWorks(t *testing.T) {
	example := envExample()
	values, err := godotenv.Unmarshal(example)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Load(lookup(values))
	var missing, needed []string
	for line := range strings.SplitSeq(err.Error(), "\n") {
		key, ok := strings.CutSuffix(line, ": is required")
		if !ok {
			t.Errorf("unexpected problem %q", line)
		}
		missing = append(missing, key)
	}
	for _, k := range Keys {
		if k.Required == Always {
			needed = append(needed, k.Name)
		}
	}
	slices.Sort(missing)
	slices.Sort(needed)
	if !slices.Equal(missing, needed) {
		t.Errorf("missing %q, required %q", missing, needed)
	}

	uncommented := regexp.MustCompile(`(?m)^#([A-Z_]+=)`).ReplaceAllString(example, "$1")
	values, err = godotenv.Unmarshal(uncommented)
	if err != nil {
		t.Fatal(err)
	}
	if len(values) != len(Keys) {
		t.Errorf("the example holds %d of %d keys", len(values), len(Keys))
	}
	maps.Copy(values, required())
	cfg, err := Load(lookup(values))
	if err != nil {
		t.Fatal(err)
	}
	if plain := load(t, nil); !reflect.DeepEqual(cfg, plain) {
		t.Errorf("the example's defaults are not the defaults:\n got %+v\nwant %+v", cfg, plain)
	}
}

func TestKeysAreDocumentedWell(t *testing.T) {
	for _, k := range Keys {
		if !strings.HasSuffix(k.Meaning, ".") || k.Group == "" || k.Required == "" {
			t.Errorf("%s lacks a sentence, a group or a requirement", k.Name)
		}
		if k.Required == Always && k.Default != "" {
			t.Errorf("%s is required and has a default", k.Name)
		}
		if k.Secret && k.Default != "" {
			t.Errorf("%s is secret and has a default", k.Name)
		}
	}
	// One section for each group: no group comes twice.
	if sections := regexp.MustCompile(`(?m)^## .*$`).FindAllString(markdown(), -1); len(slices.Compact(slices.Sorted(slices.Values(sections)))) != len(sections) {
		t.Errorf("a group has two sections: %q", sections)
	}
}
