// The stand-in bucket as the AWS SDK sees it: wrong signatures, presigned and multipart uploads, restarts.

package bucket_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"

	"cutroom/internal/sandbox/bucket"
)

var opts = bucket.Options{Name: "films", AccessKeyID: "AKIDSANDBOX", SecretAccessKey: "secret/with+signs"}

func start(t *testing.T) *bucket.Bucket {
	t.Helper()
	o := opts
	o.Dir = t.TempDir()
	b, err := bucket.New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Listen(""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func sdk(b *bucket.Bucket, change ...func(*s3.Options)) *s3.Client {
	return s3.New(s3.Options{BaseEndpoint: aws.String(b.URL()), Region: "auto", UsePathStyle: true, RetryMaxAttempts: 1,
		Credentials: credentials.NewStaticCredentialsProvider(opts.AccessKeyID, opts.SecretAccessKey, "")}, change...)
}

func put(t *testing.T, c *s3.Client, key string, body []byte) {
	t.Helper()
	_, err := c.PutObject(t.Context(), &s3.PutObjectInput{Bucket: &opts.Name, Key: &key, Body: bytes.NewReader(body), ContentType: aws.String("video/mp4")})
	if err != nil {
		t.Fatal(err)
	}
}

// code is the protocol's code of an SDK error.
func code(err error) string {
	var api smithy.APIError
	if errors.As(err, &api) {
		return api.ErrorCode()
	}
	return fmt.Sprint(err)
}

func TestWrongSignatures(t *testing.T) {
	b := start(t)
	key := "k"
	for name, tt := range map[string]struct {
		change func(*s3.Options)
		code   string
	}{
		"secret": {func(o *s3.Options) {
			o.Credentials = credentials.NewStaticCredentialsProvider(opts.AccessKeyID, "wrong", "")
		}, "SignatureDoesNotMatch"},
		"key id": {func(o *s3.Options) {
			o.Credentials = credentials.NewStaticCredentialsProvider("AKIDOTHER", opts.SecretAccessKey, "")
		}, "InvalidAccessKeyId"},
		"region":    {func(o *s3.Options) { o.Region = "us-west-9" }, "AuthorizationHeaderMalformed"},
		"anonymous": {func(o *s3.Options) { o.Credentials = aws.AnonymousCredentials{} }, "AccessDenied"},
	} {
		_, err := sdk(b, tt.change).PutObject(t.Context(), &s3.PutObjectInput{Bucket: &opts.Name, Key: &key, Body: strings.NewReader("x")})
		if code(err) != tt.code {
			t.Errorf("wrong %s: %v, want %s", name, err, tt.code)
		}
	}
	if left := b.Objects(); len(left) != 0 {
		t.Errorf("stored %v", left)
	}
}

// The tests of package objectstore check what a presigned address binds, against this bucket and a real one.
func TestPresignedPut(t *testing.T) {
	b := start(t)
	body := []byte("0123456789")
	for name, tt := range map[string]struct {
		change func(*http.Request)
		clock  time.Duration
		code   string
	}{
		"length not told":    {func(r *http.Request) { r.ContentLength = -1 }, 0, "SignatureDoesNotMatch"},
		"almost expired":     {nil, 270 * time.Second, ""},
		"expired":            {nil, 301 * time.Second, "AccessDenied"},
		"other method":       {func(r *http.Request) { r.Method = "POST" }, 0, "SignatureDoesNotMatch"},
		"header smuggled in": {func(r *http.Request) { r.Header.Set("X-Amz-Acl", "public-read") }, 0, "AccessDenied"},
		"query smuggled in":  {func(r *http.Request) { r.URL.RawQuery += "&uploadId=1" }, 0, "SignatureDoesNotMatch"},
		"a bearer beside it": {func(r *http.Request) { r.Header.Set("Authorization", "Bearer x") }, 0, "InvalidArgument"},
	} {
		key := "assets/" + strings.ReplaceAll(name, " ", "-")
		signed, err := s3.NewPresignClient(sdk(b)).PresignPutObject(t.Context(), &s3.PutObjectInput{Bucket: &opts.Name, Key: &key,
			ContentType: aws.String("video/mp4"), ContentLength: aws.Int64(int64(len(body)))}, s3.WithPresignExpires(300*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		req, _ := http.NewRequestWithContext(t.Context(), "PUT", signed.URL, bytes.NewReader(body))
		req.Header.Set("Content-Type", "video/mp4")
		if tt.change != nil {
			tt.change(req)
		}
		b.SetClock(tt.clock)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		said, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if _, missing := b.ReadObject(key); (missing == nil) != (tt.code == "") {
			t.Errorf("%s: read: %v", name, missing)
		}
		if (res.StatusCode == 200) != (tt.code == "") || !strings.Contains(string(said), tt.code) {
			t.Errorf("%s: %d, %s, want %s", name, res.StatusCode, said, tt.code)
		}
	}
}

func TestMultipartUpload(t *testing.T) {
	b := start(t)
	c := sdk(b)
	key := "big.mp4"
	data := make([]byte, 5<<20+1234)
	_, _ = rand.Read(data)
	begin := func() *string {
		t.Helper()
		u, err := c.CreateMultipartUpload(t.Context(), &s3.CreateMultipartUploadInput{Bucket: &opts.Name, Key: &key, ContentType: aws.String("video/mp4")})
		if err != nil {
			t.Fatal(err)
		}
		return u.UploadId
	}
	part := func(id *string, number int32, body []byte) types.CompletedPart {
		t.Helper()
		p, err := c.UploadPart(t.Context(), &s3.UploadPartInput{Bucket: &opts.Name, Key: &key, UploadId: id, PartNumber: &number, Body: bytes.NewReader(body)})
		if err != nil {
			t.Fatal(err)
		}
		return types.CompletedPart{ETag: p.ETag, PartNumber: &number, ChecksumCRC32: p.ChecksumCRC32}
	}
	complete := func(id *string, parts ...types.CompletedPart) error {
		_, err := c.CompleteMultipartUpload(t.Context(), &s3.CompleteMultipartUploadInput{Bucket: &opts.Name, Key: &key, UploadId: id,
			MultipartUpload: &types.CompletedMultipartUpload{Parts: parts}})
		return err
	}
	id := begin()
	two, one := part(id, 2, data[5<<20:]), part(id, 1, data[:5<<20])
	if err := complete(id, two, one); code(err) != "InvalidPartOrder" {
		t.Errorf("parts out of order: %v", err)
	}
	if err := complete(id, types.CompletedPart{ETag: aws.String(`"0"`), PartNumber: aws.Int32(1)}); code(err) != "InvalidPart" {
		t.Errorf("wrong ETag: %v", err)
	}
	if err := complete(id, one, two); err != nil {
		t.Fatal(err)
	}
	if got, err := b.ReadObject(key); err != nil || !bytes.Equal(got, data) {
		t.Errorf("assembled %d bytes, %v", len(got), err)
	}
	head, err := c.HeadObject(t.Context(), &s3.HeadObjectInput{Bucket: &opts.Name, Key: &key})
	if err != nil || *head.ContentType != "video/mp4" || !strings.HasSuffix(*head.ETag, `-2"`) {
		t.Errorf("head %+v, %v", head, err)
	}
	small := begin()
	if err := complete(small, part(small, 1, data[:10]), part(small, 2, data[:10])); code(err) != "EntityTooSmall" {
		t.Errorf("small parts: %v", err)
	}
	list, err := c.ListMultipartUploads(t.Context(), &s3.ListMultipartUploadsInput{Bucket: &opts.Name})
	if err != nil || len(list.Uploads) != 1 || *list.Uploads[0].UploadId != *small {
		t.Errorf("uploads %+v, %v", list, err)
	}
	if _, err := c.AbortMultipartUpload(t.Context(), &s3.AbortMultipartUploadInput{Bucket: &opts.Name, Key: &key, UploadId: small}); err != nil {
		t.Fatal(err)
	}
	if err := complete(small); err == nil {
		t.Error("an aborted upload was completed")
	}
}

func TestObjectsSurviveARestart(t *testing.T) {
	o := opts
	o.Dir = t.TempDir()
	first, err := bucket.New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Listen(""); err != nil {
		t.Fatal(err)
	}
	put(t, sdk(first), "kept", []byte("bytes"))
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second, err := bucket.New(o)
	if err != nil {
		t.Fatal(err)
	}
	if data, err := second.ReadObject("kept"); err != nil || string(data) != "bytes" {
		t.Errorf("after restart: %q, %v", data, err)
	}
}
