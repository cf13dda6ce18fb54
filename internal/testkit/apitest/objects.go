package apitest

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/middleware"
	"golang.org/x/sync/errgroup"
)

// s3Client returns a client of the object store that the service's environment names.
func s3Client(env map[string]string) *s3.Client {
	return s3.New(s3.Options{
		BaseEndpoint: aws.String(env["OBJECT_STORE_ENDPOINT"]), Region: cmp.Or(env["OBJECT_STORE_REGION"], "auto"), UsePathStyle: true,
		// The proxy in front of a real bucket changes the header, which the SDK signs.
		APIOptions: []func(*middleware.Stack) error{func(stack *middleware.Stack) error {
			_, err := stack.Finalize.Remove("DisableAcceptEncodingGzip")
			return err
		}},
		Credentials: credentials.NewStaticCredentialsProvider(
			env["OBJECT_STORE_ACCESS_KEY_ID"], env["OBJECT_STORE_SECRET_ACCESS_KEY"], ""),
	})
}

// RealBucket creates a bucket on the S3 server that CUTROOM_TEST_S3 names, and returns the settings for it, whose
// address is that of a [ChangingProxy]. Without that variable it returns nil. Each test needs its own bucket: two
// services with different databases would sweep each other's objects.
func RealBucket(t testing.TB) (map[string]string, error) {
	value := os.Getenv("CUTROOM_TEST_S3")
	if value == "" {
		return nil, nil
	}
	u, err := url.Parse(value)
	if err != nil || u.Host == "" || u.User == nil || strings.Trim(u.Path, "/") == "" {
		return nil, errors.New("CUTROOM_TEST_S3 is not http://ACCESS:SECRET@HOST:PORT/BUCKET?region=REGION")
	}
	var suffix [6]byte
	_, _ = rand.Read(suffix[:]) // never fails
	secret, _ := u.User.Password()
	bucketProxy.once.Do(func() {
		bucketProxy.address = httptest.NewServer(ChangingProxy(&url.URL{Scheme: u.Scheme, Host: u.Host})).URL
	})
	env := map[string]string{"OBJECT_STORE_ENDPOINT": bucketProxy.address, "OBJECT_STORE_ACCESS_KEY_ID": u.User.Username(),
		"OBJECT_STORE_REGION":            u.Query().Get("region"),
		"OBJECT_STORE_BUCKET":            strings.Trim(u.Path, "/") + "-" + hex.EncodeToString(suffix[:]),
		"OBJECT_STORE_SECRET_ACCESS_KEY": secret, "OBJECT_STORE_ACCOUNT_ID": strings.Repeat("0", 32)}
	if _, err := s3Client(env).CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: aws.String(env["OBJECT_STORE_BUCKET"])}); err != nil {
		return nil, fmt.Errorf("make a bucket for the test: %w", err)
	}
	return env, nil
}

// bucketProxy stands in front of the server of CUTROOM_TEST_S3 as long as the test program runs.
var bucketProxy struct {
	once    sync.Once
	address string
}

// ChangingProxy passes requests on as the proxies of a content delivery network do: it changes Accept-Encoding and
// keeps Host.
func ChangingProxy(target *url.URL) http.Handler {
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Host = r.In.Host
			r.Out.Header.Set("Accept-Encoding", "gzip, br")
		},
		Transport:    &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true},
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
}

// ObjectKeys lists the service's bucket. It returns nil if the service has none.
func (s *Server) ObjectKeys(t testing.TB) []string {
	t.Helper()
	if !s.HasBucket() {
		return nil
	}
	client := s3Client(s.env)
	var keys []string
	pages := s3.NewListObjectsV2Paginator(client, &s3.ListObjectsV2Input{Bucket: aws.String(s.Config("OBJECT_STORE_BUCKET"))})
	for pages.HasMorePages() {
		page, err := pages.NextPage(t.Context())
		if err != nil {
			t.Fatalf("list the bucket: %v", err)
		}
		for _, o := range page.Contents {
			keys = append(keys, aws.ToString(o.Key))
		}
	}
	return keys
}

// PendingUploads lists the keys of multipart uploads in the service's bucket that are neither completed nor aborted.
func (s *Server) PendingUploads(t testing.TB) []string {
	t.Helper()
	out, err := s3Client(s.env).ListMultipartUploads(t.Context(),
		&s3.ListMultipartUploadsInput{Bucket: aws.String(s.Config("OBJECT_STORE_BUCKET"))})
	if err != nil {
		t.Fatalf("list uploads: %v", err)
	}
	var keys []string
	for _, u := range out.Uploads {
		keys = append(keys, aws.ToString(u.Key))
	}
	return keys
}

// PutObjects stores small objects in the service's bucket, bypassing the service.
func (s *Server) PutObjects(t testing.TB, keys ...string) {
	t.Helper()
	client := s3Client(s.env)
	var all errgroup.Group
	all.SetLimit(8)
	for _, key := range keys {
		all.Go(func() error {
			_, err := client.PutObject(t.Context(), &s3.PutObjectInput{Bucket: aws.String(s.Config("OBJECT_STORE_BUCKET")),
				Key: aws.String(key), Body: strings.NewReader(key)})
			return err
		})
	}
	if err := all.Wait(); err != nil {
		t.Fatalf("fill the bucket: %v", err)
	}
}
