// Every rule of the configuration: the single values, ranges, combinations, warnings, and that all problems are
// reported at once.

package config

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/big"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	jwtSecret  = "jwt-secret-of-more-than-32-characters"
	stemSecret = "stem-secret-of-more-than-32-characters"
)

// required holds the least that the service starts with.
func required() map[string]string {
	return map[string]string{
		"DATABASE_URL":                 "sqlite::memory:",
		"DB_USER":                      "cutroom",
		"DB_PASSWORD":                  "db-password",
		"AUTH_JWT_SECRET":              jwtSecret,
		"AUTH_PROVIDER_A_CLIENT_IDS":   "ios.example,web.example",
		"SEPARATION_PROVIDER_API_KEY":  "provider-api-key",
		"SEPARATION_PROVIDER_SPACE_ID": "7",
		"SEPARATION_SIGNING_SECRET":    stemSecret,
	}
}

func with(changes map[string]string) map[string]string {
	env := required()
	maps.Copy(env, changes)
	return env
}

func lookup(env map[string]string) func(string) (string, bool) {
	return func(key string) (string, bool) {
		value, ok := env[key]
		return value, ok
	}
}

func load(t *testing.T, changes map[string]string) Config {
	t.Helper()
	cfg, err := Load(lookup(with(changes)))
	if err != nil {
		t.Fatalf("Load: %v", err)
	}
	return cfg
}

// problems returns "KEY: rule" for each problem, and nil without any.
func problems(t *testing.T, changes map[string]string) []string {
	t.Helper()
	cfg, err := Load(lookup(with(changes)))
	if err == nil {
		return nil
	}
	cfg.Log = Log{} // says how the problems are to be written
	if !reflect.DeepEqual(cfg, Config{}) {
		t.Error("a failed Load returned a configuration")
	}
	return strings.Split(err.Error(), "\n")
}

// must returns the value of a call that cannot fail here.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func inPEM(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

func privateKeyPEM() string {
	return inPEM("PRIVATE KEY", must(x509.MarshalPKCS8PrivateKey(must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)))))
}

func rsaKeyPEM() string {
	return inPEM("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(must(rsa.GenerateKey(rand.Reader, 2048))))
}

// ecKeyPEM is a key in the older form.
func ecKeyPEM(curve elliptic.Curve) string {
	return inPEM("EC PRIVATE KEY", must(x509.MarshalECPrivateKey(must(ecdsa.GenerateKey(curve, rand.Reader)))))
}

// serviceAccount is a key file with some fields changed.
func serviceAccount(changes map[string]string) string {
	fields := map[string]string{"type": "service_account", "client_email": "robot@example.com",
		"token_uri": "https://oauth2.example/token", "private_key": rsaKeyPEM()}
	maps.Copy(fields, changes)
	return string(must(json.Marshal(fields)))
}

// webhookSecretOf is a web hook's secret of so many bytes.
func webhookSecretOf(n int) string {
	return "whsec_" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, n))
}

// rule is an environment with the one problem that it has, or "".
type rule struct {
	env  map[string]string
	want string
}

