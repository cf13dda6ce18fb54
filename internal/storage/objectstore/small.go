package objectstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"cutroom/internal/base/tracing"
)

// maxSmallBytes bounds what Load reads.
const maxSmallBytes = 1 << 20

// ErrExists is returned by Create and CompleteUpload for a key that holds an object.
var ErrExists = errors.New("object exists")

// Name is the bucket's name.
func (b *Bucket) Name() string { return b.bucket }

// Load returns the bytes of a small object.
func (b *Bucket) Load(ctx context.Context, key string) (_ []byte, err error) {
	ctx, end := tracing.Start(ctx, "bucket load")
	defer func() { end(err) }()
	if err := CheckKey(key); err != nil {
		return nil, err
	}
	call, cancel := b.call(ctx)
	defer cancel()
	out, err := b.client.GetObject(call, &s3.GetObjectInput{Bucket: &b.bucket, Key: &key})
	if err != nil {
		return nil, b.fail(ctx, "load", key, err)
	}
	defer out.Body.Close()
	data, err := io.ReadAll(io.LimitReader(out.Body, maxSmallBytes+1))
	if err != nil {
		return nil, b.fail(ctx, "load", key, err)
	}
	if len(data) > maxSmallBytes {
		return nil, fmt.Errorf("load %s: longer than %d bytes", key, maxSmallBytes)
	}
	return data, nil
}

// Save stores a small object and replaces an existing one.
func (b *Bucket) Save(ctx context.Context, key string, data []byte) error {
	return b.save(ctx, key, data, nil)
}

// Create stores a small object under an unused key, and returns ErrExists if the key is used. A store that ignores the
// condition replaces the object; for one that refuses it, Create returns ErrUnsupported.
func (b *Bucket) Create(ctx context.Context, key string, data []byte) error {
	err := b.save(ctx, key, data, aws.String("*"))
	if e, _ := errors.AsType[*opError](err); e != nil && e.status == http.StatusPreconditionFailed {
		if _, err := b.Stat(ctx, key); errors.Is(err, ErrNotFound) { // the store refuses every condition
			return fmt.Errorf("%w: %w", ErrUnsupported, err)
		}
	}
	return err
}

func (b *Bucket) save(ctx context.Context, key string, data []byte, ifNoneMatch *string) (err error) {
	ctx, end := tracing.Start(ctx, "bucket save")
	defer func() { end(err) }()
	if err := CheckKey(key); err != nil {
		return err
	}
	call, cancel := b.call(ctx)
	defer cancel()
	_, err = b.client.PutObject(call, &s3.PutObjectInput{Bucket: &b.bucket, Key: &key, ContentType: aws.String(ContentType(key)),
		Body: bytes.NewReader(data), ContentLength: aws.Int64(int64(len(data))), IfNoneMatch: ifNoneMatch})
	if err == nil {
		return nil
	}
	if ifNoneMatch != nil {
		return b.failConditional(ctx, "save", key, err)
	}
	return b.fail(ctx, "save", key, err)
}
