package objectstore

import (
	"context"
	"errors"
	"fmt"
	"io"

	"cutroom/internal/httpcall"
)

// Sequential reading asks for growing windows: a player that wants a few
// kilobytes does not make the store send the rest of a film, and a download
// does not pay a round trip per megabyte.
const (
	firstWindow = 1 << 20
	maxWindow   = 64 << 20
)

// Open describes the object and reads it lazily. No connection is held until
// the first Read, and none between the windows.
func (b *Bucket) Open(ctx context.Context, key string) (Object, error) {
	info, err := b.Stat(ctx, key)
	if err != nil {
		return nil, err
	}
	return &bucketObject{ctx: ctx, bucket: b, info: info}, nil
}

// bucketObject reads an object of a bucket by ranged GETs.
type bucketObject struct {
	ctx    context.Context
	bucket *Bucket
	info   Info

	offset int64 // of the next Read
	body   io.ReadCloser
	at     int64 // offset of the next byte of body
	end    int64 // offset where body ends
	window int64 // size of the last window asked for
	failed int   // tries in a row that brought nothing
	closed bool
}

var errClosed = errors.New("object is closed")

func (o *bucketObject) Info() Info { return o.info }

// Seek only moves the offset; the next Read asks for what is there.
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
	case o.closed:
		return 0, errClosed
	case o.offset >= o.info.SizeBytes:
		return 0, io.EOF
	case len(p) == 0:
		return 0, nil
	}
	for {
		if o.body == nil || o.at != o.offset {
			if err := o.request(); err != nil {
				return 0, err
			}
		}
		n, err := o.body.Read(p[:min(int64(len(p)), o.end-o.at)])
		o.offset, o.at = o.offset+int64(n), o.at+int64(n)
		if n > 0 {
			o.failed = 0
		}
		if o.at == o.end || err != nil {
			o.drop()
		}
		if n > 0 {
			return n, nil // a broken connection shows at the next Read, if at all
		}
		if err == nil {
			continue
		}
		if err := o.again(err); err != nil {
			return 0, err
		}
	}
}

// again waits before another try, or gives up.
func (o *bucketObject) again(broken error) error {
	if o.ctx.Err() != nil {
		return fmt.Errorf("read %s: %w", o.info.Key, context.Cause(o.ctx))
	}
	if o.failed++; o.failed >= o.bucket.attempts {
		return &opError{op: "read", key: o.info.Key, kind: ErrUnavailable, text: o.bucket.scrub("broke off: " + broken.Error())}
	}
	if err := httpcall.Sleep(o.ctx, o.bucket.backoff(o.failed)); err != nil {
		return fmt.Errorf("read %s: %w", o.info.Key, err)
	}
	return nil
}

// request asks for the window that starts at the offset.
func (o *bucketObject) request() error {
	sequential := o.offset != 0 && o.offset == o.at
	o.drop()
	if sequential {
		o.window = min(max(o.window, firstWindow)*4, maxWindow)
	} else {
		o.window = firstWindow
	}
	r, err := o.bucket.get(o.ctx, o.info.Key, o.info.ETag, o.offset, o.window)
	if err != nil {
		return err
	}
	o.body, o.at, o.end = r.body, o.offset, o.offset+r.length
	return nil
}

func (o *bucketObject) drop() {
	if o.body != nil {
		o.body.Close() // read-only: nothing can be lost
		o.body = nil
	}
}

// Close ends the connection, if there is one.
func (o *bucketObject) Close() error {
	o.drop()
	o.closed = true
	return nil
}