func checkRules(t *testing.T, rules map[string]rule) {
	t.Helper()
	for name, test := range rules {
		if got := strings.Join(problems(t, test.env), "\n"); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func TestWebhookAndPush(t *testing.T) {
	type env = map[string]string
	hook := func(url, secret string) env { return env{"WEBHOOK_URL": url, "WEBHOOK_SECRET": secret} }
	pushB := func(changes env) env {
		e := env{"PUSH_PLATFORM_B_KEY": privateKeyPEM(), "PUSH_PLATFORM_B_KEY_ID": "k", "PUSH_PLATFORM_B_TEAM_ID": "t", "PUSH_PLATFORM_B_TOPIC": "app"}
		maps.Copy(e, changes)
		return e
	}
	const urlRule = "WEBHOOK_URL: must be an https address, or http on loopback, without user or fragment"
	const secretRule = "WEBHOOK_SECRET: must be whsec_ and 24 to 64 bytes in base64"
	checkRules(t, map[string]rule{
		"http on loopback":   {hook("http://127.0.0.1:9/", webhookSecretOf(64)), ""},
		"http elsewhere":     {hook("http://hooks.example/", webhookSecretOf(32)), urlRule},
		"user":               {hook("https://u:p@hooks.example/", webhookSecretOf(32)), urlRule},
		"without a secret":   {env{"WEBHOOK_URL": "https://hooks.example/"}, "WEBHOOK_SECRET: is required when WEBHOOK_URL is set"},
		"short secret":       {hook("https://hooks.example/", webhookSecretOf(23)), secretRule},
		"secret, no prefix":  {hook("https://hooks.example/", webhookSecretOf(32)[6:]), secretRule},
		"push a":             {env{"PUSH_PLATFORM_A_SERVICE_ACCOUNT": serviceAccount(env{"project_id": "p"})}, ""},
		"push a, no project": {env{"PUSH_PLATFORM_A_SERVICE_ACCOUNT": serviceAccount(nil)}, "PUSH_PLATFORM_A_SERVICE_ACCOUNT: must have a project_id"},
		"push b":             {pushB(env{"PUSH_PLATFORM_B_BASE_URL": "http://localhost:9"}), ""},
		"push b, http":       {pushB(env{"PUSH_PLATFORM_B_BASE_URL": "http://push.example"}), "PUSH_PLATFORM_B_BASE_URL: must be an https address, or http on loopback"},
		"push b, P-384":      {pushB(env{"PUSH_PLATFORM_B_KEY": ecKeyPEM(elliptic.P384())}), "PUSH_PLATFORM_B_KEY: must be a PEM private key on the curve P-256"},
	})
}

// The public certificate of the store's own root serves as a further one.
const rootFile = "../upstream/receipt/platform_b_root.pem"

func TestStoreCredentials(t *testing.T) {
	type env = map[string]string
	platformA := func(changes env) env {
		return env{"IAP_PLATFORM_A_PACKAGE_NAME": "app", "IAP_PLATFORM_A_SERVICE_ACCOUNT_JSON": serviceAccount(changes)}
	}
	platformB := func(key, roots string) env {
		return env{"IAP_PLATFORM_B_ISSUER_ID": "i", "IAP_PLATFORM_B_KEY_ID": "k", "IAP_PLATFORM_B_BUNDLE_ID": "b",
			"IAP_PLATFORM_B_PRIVATE_KEY": key, "IAP_PLATFORM_B_ROOT_CA_FILE": roots}
	}
	noRoot := filepath.Join(t.TempDir(), "no-root.pem")
	if err := os.WriteFile(noRoot, []byte(privateKeyPEM()), 0o600); err != nil {
		t.Fatal(err)
	}
	const keyRule = "IAP_PLATFORM_B_PRIVATE_KEY: must be a PEM private key on the curve P-256"
	checkRules(t, map[string]rule{
		"service account":               {platformA(nil), ""},
		"no JSON":                       {env{"IAP_PLATFORM_A_PACKAGE_NAME": "app", "IAP_PLATFORM_A_SERVICE_ACCOUNT_JSON": "x"}, "IAP_PLATFORM_A_SERVICE_ACCOUNT_JSON: must be a JSON object, the key file of a service account"},
		"of another type":               {platformA(env{"type": "authorized_user"}), "IAP_PLATFORM_A_SERVICE_ACCOUNT_JSON: must have the type service_account"},
		"without token_uri":             {platformA(env{"token_uri": ""}), "IAP_PLATFORM_A_SERVICE_ACCOUNT_JSON: must have a token_uri that is an http or https address"},
		"EC key for RSA":                {platformA(env{"private_key": privateKeyPEM()}), "IAP_PLATFORM_A_SERVICE_ACCOUNT_JSON: must have a private_key that is an RSA key in PEM"},
		"P-256":                         {platformB(privateKeyPEM(), ""), ""},
		"P-256 in the older form":       {platformB(ecKeyPEM(elliptic.P256()), ""), ""},
		"P-384":                         {platformB(ecKeyPEM(elliptic.P384()), ""), keyRule},
		"further root":                  {platformB(privateKeyPEM(), rootFile), ""},
		"root file missing":             {platformB(privateKeyPEM(), noRoot+"x"), "IAP_PLATFORM_B_ROOT_CA_FILE: must name a file that can be read"},
		"root file is no certificate":   {platformB(privateKeyPEM(), noRoot), "IAP_PLATFORM_B_ROOT_CA_FILE: must name a file of PEM certificates"},
		"root file of a store not used": {env{"IAP_PLATFORM_B_ROOT_CA_FILE": noRoot + "x"}, ""},
	})
}

func TestAllowedHosts(t *testing.T) {
	for given, want := range map[string]string{
		"CDN.example:8443": "cdn.example:8443", "cdn.example": "cdn.example", "10.0.0.1:80": "10.0.0.1:80",
		"::1": "::1", "[::1]": "::1", "0:0::1": "::1", "[::1]:9000": "[::1]:9000", "a, b:1,": "a b:1",
		"cdn.example:": "", "cdn.example:0": "", "cdn.example:65536": "", "cdn.example:http": "", ":80": "", "[cdn.example]:80": "cdn.example:80",
		"cdn.example:80/x": "", "http://cdn.example:80": "", "a:b:80": "", "*.example.com": "",
	} {
		cfg, err := Load(lookup(with(map[string]string{"PROVIDER_DOWNLOAD_ALLOWED_HOSTS": given})))
		if (err == nil) != (want != "") {
			t.Errorf("%q: %v", given, err)
		}
		if err == nil && strings.Join(cfg.Separation.AllowedHosts, " ") != want+" api.perso.ai portal-media.perso.ai" {
			t.Errorf("%q: %q", given, cfg.Separation.AllowedHosts)
		}
	}
}

func TestDefaults(t *testing.T) {
	cfg := load(t, nil)
	want := Config{
		Roles: AllRoles,
		HTTP: HTTP{
			Port: 8080, PublicBaseURL: "http://localhost:8080",
			TrustedProxies: []netip.Prefix{
				netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128"),
				netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("172.16.0.0/12"),
				netip.MustParsePrefix("192.168.0.0/16"), netip.MustParsePrefix("fc00::/7"),
			},
		},
		Log:        Log{Level: slog.LevelInfo, JSON: true},
		Monitoring: Monitoring{Environment: "dev", TracesSampleRate: 0.1},
		Database:   Database{URL: "sqlite::memory:", User: "cutroom", Password: NewSecret("db-password"), MaxPool: 5},
		Auth: Auth{
			JWTSecret: NewSecret(jwtSecret), JWTLifetime: 7 * 24 * time.Hour, Session: 90 * 24 * time.Hour,
			ProviderA: ProviderA{ClientIDs: []string{"ios.example", "web.example"}, TokenInfoURL: "https://oauth2.googleapis.com/tokeninfo"},
			ProviderB: ProviderB{KeysURL: "https://appleid.apple.com/auth/keys", Issuer: "https://appleid.apple.com"},
		},
		Storage:     Storage{Path: "./storage", UploadsTTL: 6 * time.Hour, MaxUploadBytes: 500 << 20},
		Asset:       Asset{CacheTTL: 24 * time.Hour},
		Account:     Account{MaxWaitingJobs: 50, MaxStoredBytes: 20480 << 20, MaxAssets: 5000},
		ObjectStore: ObjectStore{SignedURLTTL: 15 * time.Minute},
		Separation: Separation{
			APIKey: NewSecret("provider-api-key"), SpaceID: 7,
			BaseURL: "https://api.perso.ai", StorageBaseURL: "https://portal-media.perso.ai",
			AllowedHosts:  []string{"api.perso.ai", "portal-media.perso.ai"},
			SigningSecret: NewSecret(stemSecret),
			URLTTL:        7 * 24 * time.Hour, AbandonTTL: 7 * 24 * time.Hour,
			MaxInFlight: 2, StuckSubmitting: 10 * time.Minute, BusyWait: 30 * time.Minute,
			PollInterval: 15 * time.Second, MaxPoll: 30 * time.Minute, MaxAudioBytes: 100 << 20,
		},
		Render: Render{
			InputCacheTTL: 24 * time.Hour, OutputTTL: 24 * time.Hour,
			MaxConcurrent: max(1, runtime.GOMAXPROCS(0)/2), ProcessTimeout: 30 * time.Minute,
			MaxPixelFrames: 1344e9, MaxSound: 24 * time.Hour, JobTimeout: 4 * time.Hour,
		},
		Media: Media{MaxMemoryBytes: 4096 << 20, RequireConfinement: true},
		Credit: Credit{SignupBonus: 3, AdminGrantDailyCap: 1000,
			Products: map[string]int64{"credits.10": 10, "credits.50": 50, "credits.150": 150}},
		IAP: IAP{
			PlatformA: PlatformA{BaseURL: "https://androidpublisher.googleapis.com",
				Notifications: StorePush{KeysURL: "https://www.googleapis.com/oauth2/v3/certs"}},
			PlatformB: PlatformB{BaseURL: "https://api.storekit.apple.com", SandboxURL: "https://api.storekit-sandbox.apple.com"},
		},
		Push: Push{PlatformA: PushPlatformA{BaseURL: "https://fcm.googleapis.com"},
			PlatformB: PushPlatformB{BaseURL: "https://api.push.apple.com"}},
		Outbound: Outbound{ConnectTimeout: 2 * time.Minute, RequestTimeout: 10 * time.Minute, SocketTimeout: 10 * time.Minute},
	}
	if !reflect.DeepEqual(cfg, want) {
		t.Errorf("defaults:\n got %+v\nwant %+v", cfg, want)
	}
	if !cfg.Auth.JWTSecret.equals(jwtSecret) || !cfg.Separation.SigningSecret.equals(stemSecret) {
		t.Error("a secret does not reveal its value")
	}
}

func (s Secret) equals(value string) bool { return s.Reveal() == value }

// Every rule that a start-up can break, with the one line that it must give. Blank keys and the ranges of numbers have
// tests of their own.
func TestStartUpRules(t *testing.T) {
	type env = map[string]string
	bucket := env{"OBJECT_STORE_BUCKET": "films", "OBJECT_STORE_ACCOUNT_ID": strings.Repeat("aF", 16),
		"OBJECT_STORE_ACCESS_KEY_ID": "id", "OBJECT_STORE_SECRET_ACCESS_KEY": "s3cr3t"}
	bucketBut := func(changes ...string) env {
		changed := maps.Clone(bucket)
		for change := range slices.Chunk(changes, 2) {
			changed[change[0]] = change[1]
		}
		return changed
	}
	sslmode := "DATABASE_URL: must set sslmode to require, verify-ca or verify-full"
	products := "CREDIT_PRODUCTS: must list productId=credits, with 1 to 1000000 credits each"
	address := "must be an http or https address, without user, query or fragment"
	checkRules(t, map[string]rule{
		"minimum": {nil, ""},

		"JWT secret of 31":             {env{"AUTH_JWT_SECRET": strings.Repeat("x", 31)}, "AUTH_JWT_SECRET: must have at least 32 characters"},
		"JWT secret of 31 wide":        {env{"AUTH_JWT_SECRET": strings.Repeat("é", 31)}, "AUTH_JWT_SECRET: must have at least 32 characters"},
		"JWT secret of 32":             {env{"AUTH_JWT_SECRET": strings.Repeat("x", 32)}, ""},
		"stem secret of 31":            {env{"SEPARATION_SIGNING_SECRET": strings.Repeat("x", 31)}, "SEPARATION_SIGNING_SECRET: must have at least 32 characters"},
		"client ids A empty":           {env{"AUTH_PROVIDER_A_CLIENT_IDS": " , ,"}, "AUTH_PROVIDER_A_CLIENT_IDS: must list at least one client id"},
		"PostgreSQL without sslmode":   {env{"DATABASE_URL": "postgres://h/db"}, sslmode},
		"PostgreSQL sslmode disable":   {env{"DATABASE_URL": "postgresql://h/db?sslmode=disable"}, sslmode},
		"PostgreSQL two sslmodes":      {env{"DATABASE_URL": "postgres://h/db?sslmode=require&ssl%6dode=disable"}, "DATABASE_URL: must set sslmode once"},
		"PostgreSQL without host":      {env{"DATABASE_URL": "postgres:///db?sslmode=require"}, "DATABASE_URL: must name a host"},
		"PostgreSQL raw slash in user": {env{"DATABASE_URL": "postgres://u:pa/ss@h/db?sslmode=require"}, "DATABASE_URL: must be a PostgreSQL URL with special characters percent-encoded"},
		"another database":             {env{"DATABASE_URL": "mysql://h/db"}, "DATABASE_URL: must start with postgres://, postgresql://, jdbc:postgresql:// or sqlite:"},
		"SQLite without path":          {env{"DATABASE_URL": "sqlite://"}, "DATABASE_URL: must be sqlite:///absolute/path.db, sqlite://relative/path.db or sqlite::memory:"},
		"SQLite memory misspelt":       {env{"DATABASE_URL": "sqlite://:memory:"}, "DATABASE_URL: must be sqlite:///absolute/path.db, sqlite://relative/path.db or sqlite::memory:"},

		"bonus once without its key": {env{"SIGNUP_BONUS_PER_IDENTITY": "once"}, "SIGNUP_BONUS_KEY: is required when SIGNUP_BONUS_PER_IDENTITY is once"},
		"bonus once":                 {env{"SIGNUP_BONUS_PER_IDENTITY": "once", "SIGNUP_BONUS_KEY": strings.Repeat("x", 32)}, ""},

		"bucket complete":                {bucket, ""},
		"bucket without account":         {bucketBut("OBJECT_STORE_ACCOUNT_ID", " "), "OBJECT_STORE_ACCOUNT_ID: is required when OBJECT_STORE_BUCKET is set"},
		"bucket without access key":      {bucketBut("OBJECT_STORE_ACCESS_KEY_ID", ""), "OBJECT_STORE_ACCESS_KEY_ID: is required when OBJECT_STORE_BUCKET is set"},
		"bucket with short account":      {bucketBut("OBJECT_STORE_ACCOUNT_ID", strings.Repeat("a", 31)), "OBJECT_STORE_ACCOUNT_ID: must be 32 hexadecimal characters"},
		"endpoint does not replace it":   {env{"OBJECT_STORE_BUCKET": "films", "OBJECT_STORE_ENDPOINT": "http://127.0.0.1:9000", "OBJECT_STORE_ACCESS_KEY_ID": "id", "OBJECT_STORE_SECRET_ACCESS_KEY": "s"}, "OBJECT_STORE_ACCOUNT_ID: is required when OBJECT_STORE_BUCKET is set"},
		"bucket with bad endpoint":       {bucketBut("OBJECT_STORE_ENDPOINT", "s3.example.com"), "OBJECT_STORE_ENDPOINT: " + address},
		"bucket with a slash":            {bucketBut("OBJECT_STORE_BUCKET", "films/raw"), "OBJECT_STORE_BUCKET: must be a bucket name: 3 to 63 letters, digits, dots, dashes and underscores"},
		"bucket in a strange region":     {bucketBut("OBJECT_STORE_REGION", "eu/central"), "OBJECT_STORE_REGION: must be a region such as eu-central-1: up to 63 letters, digits and dashes"},
		"bucket addressed strangely":     {bucketBut("OBJECT_STORE_ADDRESSING", "dns"), "OBJECT_STORE_ADDRESSING: must be one of path, virtual"},
		"virtual bucket":                 {bucketBut("OBJECT_STORE_ADDRESSING", "virtual"), ""},
		"virtual bucket at an address":   {bucketBut("OBJECT_STORE_ADDRESSING", "virtual", "OBJECT_STORE_ENDPOINT", "http://127.0.0.1:9000"), "OBJECT_STORE_ADDRESSING: must be path for an endpoint that is an IP address"},
		"virtual bucket with a dot":      {bucketBut("OBJECT_STORE_ADDRESSING", "virtual", "OBJECT_STORE_BUCKET", "my.films"), "OBJECT_STORE_BUCKET: must be lower-case letters, digits and dashes when OBJECT_STORE_ADDRESSING is virtual"},
		"keys without bucket":            {env{"OBJECT_STORE_ACCOUNT_ID": "x"}, ""},
		"stem lifetime too long":         {env{"SEPARATION_ABANDON_TTL_MS": "60000", "SEPARATION_URL_TTL_SEC": "61"}, "SEPARATION_URL_TTL_SEC: must not be longer than SEPARATION_ABANDON_TTL_MS"},
		"stem lifetime by a millisecond": {env{"SEPARATION_ABANDON_TTL_MS": "60999", "SEPARATION_URL_TTL_SEC": "61"}, "SEPARATION_URL_TTL_SEC: must not be longer than SEPARATION_ABANDON_TTL_MS"},
		"stem lifetime equal":            {env{"SEPARATION_ABANDON_TTL_MS": "61000", "SEPARATION_URL_TTL_SEC": "61"}, ""},
		"allowed host is an address":     {env{"PROVIDER_DOWNLOAD_ALLOWED_HOSTS": "ok.example,https://cdn.example/"}, "PROVIDER_DOWNLOAD_ALLOWED_HOSTS: must list host names, alone or as host:port, without scheme or path"},

		"public URL of another kind": {env{"PUBLIC_BASE_URL": "ftp://films.example"}, "PUBLIC_BASE_URL: " + address},
		"slug of 5":                  {env{"ADMIN_SLUG": "admin"}, "ADMIN_SLUG: must be 6 to 64 letters, digits, dashes and underscores"},
		"slug of 65":                 {env{"ADMIN_SLUG": strings.Repeat("a", 65)}, "ADMIN_SLUG: must be 6 to 64 letters, digits, dashes and underscores"},
		"client id of nobody":        {env{"ADMIN_PROVIDER_A_CLIENT_ID": "stranger"}, "ADMIN_PROVIDER_A_CLIENT_ID: must be one of AUTH_PROVIDER_A_CLIENT_IDS"},
		"slug of another path":       {env{"ADMIN_SLUG": "swagger"}, "ADMIN_SLUG: must not be the name of another path of the service"},
		"no origin":                  {env{"CORS_ALLOWED_ORIGINS": " , "}, "CORS_ALLOWED_ORIGINS: must list origins such as https://app.example.com"},
		"origin without scheme":      {env{"CORS_ALLOWED_ORIGINS": "app.example"}, "CORS_ALLOWED_ORIGINS: must list origins such as https://app.example.com"},
		"proxies by name":            {env{"TRUSTED_PROXIES": "10.0.0.0/8,proxy"}, "TRUSTED_PROXIES: must list CIDR ranges such as 10.0.0.0/8, or be none"},
		"unknown level":              {env{"LOG_LEVEL": "loud"}, "LOG_LEVEL: must be one of debug, info, warn, error"},
		"ops address without port":   {env{"OPS_ADDR": "localhost"}, "OPS_ADDR: must be host:port or :port"},
		"ops address on PORT":        {env{"PORT": "9000", "OPS_ADDR": "127.0.0.1:9000"}, "OPS_ADDR: must use another port than PORT"},
		"unknown role":               {env{"ROLES": "api,renders"}, "ROLES: must list some of api, render, separation and sweep"},
		"all roles, in any order":    {env{"ROLES": "sweep, separation,RENDER,api"}, ""},
		"roles apart on SQLite":      {env{"ROLES": "api,render"}, "ROLES: must be all of api, render, separation and sweep on SQLite, which processes cannot share"},
		"roles apart, files too": {env{"ROLES": "api", "DATABASE_URL": "postgres://h/db?sslmode=require"},
			"ROLES: must be all of api, render, separation and sweep without OBJECT_STORE_BUCKET, because other processes could not see the files"},
		"sample rate 1.1": {env{"MONITORING_TRACES_SAMPLE_RATE": "1.1"}, "MONITORING_TRACES_SAMPLE_RATE: must be a number from 0.0 to 1.0"},
		"sample rate NaN": {env{"MONITORING_TRACES_SAMPLE_RATE": "NaN"}, "MONITORING_TRACES_SAMPLE_RATE: must be a number from 0.0 to 1.0"},
		"DSN without key": {env{"MONITORING_DSN": "https://sentry.example/1"}, "MONITORING_DSN: must have the form https://<public key>@<host>/<project>"},

		"products worth nothing":     {env{"CREDIT_PRODUCTS": "a=0"}, products},
		"products beyond 64 bits":    {env{"CREDIT_PRODUCTS": "a=18446744073709551617"}, products},
		"products twice":             {env{"CREDIT_PRODUCTS": "a=1,a=2"}, "CREDIT_PRODUCTS: must name each product once"},
		"products empty":             {env{"CREDIT_PRODUCTS": ","}, "CREDIT_PRODUCTS: must list at least one productId=credits"},
		"provider key not ASCII":     {env{"SEPARATION_PROVIDER_API_KEY": "schlüssel"}, "SEPARATION_PROVIDER_API_KEY: must be printable ASCII without white space"},
		"private provider over http": {env{"SEPARATION_PROVIDER_BASE_URL": "http://provider:9000", "SEPARATION_PROVIDER_STORAGE_BASE_URL": "http://10.0.0.7"}, ""},
		"platform_a half, malformed": {env{"IAP_PLATFORM_A_SERVICE_ACCOUNT_JSON": "{"}, ""},
	})
}

// Every number takes its documented limits, refuses what lies just beyond them, and never wraps.
func TestEveryNumberKeepsItsRange(t *testing.T) {
	for _, k := range Keys {
		if k.Max == 0 {
			continue
		}
		t.Run(k.Name, func(t *testing.T) {
			refusal := k.Name + ": must be a whole number, " + k.Range()
			below := new(big.Int).Sub(big.NewInt(k.Min), big.NewInt(1)).String()
			above := new(big.Int).Add(big.NewInt(k.Max), big.NewInt(1)).String()
			for _, bad := range []string{below, above, "abc", "1.5", "1e3", "0x10", "12 13",
				"-9223372036854775809", "9223372036854775808", "18446744073709551617"} {
				if got := problems(t, map[string]string{k.Name: bad}); !slices.Contains(got, refusal) {
					t.Errorf("%q: problems %q", bad, got)
				}
			}
			for _, good := range []int64{k.Min, k.Max} {
				env := map[string]string{k.Name: big.NewInt(good).String()}
				if k.Name == "SEPARATION_ABANDON_TTL_MS" {
					env["SEPARATION_URL_TTL_SEC"] = "60"
				}
				if cfg := load(t, env); strings.Contains(fmt.Sprintf("%+v", cfg), ":-") {
					t.Errorf("%d wrapped to a negative number: %+v", good, cfg)
				}
			}
		})
	}
}

func TestAllProblemsAreReportedTogether(t *testing.T) {
	_, err := Load(lookup(map[string]string{
		"AUTH_JWT_SECRET": "hunter2", "PORT": "hunter2", "LOG_LEVEL": "hunter2", "DATABASE_URL": "postgres://u:hunter2@h/db",
		"SEPARATION_PROVIDER_BASE_URL": "https://u:hunter2@h", "MONITORING_DSN": "hunter2", "CREDIT_PRODUCTS": "hunter2",
		"OPS_ADDR": "hunter2", "TRUSTED_PROXIES": "hunter2", "CORS_ALLOWED_ORIGINS": "hunter2\nhunter2",
	}))
	if err == nil {
		t.Fatal("Load accepted nonsense")
	}
	want := []string{"AUTH_JWT_SECRET", "AUTH_PROVIDER_A_CLIENT_IDS", "CORS_ALLOWED_ORIGINS", "CREDIT_PRODUCTS", "DATABASE_URL",
		"DB_PASSWORD", "DB_USER", "LOG_LEVEL", "MONITORING_DSN", "OPS_ADDR", "PORT", "SEPARATION_PROVIDER_API_KEY",
		"SEPARATION_PROVIDER_BASE_URL", "SEPARATION_PROVIDER_SPACE_ID", "SEPARATION_SIGNING_SECRET", "TRUSTED_PROXIES"}
	var got []string
	for line := range strings.SplitSeq(err.Error(), "\n") {
		key, rule, ok := strings.Cut(line, ": ")
		if !ok || rule == "" {
			t.Errorf("line %q does not name a key and a rule", line)
		}
		got = append(got, key)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("keys\n got %q\nwant %q", got, want)
	}
	if strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a value is shown:\n%v", err)
	}
	if p, ok := errors.AsType[*Problem](err); !ok || p.Key == "" || p.Rule == "" {
		t.Errorf("the error holds no Problem: %#v", p)
	}
}

// A variable set to white space behaves as if it were not set, for every key.
func TestBlankEqualsAbsent(t *testing.T) {
	plain := load(t, nil)
	for _, k := range Keys {
		if k.Required == Always {
			if got := problems(t, map[string]string{k.Name: " \t"}); !slices.Equal(got, []string{k.Name + ": is required"}) {
				t.Errorf("a blank %s: problems %q", k.Name, got)
			}
			continue
		}
		if got := load(t, map[string]string{k.Name: " \t"}); !reflect.DeepEqual(got, plain) {
			t.Errorf("a blank %s changes the configuration", k.Name)
		}
	}
}

func TestDatabaseURL(t *testing.T) {
	for given, want := range map[string]string{
		"postgres://db.example/films?sslmode=require":                                   "postgres://db.example/films?sslmode=require",
		"postgresql://db.example:5433/films?sslmode=verify-ca":                          "postgres://db.example:5433/films?sslmode=verify-ca",
		"jdbc:postgresql://db.example/films?sslmode=verify-full":                        "postgres://db.example/films?sslmode=verify-full",
		"jdbc:postgresql://db/f?user=u&password=p&sslmode=require&application_name=a+b": "postgres://db/f?sslmode=require&application_name=a+b",
		"postgres://u:p%40@db/f?sslmode=require":                                        "postgres://db/f?sslmode=require",
		"postgres://u:p@ss@db/f?sslmode=require":                                        "postgres://db/f?sslmode=require",
		"postgres://a:1,b:2/f?target_session_attrs=read-write&sslmode=require":          "postgres://a:1,b:2/f?target_session_attrs=read-write&sslmode=require",
		"postgres:///f?host=/run/postgresql&sslmode=require":                            "postgres:///f?host=/run/postgresql&sslmode=require",
		"postgres://[::1]:5432/f?sslmode=require":                                       "postgres://[::1]:5432/f?sslmode=require",
		"sqlite:///var/lib/cutroom/a b.db":                                              "sqlite:///var/lib/cutroom/a b.db",
		"sqlite://data/cutroom.db":                                                      "sqlite://data/cutroom.db",
		"sqlite::memory:":                                                               "sqlite::memory:",
	} {
		got := load(t, map[string]string{"DATABASE_URL": " " + given + "\n", "DB_PASSWORD": " p w "}).Database
		if got.URL != want {
			t.Errorf("%s\n got %s\nwant %s", given, got.URL, want)
		}
		if !got.Password.equals(" p w ") {
			t.Errorf("the password became %q", got.Password.Reveal())
		}
	}
}

func TestValuesReachTheirFields(t *testing.T) {
	key := privateKeyPEM()
	cfg := load(t, map[string]string{
		"PORT": "9001", "PUBLIC_BASE_URL": "https://films.example/base//",
		"CORS_ALLOWED_ORIGINS": "https://a.example/, capacitor://localhost,",
		"TRUSTED_PROXIES":      "203.0.113.7, 10.1.2.3/8", "RATE_LIMIT_TRUSTED_PROXY_HOPS": "2",
		"ADMIN_SLUG": "back_Office-1", "ADMIN_PROVIDER_A_CLIENT_ID": "web.example", "ENABLE_API_DOCS": "True", "ENABLE_TESTDATA_MOCK": "true",
		"LOG_LEVEL": "WARN", "LOG_FORMAT": "Text", "OPS_ADDR": "127.0.0.1:0",
		"ROLES": "Sweep,render", "DATABASE_URL": "postgres://db/films?sslmode=require",
		"MONITORING_DSN":             "https://abc@sentry.example/42",
		"AUTH_PROVIDER_B_CLIENT_IDS": "com.example.app , com.example.web",
		"OBJECT_STORE_BUCKET":        "films", "OBJECT_STORE_ACCOUNT_ID": strings.Repeat("AB", 16),
		"OBJECT_STORE_ACCESS_KEY_ID": "id", "OBJECT_STORE_SECRET_ACCESS_KEY": "s3cr3t\n",
		"OBJECT_STORE_REGION": "eu-central-1", "OBJECT_STORE_ADDRESSING": "Virtual",
		"SEPARATION_PROVIDER_BASE_URL":    "http://127.0.0.1:4000/",
		"PROVIDER_DOWNLOAD_ALLOWED_HOSTS": "CDN.example,[::1],portal-media.perso.ai",
		"RENDER_MAX_CONCURRENT":           "3",
		"CREDIT_PRODUCTS":                 " small = 5 , large=500,",
		"IAP_PLATFORM_A_PACKAGE_NAME":     "com.example.app", "IAP_PLATFORM_A_SERVICE_ACCOUNT_JSON": serviceAccount(nil),
		"IAP_PLATFORM_B_ISSUER_ID": "issuer", "IAP_PLATFORM_B_KEY_ID": "kid", "IAP_PLATFORM_B_BUNDLE_ID": "com.example.app",
		"IAP_PLATFORM_B_PRIVATE_KEY": strings.ReplaceAll(key, "\n", `\n`), "IAP_PLATFORM_B_ENV": "Sandbox",
		"IAP_PLATFORM_B_ROOT_CA_FILE": rootFile,
	})
	check := func(name string, got, want any) {
		t.Helper()
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
	check("HTTP", cfg.HTTP, HTTP{
		Port: 9001, PublicBaseURL: "https://films.example/base",
		AllowedOrigins: []string{"https://a.example", "capacitor://localhost"},
		TrustedProxies: []netip.Prefix{netip.MustParsePrefix("203.0.113.7/32"), netip.MustParsePrefix("10.0.0.0/8")},
		ProxyHops:      2, OpsAddr: "127.0.0.1:0", AdminSlug: "back_Office-1", AdminClientID: "web.example", APIDocs: true, TestdataMock: true,
	})
	check("Log", cfg.Log, Log{Level: slog.LevelWarn})
	check("roles", cfg.Roles, Roles{Render: true, Sweep: true})
	check("roles by name", cfg.Roles.String(), "render,sweep")
	check("DSN", cfg.Monitoring.DSN.Reveal(), "https://abc@sentry.example/42")
	check("provider_b", cfg.Auth.ProviderB.ClientIDs, []string{"com.example.app", "com.example.web"})
	check("object store", cfg.ObjectStore, ObjectStore{
		Bucket: "films", Endpoint: "https://" + strings.Repeat("ab", 16) + ".r2.cloudflarestorage.com", Region: "eu-central-1", VirtualHost: true,
		AccessKeyID: "id", SecretAccessKey: NewSecret("s3cr3t"), SignedURLTTL: 15 * time.Minute,
	})
	check("enabled", cfg.ObjectStore.Enabled(), true)
	check("base URL", cfg.Separation.BaseURL, "http://127.0.0.1:4000")
	check("hosts", cfg.Separation.AllowedHosts, []string{"cdn.example", "::1", "portal-media.perso.ai", "127.0.0.1"})
	check("slots", cfg.Render.MaxConcurrent, 3)
	check("products", cfg.Credit.Products, map[string]int64{"small": 5, "large": 500})
	check("configured", []bool{cfg.IAP.PlatformA.Configured, cfg.IAP.PlatformB.Configured}, []bool{true, true})
	check("private key", cfg.IAP.PlatformB.PrivateKey.Reveal(), strings.TrimSpace(strings.ReplaceAll(key, `\n`, "\n"))+"\n")
	check("store", cfg.IAP.PlatformB.BaseURL, "https://api.storekit-sandbox.apple.com")
	root, err := os.ReadFile(rootFile)
	if err != nil {
		t.Fatal(err)
	}
	check("root", cfg.IAP.PlatformB.RootCAs, root)
	check("warnings", cfg.Warnings, []string(nil))
}

func TestOverridesAndSwitches(t *testing.T) {
	type env = map[string]string
	if got := load(t, env{"PORT": "9001"}).HTTP.PublicBaseURL; got != "http://localhost:9001" {
		t.Errorf("the default base URL is %s", got)
	}
	if got := load(t, env{"CORS_ALLOWED_ORIGINS": "https://a.example,*"}).HTTP.AllowedOrigins; got != nil {
		t.Errorf("* allows only %v", got)
	}
	if got := load(t, env{"TRUSTED_PROXIES": "None"}).HTTP.TrustedProxies; len(got) != 0 {
		t.Errorf("none trusts %v", got)
	}
	for _, off := range []string{"1", "truee"} {
		if load(t, env{"ENABLE_API_DOCS": off}).HTTP.APIDocs {
			t.Errorf("%q switches the API docs on", off)
		}
	}
}

// A partial group is allowed and leaves its feature off, but is never silent.
func TestWarnings(t *testing.T) {
	type env = map[string]string
	for name, test := range map[string]struct {
		env  env
		want string
	}{
		"platform_a": {env{"IAP_PLATFORM_A_PACKAGE_NAME": "app"},
			"platform_a is not configured: it lacks IAP_PLATFORM_A_SERVICE_ACCOUNT_JSON"},
		"platform_b": {env{"IAP_PLATFORM_B_KEY_ID": "k", "IAP_PLATFORM_B_PRIVATE_KEY": "p"},
			"platform_b is not configured: it lacks IAP_PLATFORM_B_ISSUER_ID, IAP_PLATFORM_B_BUNDLE_ID"},
		"bucket": {env{"OBJECT_STORE_ACCESS_KEY_ID": "id"},
			"the object store is off: OBJECT_STORE_BUCKET is blank although other OBJECT_STORE keys are set"},
		"provider_b": {env{"AUTH_PROVIDER_B_CLIENT_IDS": ", ,"},
			"AUTH_PROVIDER_B_CLIENT_IDS lists no client id: provider_b sign-in is off"},
		"flag": {env{"ENABLE_API_DOCS": "1"}, "ENABLE_API_DOCS is neither true nor false and stays off"},
		"plain http": {env{"SEPARATION_PROVIDER_BASE_URL": "http://localhost:9000", "SEPARATION_PROVIDER_STORAGE_BASE_URL": "http://provider:9000"},
			"SEPARATION_PROVIDER_STORAGE_BASE_URL is plain http to another machine: the network can read what is sent"},
		"web hook": {env{"WEBHOOK_SECRET": webhookSecretOf(32)},
			"the web hook is off: WEBHOOK_URL is blank although WEBHOOK_SECRET is set"},
		"push": {env{"PUSH_PLATFORM_B_KEY_ID": "k", "PUSH_PLATFORM_B_TEAM_ID": "t"},
			"push to platform_b is not configured: it lacks PUSH_PLATFORM_B_KEY, PUSH_PLATFORM_B_TOPIC"},
		"traces to nowhere": {env{"MONITORING_DSN": "https://k@x.example/1", "MONITORING_TRACES_SAMPLE_RATE": "1"},
			"MONITORING_TRACES_SAMPLE_RATE has no effect: traces go only to OTEL_EXPORTER_OTLP_ENDPOINT, which is blank"},
		"one secret": {env{"SEPARATION_SIGNING_SECRET": jwtSecret},
			"AUTH_JWT_SECRET and SEPARATION_SIGNING_SECRET are the same: use a different secret for each"},
	} {
		cfg := load(t, test.env)
		if !slices.Equal(cfg.Warnings, []string{test.want}) {
			t.Errorf("%s: warnings %q, want %q", name, cfg.Warnings, test.want)
		}
		if cfg.IAP.PlatformA.Configured || cfg.IAP.PlatformB.Configured || cfg.ObjectStore.Enabled() {
			t.Errorf("%s: a partial group counts as configured", name)
		}
	}
}
