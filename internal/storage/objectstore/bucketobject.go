// Reads an object of a bucket as an io.ReadSeeker, by ranged requests that resume where a connection broke.

package objectstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

// Open describes the object and reads it lazily: it holds no connection until the first Read.
func (b *Bucket) Open(ctx context.Context, key string) (Object, error) {
	info, err := b.Stat(ctx, key)
	if err != nil {
		return nil, err
	}
	return &bucketObject{ctx: ctx, bucket: b, info: info, etag: info.ETag}, nil
}

// OpenKnown sends no request; if the object is missing, the first Read fails.
func (b *Bucket) OpenKnown(ctx context.Context, info Info) (Object, error) {
	if err := CheckKey(info.Key); err != nil {
		return nil, err
	}
	return &bucketObject{ctx: ctx, bucket: b, info: info}, nil
}

// bucketObject reads an object of a bucket by ranged GETs.
type bucketObject struct {
	ctx    context.Context
	bucket *Bucket
	info   Info
	etag   string // from the bucket; "" until its first response
	spans  []Span // announced by the caller

	offset int64 // of the next Read
	begun  bool  // the bucket has sent at least one byte
	span   rangeReader
}

func (o *bucketObject) Info() Info { return o.info }

// Expect makes the object request each span separately and exactly.
func (o *bucketObject) Expect(spans ...Span) { o.spans = slices.Clone(spans) }

// Seek moves the offset without a request.
func (o *bucketObject) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekStart:
	case io.SeekCurrent:
		offset += o.offset
	case io.SeekEnd:
		offset += o.info.SizeBytes
	default:
		return 0, errors.New("seek: unknown origin")
	}
	if offset < 0 {
		return 0, errors.New("seek: before the start")
	}
	o.offset = offset
	return offset, nil
}

func (o *bucketObject) Read(p []byte) (int, error) {
	switch {
	case o.offset >= o.info.SizeBytes:
		return 0, io.EOF
	case len(p) == 0:
		return 0, nil
	}
	if o.offset != o.span.at || o.offset == o.span.end {
		o.nextSpan()
	}
	n, err := o.span.Read(p)
	o.offset, o.begun = o.offset+int64(n), o.begun || n > 0
	o.etag = o.span.etag
	return n, err
}

// nextSpan prepares the request at the current offset. Without an announced span it requests the rest of the
// object; Close then ends the transfer.
func (o *bucketObject) nextSpan() {
	o.span.Close()
	end := o.info.SizeBytes
	if i := slices.IndexFunc(o.spans, func(s Span) bool { return s.From == o.offset }); i >= 0 {
		end = min(end, o.spans[i].To)
		o.spans = slices.Delete(o.spans, i, i+1) // another span may start at the same byte
	}
	o.span = rangeReader{ctx: o.ctx, bucket: o.bucket, key: o.info.Key, etag: o.etag, at: o.offset, end: end, progress: 1,
		limited: !o.begun}
}

// Close ends the connection, if one is open.
func (o *bucketObject) Close() error { return o.span.Close() }

// rangeReader reads a range of an object. It resumes a broken connection where it stopped, and gives up after several
// tries in a row that made little progress.
type rangeReader struct {
	ctx       context.Context
	bucket    *Bucket
	key, etag string
	at, end   int64         // the rest of the range
	body      io.ReadCloser // nil before the request
	progress  int64         // a try that delivered this many bytes does not count as failed
	received  int64         // bytes read by the current try
	failed    int           // failed tries in a row before the current one
	limited   bool          // a user waits for the first byte
}

func (r *rangeReader) Read(p []byte) (int, error) {
	if r.ctx.Err() != nil { // bytes may still wait in the connection's buffer
		return 0, fmt.Errorf("read %s: %w", r.key, context.Cause(r.ctx))
	}
	for r.at < r.end {
		if r.body == nil {
			next, err := r.request()
			if err != nil {
				return 0, err
			}
			r.body, r.etag, r.end, r.received = next.body, next.etag, r.at+next.length, 0
		}
		n, err := r.body.Read(p[:min(int64(len(p)), r.end-r.at)])
		r.at, r.received = r.at+int64(n), r.received+int64(n)
		if r.received >= r.progress {
			r.failed = 0
		}
		if r.at == r.end || err != nil {
			r.Close()
		}
		if n > 0 {
			return n, nil // a broken connection shows at the next Read, if at all
		}
		if err != nil {
			if err := r.waitToRetry(err); err != nil {
				return 0, fmt.Errorf("read %s: %w", r.key, err)
			}
		}
	}
	return 0, io.EOF
}

// request asks for the rest of the range. If a user waits, the answer must begin within b.timeout; the body may
// take longer.
func (r *rangeReader) request() (*ranged, error) {
	call := r.ctx
	if r.limited {
		limited, cancel := context.WithCancel(context.WithValue(r.ctx, tryLimitKey{}, r.bucket.timeout/2))
		defer time.AfterFunc(r.bucket.timeout, cancel).Stop() // not for the body, which ends with r.ctx
		call = limited
	}
	return r.bucket.get(r.ctx, call, r.key, r.etag, r.at, r.end-r.at)
}

// waitToRetry pauses before another try. After the last try it returns an error.
func (r *rangeReader) waitToRetry(broken error) error {
	if r.ctx.Err() != nil {
		return context.Cause(r.ctx)
	}
	if r.failed++; r.failed >= attempts {
		return fmt.Errorf("%w: broke off: %s", ErrUnavailable, r.bucket.scrub(broken.Error()))
	}
	return r.bucket.pause(r.ctx, r.failed)
}

// Close ends the connection, if one is open.
func (r *rangeReader) Close() error {
	if r.body != nil {
		r.body.Close() // read-only: nothing can be lost
		r.body = nil
	}
	return nil
}
