// Package deploy holds no code, only the files that run cutroom. The tests keep them in sync with the program, because
// they cannot run containers.
package deploy

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"cutroom/internal/config"
)

func read(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// one returns the single match of a pattern's group in a file.
func one(t testing.TB, path, pattern string) string {
	t.Helper()
	found := regexp.MustCompile(pattern).FindAllStringSubmatch(read(t, path), -1)
	if len(found) != 1 {
		t.Fatalf("%s: %d matches of %s, want 1", path, len(found), pattern)
	}
	return found[0][1]
}

func key(name string) (config.Key, bool) {
	i := slices.IndexFunc(config.Keys, func(k config.Key) bool { return k.Name == name })
	if i < 0 {
		return config.Key{}, false
	}
	return config.Keys[i], true
}

// runtimeKeys are read by the service's Go runtime, not by the service.
var runtimeKeys = []string{"SSL_CERT_DIR"}

// composeFile is the part of a compose file that the tests check.
type composeFile struct {
	Services map[string]service        `yaml:"services"`
	Volumes  map[string]map[string]any `yaml:"volumes"`
	Networks map[string]map[string]any `yaml:"networks"`
}

type service struct {
	Image       string            `yaml:"image"`
	Command     []string          `yaml:"command"`
	Environment map[string]string `yaml:"environment"`
	EnvFile     []string          `yaml:"env_file"`
	Volumes     []string          `yaml:"volumes"`
	Ports       []string          `yaml:"ports"`
	ReadOnly    bool              `yaml:"read_only"`
	CapDrop     []string          `yaml:"cap_drop"`
	SecurityOpt []string          `yaml:"security_opt"`
	GracePeriod string            `yaml:"stop_grace_period"`
	DependsOn   map[string]any    `yaml:"depends_on"`
	Networks    any               `yaml:"networks"`
	Build       struct {
		Context    string `yaml:"context"`
		Dockerfile string `yaml:"dockerfile"`
	} `yaml:"build"`
}

func compose(t testing.TB) composeFile {
	t.Helper()
	var c composeFile
	if err := yaml.Unmarshal([]byte(read(t, "docker-compose.yml")), &c); err != nil {
		t.Fatal(err)
	}
	return c
}

// replicas returns the services that run the program's serve.
func (c composeFile) replicas() map[string]service {
	out := map[string]service{}
	for name, s := range c.Services {
		if strings.HasPrefix(s.Image, "cutroom:") && len(s.Command) == 0 {
			out[name] = s
		}
	}
	return out
}

var variable = regexp.MustCompile(`\$\{([A-Z0-9_]+)(?:(:[-?])([^}]*))?\}`)

// interpolate interpolates a value as docker compose does.
func interpolate(value string, env map[string]string) string {
	value = variable.ReplaceAllStringFunc(value, func(m string) string {
		parts := variable.FindStringSubmatch(m)
		if v := env[parts[1]]; v != "" {
			return v
		}
		if parts[2] == ":-" {
			return parts[3]
		}
		return ""
	})
	return strings.ReplaceAll(value, "$$", "$")
}

// envExample reads env.example: the keys it sets, and the keys it only mentions.
func envExample(t testing.TB) (set map[string]string, mentioned []string) {
	t.Helper()
	set = map[string]string{}
	line := regexp.MustCompile(`^(#?)([A-Z][A-Z0-9_]*)=(.*)$`)
	for text := range strings.Lines(read(t, "env.example")) {
		m := line.FindStringSubmatch(strings.TrimSpace(text))
		switch {
		case m == nil:
		case m[1] == "#":
			mentioned = append(mentioned, m[2])
		default:
			set[m[2]] = m[3]
		}
	}
	return set, mentioned
}

// filled is env.example with the blanks filled in.
func filled(t testing.TB) map[string]string {
	t.Helper()
	env, _ := envExample(t)
	for name, value := range env {
		if value == "" {
			env[name] = name + "-" + strings.Repeat("x", 40)
		}
	}
	env["SEPARATION_PROVIDER_SPACE_ID"] = "7"
	return env
}

// environment is the environment of a service's container.
func (s service) environment(env map[string]string) map[string]string {
	out := map[string]string{}
	if len(s.EnvFile) > 0 {
		for k, v := range env {
			out[k] = v
		}
	}
	for k, v := range s.Environment {
		out[k] = interpolate(v, env)
	}
	return out
}

func TestEnvExampleNamesKeysThatExist(t *testing.T) {
	set, mentioned := envExample(t)
	text := read(t, "docker-compose.yml")
	for _, name := range slices.AppendSeq(mentioned, maps.Keys(set)) {
		_, ours := key(name)
		if !ours && !strings.Contains(text, "${"+name+":") {
			t.Errorf("%s is neither a key of the service nor used by docker-compose.yml", name)
		}
	}
	for _, m := range variable.FindAllStringSubmatch(text, -1) {
		if _, ok := set[m[1]]; !ok {
			t.Errorf("docker-compose.yml uses %s, which env.example does not set", m[1])
		}
	}
}

func TestReplicasAreConfigured(t *testing.T) {
	c := compose(t)
	replicas := c.replicas()
	if len(replicas) != 2 {
		t.Fatalf("%d replicas, want 2", len(replicas))
	}
	env := filled(t)
	volumes := map[string]bool{}
	for name, s := range replicas {
		for k := range s.Environment {
			known, ok := key(k)
			if !ok && !slices.Contains(runtimeKeys, k) {
				t.Errorf("%s: %s is not a key of the service", name, k)
			}
			if known.Secret {
				t.Errorf("%s: %s is a secret and belongs into .env", name, k)
			}
		}
		got := s.environment(env)
		cfg, err := config.Load(func(k string) (string, bool) { v, ok := got[k]; return v, ok })
		if err != nil {
			t.Errorf("%s is not started: %v", name, err)
		}
		for _, w := range cfg.Warnings {
			t.Errorf("%s is warned: %s", name, w)
		}
		for _, k := range config.Keys {
			required := k.Required == config.Always || k.Required == config.WithBucket
			if required && got[k.Name] == "" {
				t.Errorf("%s: %s is required and not set", name, k.Name)
			}
		}
		if cfg.HTTP.PublicBaseURL != "https://"+env["CUTROOM_HOST"] || cfg.ObjectStore.Endpoint != "https://"+env["S3_HOST"] {
			t.Errorf("%s answers under %s and stores under %s", name, cfg.HTTP.PublicBaseURL, cfg.ObjectStore.Endpoint)
		}
		storage := ""
		for _, v := range s.Volumes {
			source, target, _ := strings.Cut(v, ":")
			if target == cfg.Storage.Path {
				storage = source
			}
		}
		if storage == "" || volumes[storage] {
			t.Errorf("%s: no volume of its own at STORAGE_PATH %s", name, cfg.Storage.Path)
		}
		volumes[storage] = true
		if !s.ReadOnly || !slices.Contains(s.CapDrop, "ALL") || !slices.Contains(s.SecurityOpt, "no-new-privileges:true") {
			t.Errorf("%s is not hardened", name)
		}
		if len(s.Ports) > 0 {
			t.Errorf("%s is reachable past the front", name)
		}
	}
}

func TestMigrationsRunBeforeTheReplicas(t *testing.T) {
	c := compose(t)
	migrate := c.Services["migrate"]
	if !slices.Equal(migrate.Command, []string{"migrate"}) || !strings.Contains(read(t, "../cmd/cutroom/main.go"), "\n  migrate ") {
		t.Errorf("migrate runs %v", migrate.Command)
	}
	env := filled(t)
	got := migrate.environment(env)
	if _, err := config.Load(func(k string) (string, bool) { v, ok := got[k]; return v, ok }); err != nil {
		t.Errorf("migrate is not started: %v", err)
	}
	for name, s := range c.replicas() {
		if fmt.Sprint(s.DependsOn["migrate"]) != "map[condition:service_completed_successfully]" {
			t.Errorf("%s does not wait for migrations", name)
		}
		// The serving role must not be able to change the schema.
		serves := s.environment(env)
		if serves["DB_USER"] == got["DB_USER"] || serves["DB_PASSWORD"] == got["DB_PASSWORD"] {
			t.Errorf("%s has the role of the owner", name)
		}
		for _, role := range []string{serves["DB_USER"], got["DB_USER"]} {
			if !strings.Contains(read(t, "postgres/roles.sql"), "CREATE ROLE "+role+" LOGIN PASSWORD") {
				t.Errorf("roles.sql makes no role %s", role)
			}
		}
	}
}

func TestDatabaseHasConnectionsForThePools(t *testing.T) {
	need := 8 // an operator, a backup, a migration, and PostgreSQL's own reserve
	for _, s := range compose(t).replicas() {
		pool, err := strconv.Atoi(s.Environment["DB_MAX_POOL"])
		if err != nil {
			t.Fatal(err)
		}
		need += 2 * (pool + 3) // twice: during an upgrade old and new may overlap; one listens for wake-ups, two renew leases
	}
	if have, err := strconv.Atoi(one(t, "docker-compose.yml", `-cmax_connections=(\d+)`)); err != nil || have < need {
		t.Errorf("max_connections %d, the replicas may need %d", have, need)
	}
}

func TestThereIsTimeToStop(t *testing.T) {
	drain, err := strconv.Atoi(one(t, "../internal/app/app.go", `drainTimeout = (\d+) \* time\.Second`))
	if err != nil {
		t.Fatal(err)
	}
	want := time.Duration(drain+30) * time.Second
	times := map[string]string{"cutroom.service": one(t, "cutroom.service", `(?m)^TimeoutStopSec=(\d+)$`) + "s"}
	for name, s := range compose(t).replicas() {
		times[name] = s.GracePeriod
	}
	for name, text := range times {
		if d, err := time.ParseDuration(text); err != nil || d < want {
			t.Errorf("%s is killed %s after SIGTERM, want at least %v", name, text, want)
		}
	}
}
