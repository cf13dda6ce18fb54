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

func TestGeneratedClientsMakeAFilm(t *testing.T) {
	if os.Getenv(builtEnv) == "" {
		t.Skip("runs in make clients")
	}
	s := apitest.Start(t, apitest.Bucket(true))
	clip := mediatest.Clip(t, mediatest.Spec{Width: 320, Height: 180, Tone: 440, Duration: 2 * time.Second})
	for name, command := range map[string][]string{
		"openapi-typescript": {"node", "../../web/clients/dist/film.js"},
		"hey-api":            {"node", "../../web/clients/dist/film-hey.js"},
		"oapi-codegen":       {"go/film"},
	} {
		t.Run(name, func(t *testing.T) {
			idToken, err := s.World.ProviderA.Mint(identity.Claims{Email: name + "@client.example", Name: name})
			if err != nil {
				t.Fatal(err)
			}
			film := filepath.Join(t.TempDir(), "film.mp4")
			cmd := exec.CommandContext(t.Context(), command[0], append(command[1:], clip, film)...)
			cmd.Env = append(os.Environ(), "BASE="+s.URL, "ID_TOKEN="+idToken)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			mediatest.DurationWithin(t, film, 1500*time.Millisecond, 100*time.Millisecond)
		})
	}
}

// The package of web/client makes a film over a connection that fails, and buys credits.
func TestClientPackage(t *testing.T) {
	if os.Getenv(builtEnv) == "" {
		t.Skip("runs in make clients")
	}
	s := apitest.Start(t, apitest.Bucket(true))
	clip := mediatest.Clip(t, mediatest.Spec{Width: 320, Height: 180, Tone: 440, Duration: 2 * time.Second})
	idToken, err := s.World.ProviderA.Mint(identity.Claims{Email: "package@client.example", Name: "Package"})
	if err != nil {
		t.Fatal(err)
	}
	bought := s.World.PurchaseA(store.PurchaseA{ProductID: "credits.10"})
	cmd := exec.CommandContext(t.Context(), "node", "--test", "../../web/client/test/client.test.mjs")
	cmd.Env = append(os.Environ(), "BASE="+s.URL, "ID_TOKEN="+idToken, "CLIP="+clip, "ORDER="+bought.OrderID, "RECEIPT="+bought.Token)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}
