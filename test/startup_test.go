// How the program starts: refused configurations, forms of DATABASE_URL, rights in the database, other commands.

package test

import (
	"context"
	"encoding/json"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"cutroom/internal/sandbox/process"
	"cutroom/internal/testkit/apitest"
	"cutroom/internal/testkit/benchtest"
	"cutroom/internal/testkit/dbtest"
)

// secretsOfStartup are the secrets of validEnv. The service must never print them, even if settings are invalid.
var secretsOfStartup = []string{
	"apikey-never-print-1", "stemsecret-never-print-0123456789abcdef", "jwtsecret-never-print-0123456789abcdef",
	"dbpassword-never-print", "s3secret-never-print", "urlpassword-never-print", "tooshort-secret",
}

// validEnv returns the smallest valid configuration.
func validEnv(t *testing.T) map[string]string {
	return map[string]string{
		"SEPARATION_PROVIDER_API_KEY":  secretsOfStartup[0],
		"SEPARATION_PROVIDER_SPACE_ID": "7",
		"SEPARATION_SIGNING_SECRET":    secretsOfStartup[1],
		"AUTH_JWT_SECRET":              secretsOfStartup[2],
		"AUTH_PROVIDER_A_CLIENT_IDS":   "ios.client,web.client",
		"DATABASE_URL":                 "sqlite://" + filepath.Join(t.TempDir(), "x.db"),
		"DB_USER":                      "cutroom",
		"DB_PASSWORD":                  secretsOfStartup[3],
		"STORAGE_PATH":                 filepath.Join(t.TempDir(), "storage"),
		"PORT":                         freePort(t),
	}
}

