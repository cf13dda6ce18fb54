// Which installation a bucket belongs to: claims, races for a new bucket, and stores without conditional writes.

package installation_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"

	"cutroom/internal/base/db"
	fakebucket "cutroom/internal/sandbox/bucket"
	"cutroom/internal/storage/objectstore"
	"cutroom/internal/testkit/apitest"
	"cutroom/internal/testkit/dbtest"
	"cutroom/internal/work/installation"
)

// eachStore runs a test on stores that honour a conditional write, refuse it or ignore it, and on the real server where
// there is one.
func eachStore(t *testing.T, test func(t *testing.T, b *objectstore.Bucket)) {
	bucketWhere := func(condition func(b *fakebucket.Bucket, w http.ResponseWriter, r *http.Request) (answered bool)) func(t *testing.T) {
		return func(t *testing.T) {
			t.Parallel()
			b, err := fakebucket.New(fakebucket.Options{Name: "bucket", AccessKeyID: "access", SecretAccessKey: "a secret of the stand-in", Dir: t.TempDir()})
			if err != nil {
				t.Fatal(err)
			}
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("If-None-Match") == "" || !condition(b, w, r) {
					b.ServeHTTP(w, r)
				}
			}))
			t.Cleanup(server.Close)
			test(t, objectstore.NewBucket(objectstore.BucketConfig{Endpoint: server.URL, Bucket: "bucket", AccessKeyID: "access", SecretAccessKey: "a secret of the stand-in"}))
		}
	}
	t.Run("honours", bucketWhere(func(*fakebucket.Bucket, http.ResponseWriter, *http.Request) bool { return false }))
	t.Run("refuses", bucketWhere(func(_ *fakebucket.Bucket, w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(http.StatusNotImplemented)
		return true
	}))
	var first sync.Mutex // of two at once, neither finds a condition honoured
	t.Run("ignores", bucketWhere(func(b *fakebucket.Bucket, w http.ResponseWriter, r *http.Request) bool {
		first.Lock()
		defer first.Unlock()
		_, key, _ := strings.Cut(r.URL.Path[1:], "/")
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		if b.CorruptObject(key, body) != nil { // there is none to replace
			b.ServeHTTP(w, r)
		}
		return true
	}))
	t.Run("real", func(t *testing.T) {
		t.Parallel()
		real, err := apitest.RealBucket(t)
		if err != nil {
			t.Fatal(err)
		}
		if real == nil {
			t.Skip("CUTROOM_TEST_S3 is not set; scripts/s3.sh run sets it")
		}
		test(t, objectstore.NewBucket(objectstore.BucketConfig{Endpoint: real["OBJECT_STORE_ENDPOINT"], Region: real["OBJECT_STORE_REGION"], Bucket: real["OBJECT_STORE_BUCKET"],
			AccessKeyID: real["OBJECT_STORE_ACCESS_KEY_ID"], SecretAccessKey: real["OBJECT_STORE_SECRET_ACCESS_KEY"]}))
	})
}

// database is a new one, migrated.
func database(t *testing.T) *db.DB {
	t.Helper()
	if os.Getenv("CUTROOM_TEST_DB") == "postgres" {
		return dbtest.Postgres(t)
	}
	return dbtest.SQLite(t)
}

// put stores an object as a service that knew nothing of ids would have.
func put(t *testing.T, b *objectstore.Bucket, key string) {
	t.Helper()
	if err := b.Save(t.Context(), key, []byte("x")); err != nil {
		t.Fatal(err)
	}
}

func foreign(t *testing.T, err error) *installation.ForeignError {
	t.Helper()
	var f *installation.ForeignError
	if !errors.As(err, &f) || !strings.Contains(err.Error(), "cutroom adopt-bucket") {
		t.Fatalf("%v, want a foreign bucket and what to do about it", err)
	}
	return f
}

func TestAnEmptyBucketIsClaimedAndKept(t *testing.T) {
	eachStore(t, func(t *testing.T, b *objectstore.Bucket) {
		d := database(t)
		if err := installation.Check(t.Context(), d, b); err == nil {
			t.Error("a bucket that nobody claimed passes")
		}
		put(t, b, "doctor/left-behind.txt")
		claim := func(wantLost bool) {
			t.Helper()
			if lost, err := installation.Claim(t.Context(), d, b); lost != wantLost || err != nil {
				t.Fatalf("the bucket is lost: %v, want %v (%v)", lost, wantLost, err)
			}
		}
		for range 2 { // a restart changes nothing
			claim(false)
			put(t, b, "assets/x.mp4")
		}
		if err := installation.Check(t.Context(), d, b); err != nil {
			t.Error(err)
		}
		if err := b.Delete(t.Context(), "assets/x.mp4", "cutroom-installation"); err != nil {
			t.Fatal(err)
		}
		claim(true) // like a different, unused bucket
		put(t, b, "uploads/sep-1/source.mp3")
		if err := b.Delete(t.Context(), "cutroom-installation"); err != nil {
			t.Fatal(err)
		}
		if _, err := installation.Claim(t.Context(), d, b); foreign(t, err).Theirs != "" {
			t.Errorf("a bucket with objects and no id: %v", err)
		}
	})
}

func TestOneOfTwoInstallationsWinsANewBucket(t *testing.T) {
	eachStore(t, func(t *testing.T, b *objectstore.Bucket) {
		dbs := []*db.DB{database(t), database(t)}
		var wg sync.WaitGroup
		errs := make([]error, 6)
		for i := range errs { // three replicas each
			wg.Go(func() { _, errs[i] = installation.Claim(t.Context(), dbs[i%2], b) })
		}
		wg.Wait()
		won := 0
		for i, err := range errs {
			if err == nil {
				won++
			} else {
				foreign(t, err)
			}
			if (err == nil) != (errs[i%2] == nil) {
				t.Errorf("replicas of one installation disagree: %v", errs)
			}
		}
		if won != 3 {
			t.Errorf("%d of 6 replicas won, want those of one installation: %v", won, errs)
		}
	})
}
