// Multipart uploads that clients send in parts to presigned URLs: create, list, complete once, abort, and abort
// forgotten ones.

package objectstore

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

var (
	// ErrNoUpload is returned for an unknown multipart upload, or one that was completed, aborted or has expired.
	ErrNoUpload = errors.New("no such multipart upload")

	// ErrUnsupported is returned by a store without multipart uploads or conditional writes.
	ErrUnsupported = errors.New("not supported by the store")
)

// Part is an uploaded part of a multipart upload.
type Part struct {
	Number    int // 1 is the first
	SizeBytes int64
	ETag      string
}

// CreateUpload starts a multipart upload and returns its id. Clients send the parts to URLs from PresignPart.
func (b *Bucket) CreateUpload(ctx context.Context, key, contentType string) (id string, err error) {
	if err := CheckKey(key); err != nil {
		return "", err
	}
	call, cancel := b.call(ctx)
	defer cancel()
	out, err := b.client.CreateMultipartUpload(call, &s3.CreateMultipartUploadInput{Bucket: &b.bucket, Key: &key, ContentType: &contentType})
	if err != nil {
		return "", b.fail(ctx, "begin upload of", key, err)
	}
	return aws.ToString(out.UploadId), nil
}

// UploadParts lists the uploaded parts by number.
func (b *Bucket) UploadParts(ctx context.Context, key, id string) (map[int]Part, error) {
	parts := map[int]Part{}
	pages := s3.NewListPartsPaginator(b.client, &s3.ListPartsInput{Bucket: &b.bucket, Key: &key, UploadId: &id})
	for pages.HasMorePages() {
		call, cancel := b.call(ctx)
		page, err := pages.NextPage(call)
		cancel()
		if err != nil {
			return nil, b.fail(ctx, "list parts of", key, err)
		}
		for _, p := range page.Parts {
			n := int(aws.ToInt32(p.PartNumber))
			parts[n] = Part{Number: n, SizeBytes: aws.ToInt64(p.Size), ETag: aws.ToString(p.ETag)}
		}
	}
	return parts, nil
}

// CompleteUpload assembles the parts, in order, into the object. It returns ErrChanged if a part was replaced since it
// was listed, and ErrExists if the key is taken. Without conditional completion at the store, two completions at the
// same moment may both succeed.
func (b *Bucket) CompleteUpload(ctx context.Context, key, id string, parts []Part) error {
	err := b.complete(ctx, key, id, parts, aws.String("*"))
	e, _ := errors.AsType[*opError](err)
	// Some stores have no conditional completion, and some answer 412 to every condition that they do not know.
	if e == nil || !errors.Is(e, ErrUnsupported) && e.status != http.StatusPreconditionFailed {
		return err
	}
	switch _, err := b.Stat(ctx, key); {
	case err == nil:
		return fmt.Errorf("complete upload of %s: %w", key, ErrExists)
	case !errors.Is(err, ErrNotFound):
		return err
	}
	return b.complete(ctx, key, id, parts, nil)
}

func (b *Bucket) complete(ctx context.Context, key, id string, parts []Part, ifNoneMatch *string) error {
	in := &s3.CompleteMultipartUploadInput{Bucket: &b.bucket, Key: &key, UploadId: &id, IfNoneMatch: ifNoneMatch,
		MultipartUpload: &types.CompletedMultipartUpload{Parts: make([]types.CompletedPart, len(parts))}}
	for i, p := range parts {
		in.MultipartUpload.Parts[i] = types.CompletedPart{PartNumber: aws.Int32(int32(p.Number)), ETag: aws.String(p.ETag)}
	}
	_, err := b.client.CompleteMultipartUpload(ctx, in)
	switch {
	case err == nil:
		return nil
	case ifNoneMatch != nil:
		return b.failConditional(ctx, "complete upload of", key, err)
	}
	return b.fail(ctx, "complete upload of", key, err)
}

// AbortUpload discards a multipart upload and its parts. An unknown upload is not an error.
func (b *Bucket) AbortUpload(ctx context.Context, key, id string) error {
	if err := b.abortOnce(ctx, key, id); !errors.Is(err, ErrNoUpload) {
		return err
	}
	return nil
}

func (b *Bucket) abortOnce(ctx context.Context, key, id string) error {
	call, cancel := b.call(ctx)
	defer cancel()
	_, err := b.client.AbortMultipartUpload(call, &s3.AbortMultipartUploadInput{Bucket: &b.bucket, Key: &key, UploadId: &id})
	if err != nil {
		return b.fail(ctx, "abort upload of", key, err)
	}
	return nil
}

// PresignPart returns a URL that allows anyone to PUT one part of exactly sizeBytes until ttl has passed.
func (b *Bucket) PresignPart(ctx context.Context, key, id string, number int, sizeBytes int64, ttl time.Duration) (string, error) {
	if sizeBytes <= 0 {
		return "", fmt.Errorf("presign part of %s: size must be positive", key)
	}
	signed, err := b.presign.PresignUploadPart(ctx, &s3.UploadPartInput{Bucket: &b.bucket, Key: &key, UploadId: &id,
		PartNumber: aws.Int32(int32(number)), ContentLength: &sizeBytes}, s3.WithPresignExpires(ttl))
	if err != nil {
		return "", b.fail(ctx, "presign part of", key, err)
	}
	return signed.URL, nil
}

// AbortUploads aborts multipart uploads under the prefixes that are older than age, and returns how many. Their clients
// or replicas are gone, and the database may not list them. It returns ErrUnsupported if the store or the key's policy
// does not allow listing uploads.
func (b *Bucket) AbortUploads(ctx context.Context, age time.Duration, prefixes ...string) (aborted int, err error) {
	var old []types.MultipartUpload
	pages := s3.NewListMultipartUploadsPaginator(b.client, &s3.ListMultipartUploadsInput{Bucket: &b.bucket})
	for pages.HasMorePages() {
		call, cancel := b.call(ctx)
		page, err := pages.NextPage(call)
		cancel()
		if err != nil {
			if err = b.fail(ctx, "list uploads of", "*", err); errors.Is(err, ErrRefused) {
				err = fmt.Errorf("%w: %w", ErrUnsupported, err)
			}
			return 0, err
		}
		for _, u := range page.Uploads {
			ours := slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(aws.ToString(u.Key), p) })
			if ours && time.Since(aws.ToTime(u.Initiated)) > age {
				old = append(old, u)
			}
		}
	}
	var ended atomic.Int64
	err = Each(abortsAtOnce, old, func(_ int, u types.MultipartUpload) error {
		err := b.AbortUpload(ctx, aws.ToString(u.Key), aws.ToString(u.UploadId))
		if err == nil {
			ended.Add(1)
		}
		return err
	})
	return int(ended.Load()), err
}

// abortsAtOnce is how many aborts of one sweep run at the same time.
const abortsAtOnce = 8
