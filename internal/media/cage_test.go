package media_test

import "testing"

const parentEnv = "CUTROOM_MEDIA_TEST_PARENT"

func parentMain() {}

func TestCheckFindsEverything(t *testing.T) {
	rep, err := newRunner(t).Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(rep.Missing) > 0 {
		t.Errorf("missing: %v", rep.Missing)
	}
	t.Logf("%+v", rep)
}

func BenchmarkVersion(b *testing.B) {}
