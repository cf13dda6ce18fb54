package objectstore

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// maxPresign is the longest lifetime that signature version 4 allows.
const maxPresign = 7 * 24 * time.Hour

// PresignPut returns a URL that lets anybody who has it PUT exactly sizeBytes
// of exactly contentType under key until ttl has passed. The store refuses
// any other type or length.
func (b *Bucket) PresignPut(ctx context.Context, key, contentType string, sizeBytes int64, ttl time.Duration) (string, error) {
	if err := CheckKey(key); err != nil {
		return "", err
	}
	switch {
	case sizeBytes <= 0:
		// The SDK leaves type and length out of the signature when the length
		// is zero: such a URL would accept anything.
		return "", fmt.Errorf("presign put %s: size must be positive", key)
	case contentType == "" || strings.TrimSpace(contentType) != contentType || strings.ContainsFunc(contentType, unprintable):
		return "", fmt.Errorf("presign put %s: malformed content type", key)
	}
	if err := checkTTL(ttl); err != nil {
		return "", fmt.Errorf("presign put %s: %w", key, err)
	}
	signed, err := b.presign.PresignPutObject(ctx, &s3.PutObjectInput{
		Bucket: &b.bucket, Key: &key, ContentType: &contentType, ContentLength: &sizeBytes,
	}, s3.WithPresignExpires(ttl))
	if err != nil {
		return "", b.fail(ctx, "presign put", key, err)
	}
	if err := bindsTypeAndLength(signed.URL); err != nil {
		return "", fmt.Errorf("presign put %s: %w", key, err)
	}
	return signed.URL, nil
}

// bindsTypeAndLength guards the promise of PresignPut against a change in the
// SDK, which decides on its own what it signs.
func bindsTypeAndLength(signed string) error {
	u, err := url.Parse(signed)
	if err != nil {
		return errors.New("signed URL is malformed")
	}
	if got := u.Query().Get("X-Amz-SignedHeaders"); got != "content-length;content-type;host" {
		return fmt.Errorf("signature covers %q instead of length, type and host", got)
	}
	return nil
}

// PresignGet returns a URL that lets anybody who has it download the object
// until ttl has passed, as an attachment called fileName and of contentType.
// fileName is printable ASCII without quotes and backslashes.
func (b *Bucket) PresignGet(ctx context.Context, key string, ttl time.Duration, fileName, contentType string) (string, error) {
	disposition, err := attachment(key, ttl, fileName, &contentType)
	if err != nil {
		return "", fmt.Errorf("presign get %s: %w", key, err)
	}
	signed, err := b.presign.PresignGetObject(ctx, &s3.GetObjectInput{
		Bucket: &b.bucket, Key: &key,
		ResponseContentDisposition: &disposition, ResponseContentType: &contentType,
	}, s3.WithPresignExpires(ttl))
	if err != nil {
		return "", b.fail(ctx, "presign get", key, err)
	}
	return signed.URL, nil
}

// PresignHead is PresignGet for a HEAD request: a signature is good for one
// method only.
func (b *Bucket) PresignHead(ctx context.Context, key string, ttl time.Duration, fileName, contentType string) (string, error) {
	disposition, err := attachment(key, ttl, fileName, &contentType)
	if err != nil {
		return "", fmt.Errorf("presign head %s: %w", key, err)
	}
	signed, err := b.presign.PresignHeadObject(ctx, &s3.HeadObjectInput{
		Bucket: &b.bucket, Key: &key,
		ResponseContentDisposition: &disposition, ResponseContentType: &contentType,
	}, s3.WithPresignExpires(ttl))
	if err != nil {
		return "", b.fail(ctx, "presign head", key, err)
	}
	return signed.URL, nil
}

// attachment checks what a presigned download is made of, fills in the content
// type, and returns the disposition.
func attachment(key string, ttl time.Duration, fileName string, contentType *string) (string, error) {
	if err := CheckKey(key); err != nil {
		return "", err
	}
	if fileName == "" || strings.ContainsAny(fileName, `"\/`) || strings.ContainsFunc(fileName, unprintable) {
		return "", errors.New("malformed file name")
	}
	if strings.ContainsFunc(*contentType, unprintable) {
		return "", errors.New("malformed content type")
	}
	if *contentType == "" {
		*contentType = ContentType(key)
	}
	return `attachment; filename="` + fileName + `"`, checkTTL(ttl)
}

func checkTTL(ttl time.Duration) error {
	if ttl < time.Second || ttl > maxPresign {
		return fmt.Errorf("lifetime must be 1 s to %s", maxPresign)
	}
	return nil
}

func unprintable(r rune) bool { return r < 0x20 || r > 0x7e }

// send performs a presigned request and returns its status.
func (b *Bucket) send(req *http.Request) (int, error) {
	res, err := b.http.Do(req)
	if err != nil {
		if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) {
			err = wrapped.Err // without the signed URL
		}
		return 0, errors.New(b.scrub(err.Error()))
	}
	return res.StatusCode, res.Body.Close()
}
