// Package test contains the black-box tests of the service, one file for each area of the API. They follow the
// specification, send HTTP requests to the real binary, and run on either database, with or without an object store
// (see package apitest).
package test

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"cutroom/internal/testkit/apitest"
	"cutroom/internal/testkit/mediatest"
)

func TestMain(m *testing.M) {
	flag.Parse()
	chosen := false
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "test.parallel" })
	if !chosen {
		// Tests mostly wait for the service, so run more of them than there are cores.
		_ = flag.Set("test.parallel", "8") // cannot fail: the flag exists
	}
	os.Exit(apitest.Main(m))
}

// sameInEveryShape marks a test whose result does not depend on the database, the file storage or the number of
// replicas. scripts/test.sh runs it once, on SQLite with a folder and one process. Do not mark a test of credits, jobs,
// erasure or crashes unless a package's own tests cover it on both databases.
func sameInEveryShape(t *testing.T) {
	t.Helper()
	if os.Getenv("CUTROOM_TEST_SHAPE_ONLY") != "" {
		t.Skip("runs in another shape of the service")
	}
}

// M is a JSON object.
type M = apitest.M

// maxWait is the time-out for what a healthy service does within seconds, generous enough for a slow and busy machine.
// A test of a promised time has its own limit.
const maxWait = 4 * time.Minute

// fixtures are the clips that tests share. A process makes each at most once.
var fixtures sync.Map // name -> func() string

// fixture returns the path of a shared clip. The first test that needs it makes it. Tests must not write to it.
func fixture(t testing.TB, name string, make func(t testing.TB) string) string {
	t.Helper()
	f, _ := fixtures.LoadOrStore(name, sync.OnceValue(func() string { return make(apitest.Forever(t)) }))
	return f.(func() string)()
}

// The shared clips. Each has its own colour and tone, so a test can recognise it in a film.
const clipLength = 2 * time.Second

func redClip(t testing.TB) string {
	return fixture(t, "red", func(t testing.TB) string {
		return mediatest.Clip(t, mediatest.Spec{Width: 320, Height: 180, FPS: "25", Duration: clipLength, Color: "red", Tone: 440})
	})
}

func blueClip(t testing.TB) string {
	return fixture(t, "blue", func(t testing.TB) string {
		return mediatest.Clip(t, mediatest.Spec{Width: 240, Height: 240, FPS: "30", Duration: clipLength, Color: "blue", Tone: 880})
	})
}

func silentClip(t testing.TB) string {
	return fixture(t, "silent", func(t testing.TB) string {
		return mediatest.Clip(t, mediatest.Spec{Width: 320, Height: 180, FPS: "25", Duration: clipLength, Color: "green"})
	})
}

// music is a tone of 1500 Hz for three seconds.
func music(t testing.TB) string {
	return fixture(t, "music", func(t testing.TB) string { return mediatest.Tone(t, 1500, 3*time.Second) })
}

// mixture is three seconds of 300 Hz and 1200 Hz at once. The separation stand-in treats sound above 600 Hz as voice
// and the rest as background.
func mixture(t testing.TB) string {
	return fixture(t, "mixture", func(t testing.TB) string { return mediatest.Tones(t, 300, 1200) })
}

// mixtureLength is the length of mixture.
const mixtureLength = 3 * time.Second

// sha256Of returns a file's SHA-256 in hex.
func sha256Of(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", sha256.Sum256(b))
}
