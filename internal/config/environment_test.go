// Where values come from: the environment, an .env file and files with secrets; unknown and misspelt names.

package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func envFileWith(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), ".env")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestEnvironmentWinsOverTheFile(t *testing.T) {
	path := envFileWith(t, "\ufeffPORT=9001\r\nLOG_FORMAT=text\nOPS_ADDR=:9002\n"+
		"DB_PASSWORD='pa$$ #word'\nexport MONITORING_ENV=stage # why\n")
	env := required()
	delete(env, "DB_PASSWORD")
	env["LOG_FORMAT"] = "json"
	env["OPS_ADDR"] = "" // blank, but there: switches the file's value off
	cfg, err := loadWithFile(path, lookup(env))
	if err != nil {
		t.Fatal(err)
	}
	if cfg.HTTP.Port != 9001 || !cfg.Log.JSON || cfg.HTTP.OpsAddr != "" || cfg.Monitoring.Environment != "stage" {
		t.Errorf("port %d, JSON %v, ops %q, env %q", cfg.HTTP.Port, cfg.Log.JSON, cfg.HTTP.OpsAddr, cfg.Monitoring.Environment)
	}
	if !cfg.Database.Password.equals("pa$$ #word") {
		t.Errorf("the password became %q", cfg.Database.Password.Reveal())
	}
}

func TestBrokenFileIsAProblem(t *testing.T) {
	const rule = ": must contain only KEY=value lines, with every quote closed"
	for name, test := range map[string]struct{ text, want string }{
		"no separator":      {"PORT=1\n\n# fine\nhunter2 hunter2\nLOG_LEVEL=info\n", rule},
		"last, no newline":  {"PORT=1\nhunter2", rule},
		"open quote":        {"A='ok\nok'\nDB_PASSWORD=\"hunter2\nPORT=1\n", rule},
		"bad character":     {"API-KEY=hunter2\n", rule},
		"no name":           {"=hunter2\n", rule},
		"larger than 1 MiB": {"A=" + strings.Repeat("hunter2", 1<<18), ": must not be larger than 1 MiB"},
	} {
		path := envFileWith(t, test.text)
		env := with(map[string]string{"PORT": "x"})
		delete(env, "DB_USER") // may be in the file
		_, err := loadWithFile(path, lookup(env))
		if err == nil {
			t.Errorf("%s: accepted", name)
			continue
		}
		want := []string{path + test.want, "PORT: must be a whole number, 1 to 65535"}
		if got := strings.Split(err.Error(), "\n"); !slices.Equal(got, want) {
			t.Errorf("%s:\n got %q\nwant %q", name, got, want)
		}
	}
	folder := t.TempDir()
	if _, err := loadWithFile(folder, lookup(required())); err == nil || err.Error() != folder+": cannot be read" {
		t.Errorf("a folder: %v", err)
	}
}

func TestUnknownNamesInTheFileAreWarnedOf(t *testing.T) {
	path := envFileWith(t, "PORTT=1\nPORT=9001\nMIGTAgEAhunter2==\n")
	cfg, err := loadWithFile(path, lookup(required()))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		path + " sets a name, which is not a key of this service",
		path + " sets PORTT, which is not a key of this service",
	}
	if !slices.Equal(cfg.Warnings, want) {
		t.Errorf("warnings\n got %q\nwant %q", cfg.Warnings, want)
	}
}

func TestMisspeltVariablesAreWarnedOf(t *testing.T) {
	got := misspelt([]string{"RENDER_MAX_CONCURENT=2", "PATH=/bin", "PROT=1", "LOG_LEVEL=info", "LOG_LEVLE=x", "HOME=/", "AUTH_JWT_SECRET_PREV=hunter2",
		"render_max_concurent=2", "OPS_ADDRESS=1", "BIND_ADR=::1"})
	want := []string{
		"BIND_ADR is not a key of this service; did you mean BIND_ADDR?",
		"LOG_LEVLE is not a key of this service; did you mean LOG_LEVEL?",
		"RENDER_MAX_CONCURENT is not a key of this service; did you mean RENDER_MAX_CONCURRENT?",
	}
	if !slices.Equal(got, want) {
		t.Errorf("warnings\n got %q\nwant %q", got, want)
	}
}

