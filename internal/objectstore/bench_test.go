package objectstore_test

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cutroom/internal/objectstore"
)

const benchBytes = 500 << 20

// benchBucket is the real server without the proxy of the tests, and a file
// to move.
func benchBucket(b *testing.B) (bucket *objectstore.Bucket, src string) {
	b.Helper()
	u, err := url.Parse(os.Getenv("CUTROOM_TEST_S3"))
	if err != nil || u.Host == "" {
		b.Skip("CUTROOM_TEST_S3 is not set; scripts/s3.sh run sets it")
	}
	secret, _ := u.User.Password()
	bucket, err = objectstore.NewBucket(objectstore.BucketConfig{
		Endpoint: u.Scheme + "://" + u.Host, Region: u.Query().Get("region"), Bucket: strings.Trim(u.Path, "/"), AccessKeyID: u.User.Username(), SecretAccessKey: secret,
	})
	if err != nil {
		b.Fatal(err)
	}
	src = filepath.Join(b.TempDir(), "src")
	f, err := os.Create(src)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	block := content(1<<20, 1)
	for range benchBytes >> 20 {
		if _, err := f.Write(block); err != nil {
			b.Fatal(err)
		}
	}
	return bucket, src
}

func BenchmarkBucketPut500MB(b *testing.B) {
	bucket, src := benchBucket(b)
	b.SetBytes(benchBytes)
	b.ReportAllocs()
	for b.Loop() {
		if err := bucket.Put(b.Context(), "bench.bin", src, ""); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkBucketFetch500MB(b *testing.B) {
	bucket, src := benchBucket(b)
	if err := bucket.Put(b.Context(), "bench.bin", src, ""); err != nil {
		b.Fatal(err)
	}
	dst := filepath.Join(b.TempDir(), "dst")
	b.SetBytes(benchBytes)
	b.ReportAllocs()
	for b.Loop() {
		if err := bucket.Fetch(b.Context(), "bench.bin", dst); err != nil {
			b.Fatal(err)
		}
	}
}
