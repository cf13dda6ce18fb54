// Package clients makes films on the real service with clients generated from the API description.
package clients

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"cutroom/internal/apitest"
	"cutroom/internal/mediatest"
	"cutroom/internal/sandbox/identity"
	"cutroom/internal/sandbox/store"
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
func run(t *testing.T, s *apitest.Server, env []string, command ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
	cmd.Env = append(os.Environ(), append(env, "BASE="+s.URL, "ID_TOKEN="+s.World.MintA(t, identity.Claims{Email: "u@client.example", Name: "U"}))...)
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
			run(t, s, nil, append(command, clip, film)...)
			mediatest.DurationWithin(t, film, 1500*time.Millisecond, 100*time.Millisecond)
		})
	}
}

// The package of web/client makes a film over a connection that fails, and buys credits.
func TestClientPackage(t *testing.T) {
	s, clip := start(t)
	bought := s.World.PurchaseA(store.PurchaseA{ProductID: "credits.10"})
	run(t, s, []string{"CLIP=" + clip, "ORDER=" + bought.OrderID, "RECEIPT=" + bought.Token},
		"node", "--test", "../../web/client/test/client.test.mjs")
}
