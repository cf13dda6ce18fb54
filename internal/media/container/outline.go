package container

import (
	"fmt"
	"io"
)

// Span is the bytes [From, To) of a file.
type Span struct{ From, To int64 }

// Limits on what Outline reads, and on what it tells its caller to read.
const (
	maxOutlineBytes = 32 << 20
	maxOutlineBoxes = 64
)

// Outline returns the spans of an mp4 that a demuxer reads before it knows where the
// packets are: all top-level boxes except the content of media and free space. The error
// wraps ErrDamaged if the index cannot be read on its own: the file is cut off or
// fragmented, or its index is too large.
func Outline(r io.ReaderAt, size int64) ([]Span, error) {
	var spans []Span
	var bytes int64
	indexed := false
	for b, err := range boxes(r, 0, size) {
		if err != nil {
			return nil, err
		}
		part := Span{b.at, b.end}
		switch b.kind {
		case "mdat", "free", "skip", "wide":
			part.To = b.body
		case "moof":
			return nil, fmt.Errorf("%w: fragmented", ErrDamaged)
		case "moov":
			indexed = true
		}
		spans = append(spans, part)
		if bytes += part.To - part.From; bytes > maxOutlineBytes || len(spans) > maxOutlineBoxes {
			return nil, fmt.Errorf("%w: more than %d bytes or %d boxes beside the media", ErrDamaged, maxOutlineBytes, maxOutlineBoxes)
		}
	}
	if !indexed {
		return nil, fmt.Errorf("%w: no index", ErrDamaged)
	}
	return spans, nil
}
