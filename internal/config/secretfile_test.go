package config

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

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
