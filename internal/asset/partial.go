package asset

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"

	"cutroom/internal/objectstore"
)

// ErrWhole reports that an asset has to be fetched whole, with [Service.FetchTo].
var ErrWhole = errors.New("the asset has to be fetched whole")

const (
	// minPartialBytes is the smallest asset for which fetching only a part is worth it.
	minPartialBytes = 16 << 20
	// maxSpans bounds the requests for one fetch, and spans closer to each other than
	// minSpanGap are fetched as one.
	maxSpans   = 512
	minSpanGap = 128 << 10
	// readBlock is the least that a read fetches.
	readBlock = 64 << 10
)

// Partial is a local file of an asset's length. It holds the bytes of the spans that were
// fetched, and zeros elsewhere, which take no room on the disk. It is not safe for
// concurrent use.
type Partial struct {
	ctx  context.Context
	s    *Service
	file *os.File
	info objectstore.Info
	have []objectstore.Span // ascending, apart from each other
}

// OpenPartial creates a Partial at path, to be used until ctx ends. The error is ErrWhole
// for an asset that is small or in the cache, and for one whose bytes were never compared
// with its hash: a part of the bytes cannot be verified.
func (s *Service) OpenPartial(ctx context.Context, f Found, path string) (*Partial, error) {
	if f.SizeBytes < minPartialBytes || s.cache.Has(f.Key.fileName()) {
		return nil, ErrWhole
	}
	if proven, err := s.proven(ctx, f); err != nil || !proven {
		return nil, errors.Join(ErrWhole, err)
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		err = file.Truncate(f.SizeBytes)
	}
	if err != nil {
		return nil, fmt.Errorf("create file for spans: %w", err)
	}
	return &Partial{ctx: ctx, s: s, file: file, info: objectstore.Info{Key: f.Key.String(), SizeBytes: f.SizeBytes, ETag: f.etag}}, nil
}

// proven reports whether this version of the object is known to hash to its key: it was
// read whole before, or the store checked its hash at the upload.
func (s *Service) proven(ctx context.Context, f Found) (bool, error) {
	if f.verified {
		return true, nil
	}
	sum, etag, err := s.bucket.SHA256(ctx, f.Key.String())
	want, _ := hex.DecodeString(f.Key.SHA256) // a Key holds a hash
	if err != nil || etag != f.etag || !bytes.Equal(sum, want) {
		return false, err
	}
	return true, s.noteVerified(ctx, f)
}

// Close closes the file and keeps it.
func (p *Partial) Close() error { return p.file.Close() }

// Fetch fetches the missing bytes of spans of the asset. The error is ErrWhole if the
// object was replaced in the meantime.
func (p *Partial) Fetch(spans ...objectstore.Span) error {
	spans = slices.DeleteFunc(slices.Clone(spans), p.Has)
	if len(spans) == 0 {
		return nil
	}
	spans = merge(spans)
	if spans[0].From < 0 || spans[len(spans)-1].To > p.info.SizeBytes {
		return fmt.Errorf("%w: it names bytes beyond its end", ErrWhole)
	}
	select {
	case p.s.downloads <- struct{}{}:
		defer func() { <-p.s.downloads }()
	case <-p.ctx.Done():
		return context.Cause(p.ctx)
	}
	err := p.s.bucket.FetchSpans(p.ctx, p.info, p.file, spans...)
	if errors.Is(err, objectstore.ErrChanged) {
		return fmt.Errorf("%w: %w", ErrWhole, err)
	}
	if err != nil {
		return fmt.Errorf("fetch spans of asset: %w", err)
	}
	p.have = join(append(p.have, spans...), 0)
	return nil
}

// Has reports whether the file holds a span.
func (p *Partial) Has(s objectstore.Span) bool {
	return slices.ContainsFunc(p.have, func(h objectstore.Span) bool { return h.From <= s.From && s.To <= h.To })
}

// Cost is how many bytes of the asset the file holds once the spans are fetched, too.
func (p *Partial) Cost(spans ...objectstore.Span) (n int64) {
	for _, s := range join(append(merge(spans), p.have...), 0) {
		n += s.To - s.From
	}
	return n
}

// ReadAt reads from the file after fetching the bytes that are missing.
func (p *Partial) ReadAt(b []byte, off int64) (int, error) {
	if off >= 0 && off < p.info.SizeBytes {
		end := min(p.info.SizeBytes, off+max(int64(len(b)), readBlock))
		if !p.Has(objectstore.Span{From: off, To: min(p.info.SizeBytes, off+int64(len(b)))}) {
			if err := p.Fetch(objectstore.Span{From: off, To: end}); err != nil {
				return 0, err
			}
		}
	}
	return p.file.ReadAt(b, off)
}

// merge joins spans until few enough requests fetch them.
func merge(spans []objectstore.Span) []objectstore.Span {
	for gap := int64(minSpanGap); ; gap *= 2 {
		if spans = join(spans, gap); len(spans) <= maxSpans {
			return spans
		}
	}
}

// join returns spans in ascending order, with those joined that are at most gap apart.
func join(spans []objectstore.Span, gap int64) []objectstore.Span {
	spans = slices.SortedFunc(slices.Values(spans), func(a, b objectstore.Span) int { return cmp.Compare(a.From, b.From) })
	var joined []objectstore.Span
	for _, s := range spans {
		if n := len(joined); n > 0 && s.From <= joined[n-1].To+gap {
			joined[n-1].To = max(joined[n-1].To, s.To)
		} else {
			joined = append(joined, s)
		}
	}
	return joined
}