func freePort(t testing.TB) string {
	t.Helper()
	port, err := process.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// refused runs `cutroom serve` and fails the test unless it exits with status 1, never listens and prints no secret. It
// returns the output.
func refused(t *testing.T, dir string, env map[string]string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	listened := make(chan bool, 1)
	watch, stop := context.WithCancel(ctx)
	go func() { listened <- dials(watch, env["PORT"]) }()
	status, out, err := apitest.Run(ctx, dir, env, "serve")
	stop()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if status != 1 {
		t.Errorf("exit status %d, want 1\n%s", status, out)
	}
	if <-listened {
		t.Error("it listened before it exited")
	}
	for _, secret := range secretsOfStartup {
		if strings.Contains(out, secret) {
			t.Errorf("the output contains the secret %q:\n%s", secret, out)
		}
	}
	return out
}

// dials reports whether anything accepted a connection on the port before ctx ended.
func dials(ctx context.Context, port string) bool {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if conn, err := net.Dial("tcp", "127.0.0.1:"+port); err == nil {
			conn.Close()
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
}

// The program reports problems and exits, without printing a secret. The config package tests all rules.
func TestStartupRefusesBadConfiguration(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	tests := []struct {
		name string
		set  map[string]string // "" leaves the key blank
		keys []string          // the output must name these
	}{
		{"blank provider key", one("SEPARATION_PROVIDER_API_KEY", " "), nil},
		{"short jwt secret", one("AUTH_JWT_SECRET", "tooshort-secret"), nil},
		{"no sslmode, password in the address", one("DATABASE_URL", "postgres://u:urlpassword-never-print@db.invalid/x"), nil},
		{"bucket without account", map[string]string{"OBJECT_STORE_BUCKET": "b", "OBJECT_STORE_ACCESS_KEY_ID": "k",
			"OBJECT_STORE_SECRET_ACCESS_KEY": "s3secret-never-print"}, []string{"OBJECT_STORE_ACCOUNT_ID"}},
		{"values that only the vendors' packages check", map[string]string{"SEPARATION_PROVIDER_API_KEY": secretsOfStartup[0] + "\ttab",
			"SEPARATION_PROVIDER_BASE_URL": "ftp://127.0.0.1", "SEPARATION_PROVIDER_STORAGE_BASE_URL": "https://u:urlpassword-never-print@h",
			"IAP_PLATFORM_A_PACKAGE_NAME": "app", "IAP_PLATFORM_A_SERVICE_ACCOUNT_JSON": `{"client_email":"a@b.example","private_key":"tooshort-secret"}`,
			"IAP_PLATFORM_B_ISSUER_ID": "i", "IAP_PLATFORM_B_KEY_ID": "k", "IAP_PLATFORM_B_BUNDLE_ID": "b",
			"IAP_PLATFORM_B_PRIVATE_KEY": "tooshort-secret", "IAP_PLATFORM_B_ROOT_CA_FILE": "/no/such/file.pem"},
			[]string{"SEPARATION_PROVIDER_API_KEY", "SEPARATION_PROVIDER_BASE_URL", "SEPARATION_PROVIDER_STORAGE_BASE_URL",
				"IAP_PLATFORM_A_SERVICE_ACCOUNT_JSON", "IAP_PLATFORM_B_PRIVATE_KEY", "IAP_PLATFORM_B_ROOT_CA_FILE"}},
		{"no such programs", one("PATH", "/no/such/folder"), []string{"ffmpeg"}},
		{"storage folder below a file", one("STORAGE_PATH", "/dev/null/storage"), nil},
		{"one role without a port", map[string]string{"ROLES": "render", "DATABASE_URL": "postgres://db.invalid/cutroom?sslmode=require"},
			[]string{"ROLES", "OPS_ADDR", "OBJECT_STORE_BUCKET"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			env := validEnv(t)
			maps.Copy(env, tt.set)
			out := refused(t, t.TempDir(), env)
			keys := tt.keys
			if keys == nil {
				for k := range tt.set {
					keys = append(keys, k)
				}
			}
			for _, key := range keys {
				if !strings.Contains(out, key) {
					t.Errorf("the output does not name %s:\n%s", key, out)
				}
			}
			if _, err := os.Stat(env["STORAGE_PATH"]); err == nil {
				t.Error("it created the storage folder before it exited")
			}
			if _, err := os.Stat(strings.TrimPrefix(env["DATABASE_URL"], "sqlite://")); err == nil {
				t.Error("it created the database before it exited")
			}
		})
	}
}

// one returns a map with one entry.
func one(key, value string) map[string]string { return map[string]string{key: value} }

// A port that another program holds is reported by the name of its setting.
func TestStartupNamesTheSettingOfATakenPort(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken := l.Addr().String()
	_, port, _ := net.SplitHostPort(taken)
	for _, tt := range []struct {
		key string
		set map[string]string
	}{
		{"PORT", map[string]string{"PORT": port, "BIND_ADDR": "127.0.0.1"}},
		{"OPS_ADDR", one("OPS_ADDR", taken)},
		{"BIND_ADDR", one("BIND_ADDR", "192.0.2.1")}, // of no machine
	} {
		t.Run(tt.key, func(t *testing.T) {
			env := validEnv(t)
			maps.Copy(env, tt.set)
			status, out, err := apitest.Run(t.Context(), t.TempDir(), env, "serve")
			if err != nil || status != 1 || !strings.Contains(out, tt.key+": cannot listen") {
				t.Errorf("status %d, %v: want %s in\n%s", status, err, tt.key, out)
			}
		})
	}
}

func TestStartupRefusesWrongDatabasePassword(t *testing.T) {
	t.Parallel()
	if !apitest.Postgres() {
		t.Skip("the embedded database has no password")
	}
	url, user, password := dbtest.URL(t)
	for _, wrong := range []map[string]string{
		{"DB_USER": user, "DB_PASSWORD": "dbpassword-never-print"},
		{"DB_USER": "nobody_of_this_name", "DB_PASSWORD": password},
	} {
		env := validEnv(t)
		env["DATABASE_URL"] = url
		maps.Copy(env, wrong)
		out := refused(t, t.TempDir(), env)
		if strings.Contains(out, password) || !strings.Contains(out, "DB_PASSWORD") {
			t.Errorf("the output contains the password, or does not name its key:\n%s", out)
		}
	}
}

// These are the forms of DATABASE_URL that no other test uses.
func TestStartupAcceptsEveryDatabaseForm(t *testing.T) {
	t.Parallel()
	forms := map[string]map[string]string{
		"relative": one("DATABASE_URL", "sqlite://relative/path.db"),
		"memory":   one("DATABASE_URL", "sqlite::memory:"),
	}
	if apitest.Postgres() {
		url, user, password := dbtest.Empty(t)
		_, rest, _ := strings.Cut(url, "://")
		forms = map[string]map[string]string{"jdbc": {"DATABASE_URL": "jdbc:postgresql://" + rest, "DB_USER": user, "DB_PASSWORD": password}}
	}
	for name, form := range forms {
		t.Run(name, func(t *testing.T) {
			var opts []apitest.Option
			for k, v := range form {
				opts = append(opts, apitest.Env(k, v))
			}
			s := apitest.Start(t, append(opts, apitest.Replicas(1))...)
			if b := s.SignIn(t).Balance(t); b != 3 {
				t.Errorf("balance %d, want 3", b)
			}
		})
	}
}

func TestStartsFastAndIdlesSmall(t *testing.T) {
	s := apitest.Start(t, apitest.Replicas(1))
	best := time.Hour
	for range 3 {
		began := time.Now()
		s.StopBy(t, syscall.SIGINT) // other tests use SIGTERM
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("an idle service took %v to stop", took)
		}
		s.Restart(t)
		// CPU time, because other tests use the same cores.
		best = min(best, benchtest.TreeCPU(s.PID(0)))
	}
	if best > time.Second {
		t.Errorf("the best of three starts took %v of CPU, want under a second", best)
	}
	if used := benchtest.Resident(s.PID(0)); used == 0 || used > 60<<20 {
		t.Errorf("idle memory is %d MB, want under 60", used>>20)
	}
}

func TestOtherCommands(t *testing.T) {
	t.Parallel()
	s := apitest.Shared(t)
	if out := succeeds(t, s, "version"); !strings.Contains(out, "go1.") || !strings.Contains(strings.ToLower(out), "ffmpeg") {
		t.Errorf("cutroom version: %s", out)
	}
	succeeds(t, s, "migrate")
	u := s.SignIn(t)
	succeeds(t, s, "admin", "grant", u.Sub)
	if out := succeeds(t, s, "admin", "list"); !strings.Contains(out, u.Email) {
		t.Errorf("cutroom admin list: want %s in it: %s", u.Email, out)
	}
	u.SignInAgain(t)
	u.Get(t, "/api/v2/admin/overview").Expect(200)
	succeeds(t, s, "admin", "revoke", u.Email)
	// The revocation applies at once, although the old token still has the role.
	u.Get(t, "/api/v2/admin/overview").Error(403, "admin_required")
	u.Post(t, grantPath, M{"productId": "credits.10"}).Error(403, "admin_required")
	if u.SignInAgain(t); u.Role != "user" {
		t.Errorf("role after revoke: %q", u.Role)
	}
}

// The service and its commands work with the role that the statements in deploy/postgres create. It owns nothing.
func TestTheServiceNeedsNoRightButToRows(t *testing.T) {
	t.Parallel()
	if !apitest.Postgres() {
		t.Skip("SQLite has no roles")
	}
	file, err := os.ReadFile("../deploy/postgres/roles.sql")
	if err != nil {
		t.Fatal(err)
	}
	_, grants, found := strings.Cut(string(file), "\nGRANT ")
	if !found {
		t.Fatal("roles.sql grants nothing")
	}
	grants = strings.NewReplacer("cutroom_service", "%s", "FOR ROLE cutroom_owner ", "").Replace("GRANT " + grants)
	address, user, password := dbtest.RowsOnly(t, grants)
	s := apitest.Start(t, apitest.Env("DATABASE_URL", address),
		apitest.Env("DB_USER", user), apitest.Env("DB_PASSWORD", password))
	admin, u := s.Admin(t), s.SignIn(t)
	admin.Get(t, adminPath+"overview").Expect(200)
	u.Buy(t, "credits.10")
	u.WaitRendered(t, u.Render(t, M{"videoDurationMs": 500}, apitest.File("video", redClip(t))))
	u.WaitReady(t, u.Separate(t, mixture(t)))
	succeeds(t, s, "user", "erase", u.Sub)
	var creates bool
	if err := s.Database(t).QueryRow(t.Context(), `SELECT has_schema_privilege($1, current_schema(), 'CREATE')`, user).Scan(&creates); err != nil || creates {
		t.Errorf("the role may create tables: %v, %v", creates, err)
	}
	// It does not start on an older schema, which it may not migrate.
	s.Stop(t)
	if _, err := s.Database(t).Exec(t.Context(), `DELETE FROM goose_db_version WHERE version_id = (SELECT MAX(version_id) FROM goose_db_version)`); err != nil {
		t.Fatal(err)
	}
	if status, out := s.Command(t, "serve"); status != 1 || !strings.Contains(out, "run `cutroom migrate`") {
		t.Errorf("on an older schema: status %d: %s", status, out)
	}
}

func TestLastWordsAreInTheFormatOfTheLog(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	for format, lineIsJSON := range map[string]bool{"json": true, "text": false} {
		env := validEnv(t)
		maps.Copy(env, map[string]string{"LOG_FORMAT": format, "PORT": "0", "DB_MAX_POOL": "0"})
		out := refused(t, t.TempDir(), env)
		lines := 3 // a header and two problems
		if lineIsJSON {
			lines = 2
		}
		if strings.Count(out, "\n") != lines || !strings.Contains(out, "PORT: ") || !strings.Contains(out, "DB_MAX_POOL: ") {
			t.Errorf("%s: want two problems, each on its own line:\n%s", format, out)
		}
		status, missing, err := apitest.Run(t.Context(), t.TempDir(), env, "serve", "--env-file", "/nowhere.env")
		if err != nil || status != 1 || strings.HasPrefix(missing, "{") != lineIsJSON || !strings.Contains(missing, "/nowhere.env: does not exist") {
			t.Errorf("%s: a missing file: status %d, %v, %s", format, status, err, missing)
		}
		for line := range strings.Lines(out) {
			var entry struct{ Level, Msg string }
			if err := json.Unmarshal([]byte(line), &entry); (err == nil && entry.Level == "ERROR" && entry.Msg != "") != lineIsJSON {
				t.Errorf("%s: %s", format, line)
			}
		}
		// Commands print sentences.
		if _, out, err := apitest.Run(t.Context(), t.TempDir(), env, "admin", "list"); err != nil || strings.HasPrefix(out, "{") {
			t.Errorf("%s: cutroom admin list: %v, %s", format, err, out)
		}
	}
}
