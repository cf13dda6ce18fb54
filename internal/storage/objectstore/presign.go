package objectstore

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// PresignPut returns a URL that allows anyone to PUT exactly sizeBytes of exactly contentType under key until ttl has
// passed, at most 7 days. The store refuses any other type or length.
//
// The SHA-256 of the bytes is part of the signed URL, not of the headers that the client must send. Only some stores
// enforce it there, so a reader of the object must verify the hash itself. With onlyNew the client must also send
// If-None-Match: *, and cannot replace an object.
func (b *Bucket) PresignPut(ctx context.Context, key, contentType string, sizeBytes int64,
	sum [sha256.Size]byte, ttl time.Duration, onlyNew bool) (string, error) {
	if err := CheckKey(key); err != nil {
		return "", err
	}
	switch {
	case sizeBytes <= 0:
		// For length zero the SDK signs neither type nor length: such a URL would accept anything.
		return "", fmt.Errorf("presign put %s: size must be positive", key)
	case contentType == "" || strings.TrimSpace(contentType) != contentType || strings.ContainsFunc(contentType, unprintable):
		return "", fmt.Errorf("presign put %s: malformed content type", key)
	}
	in := &s3.PutObjectInput{Bucket: &b.bucket, Key: &key, ContentType: &contentType, ContentLength: &sizeBytes}
	if onlyNew {
		in.IfNoneMatch = aws.String("*")
	}
	checksum := withQuery("X-Amz-Checksum-Sha256", base64.StdEncoding.EncodeToString(sum[:]))
	signed, err := b.presign.PresignPutObject(ctx, in, s3.WithPresignExpires(ttl), checksum)
	if err != nil {
		return "", b.fail(ctx, "presign put", key, err)
	}
	return signed.URL, nil
}

// withQuery adds a parameter to a URL before it is signed. The SDK would turn the checksum into a header that the
// client has to send.
func withQuery(name, value string) func(*s3.PresignOptions) {
	add := middleware.BuildMiddlewareFunc("AddQuery", func(ctx context.Context, in middleware.BuildInput, next middleware.BuildHandler) (
		middleware.BuildOutput, middleware.Metadata, error) {
		if req, ok := in.Request.(*smithyhttp.Request); ok {
			q := req.URL.Query()
			q.Set(name, value)
			req.URL.RawQuery = q.Encode()
		}
		return next.HandleBuild(ctx, in)
	})
	return s3.WithPresignClientFromClientOptions(s3.WithAPIOptions(func(stack *middleware.Stack) error {
		return stack.Build.Add(add, middleware.After)
	}))
}

// PresignGet returns a URL that allows anyone to download the object until ttl has passed, as an attachment called
// fileName and of contentType. fileName must be printable ASCII without quotes and backslashes. The URL works for GET,
// or with head for HEAD: a signature covers the method.
func (b *Bucket) PresignGet(ctx context.Context, key string, ttl time.Duration, fileName, contentType string, head bool) (string, error) {
	switch err := CheckKey(key); {
	case err != nil:
		return "", err
	case fileName == "" || strings.ContainsAny(fileName, `"\/`) || strings.ContainsFunc(fileName, unprintable):
		return "", fmt.Errorf("presign get %s: malformed file name", key)
	case strings.ContainsFunc(contentType, unprintable):
		return "", fmt.Errorf("presign get %s: malformed content type", key)
	}
	contentType, disposition := cmp.Or(contentType, ContentType(key)), `attachment; filename="`+fileName+`"`
	var signed *v4.PresignedHTTPRequest
	var err error
	if life := s3.WithPresignExpires(ttl); head {
		signed, err = b.presign.PresignHeadObject(ctx, &s3.HeadObjectInput{Bucket: &b.bucket, Key: &key,
			ResponseContentType: &contentType, ResponseContentDisposition: &disposition}, life)
	} else {
		signed, err = b.presign.PresignGetObject(ctx, &s3.GetObjectInput{Bucket: &b.bucket, Key: &key,
			ResponseContentType: &contentType, ResponseContentDisposition: &disposition}, life)
	}
	if err != nil {
		return "", b.fail(ctx, "presign get", key, err)
	}
	return signed.URL, nil
}

func unprintable(r rune) bool { return r < 0x20 || r > 0x7e }
