package apitest

import (
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

// startWorld starts the stand-ins until the test ends. The separation provider is fast and treats sound above 600 Hz as
// voice. It returns no speakers unless a test asks for them, because each costs the service four more ffmpeg passes.
func startWorld(t testing.TB, bucket bool) *World {
	w := must(sandbox.Start(sandbox.Options{DataDir: filepath.Join(t.TempDir(), "world"), Fast: true, Bucket: bucket}))(t)
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Errorf("close the stand-ins: %v", err)
		}
	})
	w.Separator.Configure(func(b *separator.Behaviour) { b.NoSpeakers = true })
	return &World{World: w}
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

// TransactionB registers a transaction at platform_b and returns it with the client's receipt, which is its signed
// form.
func (w *World) TransactionB(tr store.TransactionB) (store.TransactionB, string) {
	tr = w.PlatformB.Register(tr)
	return tr, w.PlatformB.Sign(tr)
}

// FailIdentity adds a fault to every call of both identity providers.
func (w *World) FailIdentity(t testing.TB, rule fake.Rule) {
	t.Helper()
	rule.Step = fake.AnyStep
	fail(t, w.ProviderA.Faults, rule)
	fail(t, w.ProviderB.Faults, rule)
}

// FailStores adds a fault to every call of both stores.
func (w *World) FailStores(t testing.TB, rule fake.Rule) {
	t.Helper()
	rule.Step = fake.AnyStep
	fail(t, w.PlatformA.Faults, rule)
	fail(t, w.PlatformB.Faults, rule)
}

// FailSeparator adds faults to the separation provider.
func (w *World) FailSeparator(t testing.TB, rules ...fake.Rule) {
	t.Helper()
	fail(t, w.Separator.Faults, rules...)
}

// FailBucket adds faults to the object store. The service must use the stand-in: see StandInBucket.
func (w *World) FailBucket(t testing.TB, rules ...fake.Rule) {
	t.Helper()
	fail(t, w.Bucket.Faults, rules...)
}

func fail(t testing.TB, faults *fake.Faults, rules ...fake.Rule) {
	t.Helper()
	if err := faults.Add(rules...); err != nil {
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

// must ends the test if there was an error: must(f())(t).
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
