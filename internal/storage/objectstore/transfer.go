// Moves whole files to and from a bucket, in parts, several at once: with bounded memory, continued where a connection
// broke, and started over if the object changes in the meantime.

package objectstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"golang.org/x/sync/errgroup"

	"cutroom/internal/base/tracing"
)

// Put uploads the file: in one request up to the size of four parts, above that as a multipart upload, which it
// aborts on failure.
func (b *Bucket) Put(ctx context.Context, key, path, contentType string) (err error) {
	ctx, end := tracing.Start(ctx, "bucket put")
	defer func() { end(err) }()
	if err := CheckKey(key); err != nil {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("put %s: %w", key, err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return fmt.Errorf("put %s: %w", key, err)
	}
	contentType = cmp.Or(contentType, ContentType(key))
	if st.Size() > multipartAfterParts*b.partSize {
		return b.putParts(ctx, key, f, st.Size(), contentType)
	}
	_, err = b.client.PutObject(ctx, &s3.PutObjectInput{
		Bucket: &b.bucket, Key: &key, ContentType: &contentType,
		Body: io.NewSectionReader(f, 0, st.Size()), ContentLength: aws.Int64(st.Size()),
	})
	if err != nil {
		return b.fail(ctx, "put", key, err)
	}
	return nil
}

func (b *Bucket) putParts(ctx context.Context, key string, f io.ReaderAt, size int64, contentType string) error {
	id, err := b.CreateUpload(ctx, key, contentType)
	if err != nil {
		return err
	}
	parts, err := b.sendParts(ctx, key, id, f, size)
	if err == nil {
		err = b.complete(ctx, key, id, parts, nil)
	}
	if errors.Is(err, ErrNoUpload) {
		// Either an earlier try completed the upload and its answer was lost, or a lifecycle rule aborted it. A new Put
		// settles both cases.
		err = fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if err != nil {
		err = errors.Join(err, b.abort(ctx, key, id))
	}
	return err
}

// sendParts uploads the parts of f, several at once, and returns them in order. No part is held in memory.
func (b *Bucket) sendParts(ctx context.Context, key, id string, f io.ReaderAt, size int64) ([]Part, error) {
	partSize := max(b.partSize, (size+maxParts-1)/maxParts)
	parts := make([]Part, (size+partSize-1)/partSize)
	g, partCtx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for i := range parts {
		g.Go(func() error {
			number := int32(i + 1)
			offset := int64(i) * partSize
			length := min(partSize, size-offset)
			out, err := b.client.UploadPart(partCtx, &s3.UploadPartInput{
				Bucket: &b.bucket, Key: &key, UploadId: &id, PartNumber: &number,
				Body: io.NewSectionReader(f, offset, length), ContentLength: &length,
			})
			if err != nil {
				return b.fail(ctx, "put", key, err)
			}
			parts[i] = Part{Number: i + 1, SizeBytes: length, ETag: aws.ToString(out.ETag)}
			return nil
		})
	}
	return parts, g.Wait()
}

// abort discards a multipart upload, because the store would keep and bill its parts until a lifecycle rule removes
// them. It runs even if ctx has ended.
func (b *Bucket) abort(ctx context.Context, key, id string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	// A part that is still arriving may survive an abort, so repeat it a few times until the upload is gone.
	for try := 1; ; try++ {
		err := b.abortOnce(ctx, key, id)
		switch {
		case errors.Is(err, ErrNoUpload), err == nil && try == attempts:
			return nil
		case err != nil:
			return err
		}
		if err := b.pause(ctx, try); err != nil {
			return err
		}
	}
}

// Fetch downloads the object to dst.part, several ranges at once, and renames it when complete. If the object is
// overwritten during the download, Fetch starts over; after a few times it returns ErrChanged.
func (b *Bucket) Fetch(ctx context.Context, key, dst string) error {
	_, err := b.FetchVersion(ctx, key, dst)
	return err
}

// FetchVersion is Fetch and also returns the ETag of the downloaded bytes.
func (b *Bucket) FetchVersion(ctx context.Context, key, dst string) (etag string, err error) {
	ctx, end := tracing.Start(ctx, "bucket fetch")
	defer func() { end(err) }()
	if err := CheckKey(key); err != nil {
		return "", err
	}
	part := dst + ".part"
	f, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o640)
	if err != nil {
		return "", fmt.Errorf("fetch %s: %w", key, err)
	}
	defer os.Remove(part) // no-op once renamed
	for range attempts {
		if etag, err = b.fetch(ctx, key, f); !errors.Is(err, ErrChanged) {
			break
		}
		if terr := f.Truncate(0); terr != nil {
			err = terr
			break
		}
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(part, dst)
	}
	if err != nil {
		return "", fmt.Errorf("fetch %s: %w", key, err)
	}
	return etag, nil
}

func (b *Bucket) fetch(ctx context.Context, key string, f *os.File) (etag string, err error) {
	// The first range also returns size and ETag, so a small object costs one round trip.
	first, err := b.get(ctx, ctx, key, "", 0, b.partSize)
	if errors.Is(err, errEmptyRange) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	g, partCtx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	copyRange := func(at, length int64, body io.ReadCloser) {
		g.Go(func() error { return b.copyRange(partCtx, f, key, first.etag, at, length, body) })
	}
	copyRange(0, first.length, first.body)
	for offset := first.length; offset < first.total && partCtx.Err() == nil; offset += b.partSize {
		copyRange(offset, min(b.partSize, first.total-offset), nil)
	}
	return first.etag, cmp.Or(g.Wait(), context.Cause(ctx)) // if ctx ended the loop, no part need have failed
}

// copyRange copies bytes of an object to the same place of f. body is the response with those bytes, or nil if they are
// not requested yet.
func (b *Bucket) copyRange(ctx context.Context, f io.WriterAt, key, etag string, at, length int64, body io.ReadCloser) error {
	r := &rangeReader{ctx: ctx, bucket: b, key: key, etag: etag, at: at, end: at + length, body: body, progress: 1 << 20}
	defer r.Close()
	buf := copyBuffers.Get().(*[256 << 10]byte)
	defer copyBuffers.Put(buf)
	_, err := io.CopyBuffer(io.NewOffsetWriter(f, at), r, buf[:])
	return err
}

// copyBuffers limits the memory of a download to one buffer per part in flight.
var copyBuffers = sync.Pool{New: func() any { return new([256 << 10]byte) }}

// ranged is the half-open range [offset, offset+length) of an object, with the response body that delivers it.
type ranged struct {
	body   io.ReadCloser
	etag   string
	total  int64 // size of the whole object
	offset int64
	length int64
}

// errEmptyRange is returned by get for a range of an empty object.
var errEmptyRange = errors.New("object is empty")

// get requests up to length bytes from offset. If etag is set, the object must still have it. When get fails, the SDK
// has already retried. The context call, derived from ctx, ends with the body.
func (b *Bucket) get(ctx, call context.Context, key, etag string, offset, length int64) (*ranged, error) {
	span := fmt.Sprintf("bytes=%d-%d", offset, offset+length-1)
	out, err := b.client.GetObject(call, &s3.GetObjectInput{Bucket: &b.bucket, Key: &key, Range: &span})
	if err != nil {
		if status, _, _ := describe(err); status == http.StatusRequestedRangeNotSatisfiable {
			if etag != "" { // the object had these bytes before
				return nil, fmt.Errorf("get %s: %w", key, ErrChanged)
			}
			return nil, errEmptyRange
		}
		return nil, b.fail(ctx, "get", key, err)
	}
	if out.ContentLength == nil {
		out.Body.Close()
		return nil, fmt.Errorf("get %s: %w: response without Content-Length", key, ErrUnavailable)
	}
	r := &ranged{body: out.Body, etag: aws.ToString(out.ETag), length: *out.ContentLength}
	if err := r.parse(aws.ToString(out.ContentRange)); err != nil {
		out.Body.Close()
		return nil, fmt.Errorf("get %s: %w", key, err)
	}
	wantLength := min(length, r.total-offset)
	if out.ContentRange == nil && offset == 0 {
		wantLength = r.total // the server ignores Range: read the whole object
	}
	switch {
	case etag != "" && r.etag != etag:
		err = ErrChanged
	case r.total == 0:
		err = errEmptyRange // a 200 without bytes
	case r.offset != offset || r.length != wantLength:
		err = fmt.Errorf("%w: requested %d bytes at %d, received %d at %d of %d",
			ErrUnavailable, length, offset, r.length, r.offset, r.total)
	}
	if err != nil {
		out.Body.Close()
		return nil, fmt.Errorf("get %s: %w", key, err)
	}
	return r, nil
}

// parse reads "bytes 0-9/100". Without the header the response is the whole object.
func (r *ranged) parse(contentRange string) error {
	if contentRange == "" {
		r.total = r.length
		return nil
	}
	var last int64
	_, err := fmt.Sscanf(contentRange, "bytes %d-%d/%d", &r.offset, &last, &r.total)
	if err != nil || r.offset < 0 || last < r.offset || r.total <= last || last-r.offset+1 != r.length {
		return fmt.Errorf("%w: malformed Content-Range", ErrUnavailable)
	}
	return nil
}
