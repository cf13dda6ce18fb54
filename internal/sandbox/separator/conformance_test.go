package separator_test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"cutroom/internal/sandbox/process"
	fake "cutroom/internal/sandbox/separator"
	"cutroom/internal/testkit/mediatest"
	"cutroom/internal/upstream/separator"
)

// maxProcessing is how long a provider may take for the recording of the test.
const maxProcessing = 15 * time.Minute

// TestProviderConforms checks that a server speaks the protocol of docs/separation-provider.md, with the service's own
// client. It runs against the stand-in, or against the server that CUTROOM_TEST_PROVIDER_URL names.
func TestProviderConforms(t *testing.T) {
	cfg, interval := providerUnderTest(t)
	newClient := func(change func(*separator.Config)) *separator.Client {
		c := cfg
		change(&c)
		client, err := separator.New(c)
		if err != nil {
			t.Fatal(err)
		}
		return client
	}
	client := newClient(func(*separator.Config) {})
	if err := client.Check(t.Context()); err != nil {
		t.Fatalf("key and space: %v", err)
	}
	if err := newClient(func(c *separator.Config) { c.APIKey += "x" }).Check(t.Context()); err == nil {
		t.Error("another key is accepted")
	}
	if _, err := client.Progress(t.Context(), 1<<40); err == nil {
		t.Error("a project that does not exist has a progress")
	}

	recording := os.Getenv("CUTROOM_TEST_PROVIDER_FILE")
	if recording == "" {
		recording = mediatest.Tones(t, 300, 1200)
	}
	length := lengthOf(t, recording)
	upload := func() separator.Medium {
		t.Helper()
		m, err := client.Upload(t.Context(), recording, filepath.Base(recording), func(context.Context) error { return nil })
		if err != nil {
			t.Fatalf("upload: %v", err)
		}
		measured := time.Duration(m.DurationMs) * time.Millisecond
		if measured != 0 && (measured-length).Abs() > 500*time.Millisecond {
			t.Errorf("registered as %v, want %v or no length", measured, length)
		}
		return m
	}
	first, second := upload(), upload()
	if first.Seq == second.Seq {
		t.Errorf("two uploads have the same seq %d", first.Seq)
	}
	project, err := client.Submit(t.Context(), second.Seq, "sep-conformance-"+strconv.FormatInt(time.Now().UnixNano(), 36))
	if err != nil {
		t.Fatalf("submit: %v", err)
	}
	waitForProject(t, client, project, interval)
	for _, what := range []string{"download", "second download"} {
		stems, err := client.Download(t.Context(), project, t.TempDir())
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		files := append([]separator.Stem{stems.Voice, stems.Background}, stems.Speakers...)
		for i, f := range files {
			if f.Path == "" {
				if i == 0 && len(stems.Speakers) == 0 {
					t.Errorf("%s: neither a voice nor speakers", what)
				}
				continue
			}
			if got := lengthOf(t, f.Path); (got - length).Abs() > time.Second {
				t.Errorf("%s: %s lasts %v, the recording %v", what, filepath.Base(f.Path), got, length)
			}
		}
		t.Logf("%s: voice %t, background %t, %d speakers", what, stems.Voice.Path != "", stems.Background.Path != "", len(stems.Speakers))
	}
}

// waitForProject polls a project until it is done.
func waitForProject(t *testing.T, client *separator.Client, project int64, interval time.Duration) {
	t.Helper()
	for began := time.Now(); ; time.Sleep(interval) {
		p, err := client.Progress(t.Context(), project)
		switch {
		case err != nil:
			t.Fatalf("progress: %v", err)
		case p.Failed:
			t.Fatal("the project failed")
		case p.Percent < 0 || p.Percent > 100:
			t.Fatalf("progress of %d percent", p.Percent)
		case p.Done:
			return
		case time.Since(began) > maxProcessing:
			t.Fatalf("not done after %v", maxProcessing)
		}
	}
}

func lengthOf(t *testing.T, path string) time.Duration {
	t.Helper()
	m, err := process.Probe(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	return m.Duration
}

// providerUnderTest returns the configuration of the client, and the time between two polls.
func providerUnderTest(t *testing.T) (separator.Config, time.Duration) {
	t.Helper()
	if base := os.Getenv("CUTROOM_TEST_PROVIDER_URL"); base != "" {
		space, err := strconv.ParseInt(os.Getenv("CUTROOM_TEST_PROVIDER_SPACE"), 10, 64)
		if err != nil {
			t.Fatalf("CUTROOM_TEST_PROVIDER_SPACE: %v", err)
		}
		storage := os.Getenv("CUTROOM_TEST_PROVIDER_STORAGE_URL")
		if storage == "" {
			storage = base
		}
		return separator.Config{BaseURL: base, StorageBaseURL: storage, SpaceID: space, APIKey: os.Getenv("CUTROOM_TEST_PROVIDER_KEY"),
			AllowedHosts: strings.FieldsFunc(os.Getenv("CUTROOM_TEST_PROVIDER_HOSTS"), func(r rune) bool { return r == ',' })}, 2 * time.Second
	}
	p, err := fake.New(fake.Options{APIKey: "key-of-the-conformance-test", Space: 12, Dir: t.TempDir(), Fast: true, Processing: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Listen(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return separator.Config{BaseURL: p.API.URL(), StorageBaseURL: p.Storage.URL(), SpaceID: 12, APIKey: "key-of-the-conformance-test",
		AllowedHosts: []string{strings.TrimPrefix(p.Upload.URL(), "http://")}}, 20 * time.Millisecond
}
