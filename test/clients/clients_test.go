// Package clients makes films on the real service with clients generated from the API description.
package clients

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"cutroom/internal/sandbox/identity"
	"cutroom/internal/testkit/apitest"
	"cutroom/internal/testkit/mediatest"
)

// builtEnv names the variable that `make clients` sets after it has generated and built the clients.
const builtEnv = "CUTROOM_TEST_CLIENTS"

func TestMain(m *testing.M) { os.Exit(apitest.Main(m)) }

// start returns a service, and a clip for its films.
func start(t *testing.T) (s *apitest.Server, clip string) {
	t.Helper()
	if os.Getenv(builtEnv) == "" {
		t.Skip("runs in make clients")
	}
	return apitest.Start(t, apitest.Bucket(true)),
		mediatest.Clip(t, mediatest.Spec{Width: 320, Height: 180, Tone: 440, Duration: 2 * time.Second})
}

// run runs a client, which signs in as a new user.
func run(t *testing.T, s *apitest.Server, command ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
	cmd.Env = append(os.Environ(), "BASE="+s.URL, "ID_TOKEN="+s.World.MintA(t, identity.Claims{Email: "u@client.example", Name: "U"}))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

func TestGeneratedClientsMakeAFilm(t *testing.T) {
	s, clip := start(t)
	for name, command := range map[string][]string{
		"openapi-typescript": {"node", "../../web/clients/dist/film.js"},
		"hey-api":            {"node", "../../web/clients/dist/film-hey.js"},
		"oapi-codegen":       {"go/film"},
	} {
		t.Run(name, func(t *testing.T) {
			film := filepath.Join(t.TempDir(), "film.mp4")
			run(t, s, append(command, clip, film)...)
			mediatest.DurationWithin(t, film, 1500*time.Millisecond, 100*time.Millisecond)
		})
	}
}

// Runs the tests of web/client that need no server.
func TestClientPackage(t *testing.T) {
	if os.Getenv(builtEnv) == "" {
		t.Skip("runs in make clients")
	}
	out, err := exec.CommandContext(t.Context(), "node", "--test", "../../web/client/test/client.test.mjs").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// The packed client has types for every way in which projects resolve modules, and Node runs it.
func TestPackedClientHasTypes(t *testing.T) {
	if os.Getenv(builtEnv) == "" {
		t.Skip("runs in make clients")
	}
	dir := t.TempDir()
	do := func(command ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", command, err, out)
		}
	}
	web, err := filepath.Abs("../../web")
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	do("npm", "pack", "--silent", "--pack-destination", dir, filepath.Join(web, "client"))
	packed, err := filepath.Glob(filepath.Join(dir, "*.tgz"))
	if err != nil || len(packed) != 1 {
		t.Fatal(packed, err)
	}
	write("package.json", `{"private": true, "type": "module"}`)
	do("npm", "install", "--no-audit", "--no-fund", "--prefer-offline", packed[0])
	app, err := os.ReadFile(filepath.Join(web, "client/test/app.ts"))
	if err != nil {
		t.Fatal(err)
	}
	write("app.ts", string(app))
	for _, c := range []struct{ resolution, module string }{{"bundler", "ESNext"}, {"NodeNext", "NodeNext"}} {
		write("tsconfig.json", fmt.Sprintf(`{"compilerOptions": {"strict": true, "exactOptionalPropertyTypes": true, "skipLibCheck": false,
			"target": "ES2022", "lib": ["ES2023", "DOM", "DOM.Iterable"], "types": [], "moduleResolution": %q, "module": %q},
			"files": ["app.ts"]}`, c.resolution, c.module))
		do("node", filepath.Join(web, "node_modules/typescript/bin/tsc"), "-p", dir)
	}
	do("node", "app.js")
}