func TestLoadEnvironmentReadsAFileUnderTheEnvironment(t *testing.T) {
	named := envFileWith(t, "PORT=9004\nLOG_FORMAT=text\n")
	t.Chdir(filepath.Dir(envFileWith(t, "PORT=9003\nLOG_FORMAT=text\n")))
	for _, k := range Keys {
		t.Setenv(k.Name, "") // restored after the test
		os.Unsetenv(k.Name)
	}
	for key, value := range required() {
		t.Setenv(key, value)
	}
	t.Setenv("LOG_FORMAT", "json")
	for path, port := range map[string]int{"": 9003, named: 9004} {
		cfg, err := LoadEnvironment(path)
		if err != nil {
			t.Fatal(err)
		}
		if cfg.HTTP.Port != port || !cfg.Log.JSON {
			t.Errorf("%q: port %d, JSON %v", path, cfg.HTTP.Port, cfg.Log.JSON)
		}
	}
	if _, err := LoadEnvironment(named + "x"); err == nil || err.Error() != named+"x: does not exist" {
		t.Errorf("a file that is not there: %v", err)
	}
}

func TestSecretsComeFromFiles(t *testing.T) {
	file := func(text string) string { return envFileWith(t, text) }
	key := strings.Repeat("k", 32)
	for name, c := range map[string]struct {
		changes map[string]string
		want    string // problem, "" = starts
	}{
		"file":            {map[string]string{"AUTH_JWT_SECRET": " ", "AUTH_JWT_SECRET_FILE": file(key + "\r\n")}, ""},
		"file and value":  {map[string]string{"AUTH_JWT_SECRET_FILE": file(key)}, "AUTH_JWT_SECRET: must not be set together with AUTH_JWT_SECRET_FILE"},
		"no such file":    {map[string]string{"AUTH_JWT_SECRET": "", "AUTH_JWT_SECRET_FILE": filepath.Join(t.TempDir(), "x")}, "AUTH_JWT_SECRET_FILE: must name a file that can be read"},
		"a folder":        {map[string]string{"AUTH_JWT_SECRET": "", "AUTH_JWT_SECRET_FILE": t.TempDir()}, "AUTH_JWT_SECRET_FILE: must name a file that can be read"},
		"empty file":      {map[string]string{"AUTH_JWT_SECRET": "", "AUTH_JWT_SECRET_FILE": file("\n")}, "AUTH_JWT_SECRET_FILE: must name a file that is not empty"},
		"large file":      {map[string]string{"AUTH_JWT_SECRET": "", "AUTH_JWT_SECRET_FILE": file(strings.Repeat("k", 65<<10))}, "AUTH_JWT_SECRET_FILE: must name a file of at most 64 KiB"},
		"the value's own": {map[string]string{"AUTH_JWT_SECRET": "", "AUTH_JWT_SECRET_FILE": file("short")}, "AUTH_JWT_SECRET: must have at least 32 characters"},
		"broken, with a rule across keys": {map[string]string{"SIGNUP_BONUS_PER_IDENTITY": "once", "SIGNUP_BONUS_KEY_FILE": t.TempDir()},
			"SIGNUP_BONUS_KEY_FILE: must name a file that can be read"},
		"not a secret": {map[string]string{"DB_USER": "", "DB_USER_FILE": file("me")}, "DB_USER: is required"},
	} {
		cfg, err := Load(lookup(with(c.changes)))
		switch {
		case c.want == "" && err != nil, c.want != "" && (err == nil || err.Error() != c.want):
			t.Errorf("%s: %v, want %q", name, err, c.want)
		case c.want == "" && !cfg.Auth.JWTSecret.equals(key):
			t.Errorf("%s: the secret is %q", name, cfg.Auth.JWTSecret.Reveal())
		}
	}
	cfg, err := Load(lookup(with(map[string]string{"DB_PASSWORD": "", "DB_PASSWORD_FILE": file(" pass word \n")})))
	if err != nil || !cfg.Database.Password.equals(" pass word ") {
		t.Errorf("the password is %q, %v", cfg.Database.Password.Reveal(), err)
	}
	if got := misspelt([]string{"DB_PASSWORD_FILE=/x", "DB_PASWORD_FILE=/x"}); !slices.Equal(got, []string{"DB_PASWORD_FILE is not a key of this service; did you mean DB_PASSWORD_FILE?"}) {
		t.Errorf("%q", got)
	}
}
