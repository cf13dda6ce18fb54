package apitest

import (
	"fmt"
	"maps"
	"path/filepath"
	"testing"

	"cutroom/internal/sandbox"
	"cutroom/internal/sandbox/fake"
	"cutroom/internal/sandbox/identity"
	"cutroom/internal/sandbox/separator"
	"cutroom/internal/sandbox/store"
)

// leakMarker is part of every error that a stand-in injects. No client may see it.
const leakMarker = fake.LeakMarker

// World is the stand-ins for one service's vendors.
type World struct {
	*sandbox.World
}

// startWorld starts the stand-ins until the test ends. The separation provider is fast and treats
// sound above 600 Hz as voice. It returns no speakers unless a test asks for them, because each
// costs the service four more ffmpeg passes.
func startWorld(t testing.TB, bucket bool) (*World, error) {
	w, err := sandbox.Start(sandbox.Options{DataDir: filepath.Join(t.TempDir(), "world"), Fast: true, Bucket: bucket})
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Errorf("close the stand-ins: %v", err)
		}
	})
	w.Separator.Configure(func(b *separator.Behaviour) { b.NoSpeakers = true })
	return &World{World: w}, nil
}

// env returns the part of the service's environment that names the vendors. realBucket asks for a bucket on the
// S3 server that CUTROOM_TEST_S3 names, if it names one.
func (w *World) env(t testing.TB, realBucket bool) (map[string]string, error) {
	env := w.Env()
	// The tests use the production defaults, not the sandbox's.
	for _, key := range []string{"ADMIN_SLUG", "ENABLE_API_DOCS", "ENABLE_TESTDATA_MOCK"} {
		env[key] = ""
	}
	if realBucket {
		real, err := RealBucket(t)
		if err != nil {
			return nil, err
		}
		maps.Copy(env, real)
	}
	return env, nil
}

// MintA returns an identity token of provider_a.
func (w *World) MintA(t testing.TB, c identity.Claims) string {
	t.Helper()
	return must(w.ProviderA.Mint(c))(t)
}

// MintB returns an identity token of provider_b.
func (w *World) MintB(t testing.TB, c identity.Claims) string {
	t.Helper()
	return must(w.ProviderB.Mint(c))(t)
}

// PurchaseA registers a purchase at platform_a. Blank ids become unique ones.
func (w *World) PurchaseA(p store.PurchaseA) store.PurchaseA { return w.PlatformA.Register(p) }

// TransactionB registers a transaction at platform_b and returns it with the client's receipt,
// which is its signed form.
func (w *World) TransactionB(tr store.TransactionB) (store.TransactionB, string) {
	tr = w.PlatformB.Register(tr)
	return tr, w.PlatformB.Sign(tr)
}

// FailIdentity adds a fault to every call of both identity providers.
func (w *World) FailIdentity(t testing.TB, rule fake.Rule) {
	t.Helper()
	fail(t, rule, w.ProviderA.Faults, w.ProviderB.Faults)
}

// FailStores adds a fault to every call of both stores.
func (w *World) FailStores(t testing.TB, rule fake.Rule) {
	t.Helper()
	fail(t, rule, w.PlatformA.Faults, w.PlatformB.Faults)
}

// FailSeparator adds faults to the separation provider.
func (w *World) FailSeparator(t testing.TB, rules ...fake.Rule) {
	t.Helper()
	if err := w.Separator.Faults.Add(rules...); err != nil {
		t.Fatal(err)
	}
}

// FailBucket adds faults to the object store. The service must use the stand-in: see StandInBucket.
func (w *World) FailBucket(t testing.TB, rules ...fake.Rule) {
	t.Helper()
	if err := w.Bucket.Faults.Add(rules...); err != nil {
		t.Fatal(err)
	}
}

// Heal removes all faults.
func (w *World) Heal() {
	for _, f := range []*fake.Faults{w.ProviderA.Faults, w.ProviderB.Faults, w.PlatformA.Faults, w.PlatformB.Faults, w.Separator.Faults} {
		f.Clear()
	}
	if w.Bucket != nil {
		w.Bucket.Faults.Clear()
	}
}

func fail(t testing.TB, rule fake.Rule, all ...*fake.Faults) {
	t.Helper()
	rule.Step = fake.AnyStep
	for _, f := range all {
		if err := f.Add(rule); err != nil {
			t.Fatal(err)
		}
	}
}

// must ends the test if there was an error: must(f())(t).
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(fmt.Errorf("stand-in: %w", err))
		}
		return v
	}
}
