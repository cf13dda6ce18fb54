// Compares docs/configuration.md with the declared keys, and writes .env.example (-update).

package config

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite .env.example")

// documented is a row of docs/configuration.md.
type documented struct{ name, group, required, standard, meaning string }

// page reads docs/configuration.md.
func page(t *testing.T) (rows []documented) {
	t.Helper()
	text, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	group, groups := "", map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if name, ok := strings.CutPrefix(line, "## "); ok {
			if group = strings.TrimSpace(name); groups[group] {
				t.Errorf("two sections are called %s", group)
			}
			groups[group] = true
		}
		if cells := strings.Split(strings.TrimSpace(line), " | "); strings.HasPrefix(line, "| `") && len(cells) == 4 {
			rows = append(rows, documented{strings.Trim(cells[0], "|` "), group, strings.TrimSpace(cells[1]),
				strings.Trim(cells[2], "` "), strings.TrimSuffix(cells[3], " |")})
		} else if strings.HasPrefix(line, "| `") {
			t.Errorf("not a row of four cells: %s", line)
		}
	}
	return rows
}

// The page and the declarations say the same, in the same order. A default that is not declared depends on the
// machine or on another key; the page describes it.
func TestThePageIsRight(t *testing.T) {
	rows := page(t)
	for i, k := range Keys {
		if i >= len(rows) || rows[i].name != k.Name {
			t.Fatalf("docs/configuration.md: want %s as row %d", k.Name, i)
		}
		row := rows[i]
		if want := cmp.Or(string(k.Required), "no"); row.required != want {
			t.Errorf("%s: required %q, want %q", k.Name, row.required, want)
		}
		if row.standard != k.Default && k.Default != "" {
			t.Errorf("%s: default %q, want %q", k.Name, row.standard, k.Default)
		}
		meaning, secret := strings.CutSuffix(row.meaning, " Secret.")
		_, allowed, _ := strings.Cut(meaning, " Allowed: ")
		if secret != k.Secret || strings.TrimSuffix(allowed, ".") != k.Range() || !strings.HasSuffix(meaning, ".") {
			t.Errorf("%s: secret %v, range %q; the page says: %s", k.Name, k.Secret, k.Range(), row.meaning)
		}
		if (k.Required == Always || k.Secret) && row.standard != "" {
			t.Errorf("%s is required or secret and has a default", k.Name)
		}
	}
	if len(rows) != len(Keys) {
		t.Errorf("docs/configuration.md has %d keys, want %d", len(rows), len(Keys))
	}
}

// .env.example has the text of the page.
func TestTheExampleIsInStep(t *testing.T) {
	const path = "../../.env.example"
	want := envExample(page(t))
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Errorf(".env.example is out of step (%v): run go test ./internal/config -update", err)
	}
}

// envExample renders .env.example: every key with its comment. The required ones stand ready to be filled in, the
// others are commented out and show their default.
func envExample(rows []documented) string {
	var b strings.Builder
	b.WriteString(`# Configuration of cutroom: copy this file to .env and fill in the keys that are not
# commented out. The real environment wins over .env. Put values that hold $, #, quotes
# or spaces between single quotes. A secret key may be given as <KEY>_FILE instead, the
# path of a file with the value.
#
# Generated from docs/configuration.md: go test ./internal/config -update
`)
	group := ""
	for i, row := range rows {
		if row.group != group {
			group = row.group
			fmt.Fprintf(&b, "\n# ---- %s ----\n", group)
		}
		text := strings.ReplaceAll(strings.TrimSuffix(row.meaning, " Secret."), "`", "")
		declared := ""
		if i < len(Keys) {
			declared = Keys[i].Default
		}
		switch Requirement(row.required) {
		case Always:
			text += " Required."
		case WithBucket, ForPlatformA, ForPlatformB:
			text += " Required " + row.required + "."
		}
		if row.standard != declared {
			text += " Default: " + row.standard + "."
		}
		b.WriteString("\n" + comment(text))
		if row.required != string(Always) {
			b.WriteString("#")
		}
		fmt.Fprintf(&b, "%s=%s\n", row.name, declared)
	}
	return b.String()
}

// envWidth is where the comments of .env.example wrap.
const envWidth = 88

func comment(text string) string {
	var b strings.Builder
	line := "#"
	for word := range strings.FieldsSeq(text) {
		if len(line)+1+len(word) > envWidth && line != "#" {
			b.WriteString(line + "\n")
			line = "#"
		}
		line += " " + word
	}
	return b.String() + line + "\n"
}

// Each key must move something.
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
		"OBJECT_STORE_ADDRESSING": "virtual",
		"CREDIT_PRODUCTS":         "other=1", "IAP_PLATFORM_A_BASE_URL": "https://x.example", "IAP_PLATFORM_B_BASE_URL": "https://x.example",
		"IAP_PLATFORM_A_SERVICE_ACCOUNT_JSON": serviceAccount(nil), "IAP_PLATFORM_B_PRIVATE_KEY": privateKeyPEM(),
		"IAP_PLATFORM_B_ENV": "sandbox", "MEDIA_CAGE": "best-effort", "IAP_PLATFORM_B_ROOT_CA_FILE": rootFile, "SEPARATION_URL_TTL_SEC": "600", "SEPARATION_ABANDON_TTL_MS": "604800001",
		"IAP_PLATFORM_A_ALLOW_TEST": "true", "IAP_PLATFORM_B_ALLOW_TEST": "true", "IAP_PLATFORM_B_SANDBOX_BASE_URL": "https://x.example",
		"SIGNUP_BONUS_PER_IDENTITY": "once",
		"SIGNUP_BONUS_KEY":          strings.Repeat("u", 40),
		"WEBHOOK_URL":               "https://x.example/hook?a=b", "WEBHOOK_SECRET": webhookSecretOf(40), "WEBHOOK_SECRET_PREVIOUS": webhookSecretOf(41),
		"PUSH_PLATFORM_A_SERVICE_ACCOUNT": serviceAccount(map[string]string{"project_id": "p"}), "PUSH_PLATFORM_A_BASE_URL": "https://x.example",
		"PUSH_PLATFORM_B_KEY": privateKeyPEM(), "PUSH_PLATFORM_B_BASE_URL": "https://x.example",
		"RENDER_MAX_CONCURRENT": "37", "ROLES": "api",
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
