package container

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
)

// ErrDamaged means that an mp4 is incomplete.
var ErrDamaged = errors.New("not a whole mp4")

// open opens a file and returns its size.
func open(path string) (*os.File, int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	st, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, st.Size(), nil
}

// box is the header of an mp4 box. The box spans [at, end), its content [body, end).
type box struct {
	kind          string
	at, body, end int64
}

// unlimited is the end of a box in a file of unknown size.
const unlimited = 1 << 62

// boxes yields the boxes of r from at to end. A box with an impossible size is yielded with an error, cut to its
// parent, and is the last one.
func boxes(r io.ReaderAt, at, end int64) iter.Seq2[box, error] {
	return func(yield func(box, error) bool) {
		for end-at >= 8 {
			head, err := readAt(r, at, 16)
			if err != nil {
				yield(box{}, err)
				return
			}
			b, err := parseBox(head, at, end)
			if !yield(b, err) || err != nil {
				return
			}
			at = b.end
		}
	}
}

// parseBox parses the header of the box at an offset of a file. head has 16 bytes, or fewer at the end of the file.
func parseBox(head []byte, at, end int64) (box, error) {
	if len(head) < 8 {
		return box{}, fmt.Errorf("%w: cut off at %d", ErrDamaged, at)
	}
	b := box{kind: string(head[4:8]), at: at, body: at + 8}
	size := uint64(binary.BigEndian.Uint32(head))
	if size == 1 && len(head) >= 16 { // the size follows in 64 bits
		b.body, size = at+16, binary.BigEndian.Uint64(head[8:])
	}
	switch {
	case size == 0: // to the end of the file
		b.end = end
		return b, nil
	case size < uint64(b.body-at):
		b.end = b.body
	case size > uint64(end-at):
		b.end = end
	default:
		b.end = at + int64(size)
		return b, nil
	}
	return b, fmt.Errorf("%w: box of %d bytes at %d", ErrDamaged, size, at)
}

// content reads at most limit bytes of the content of a box.
func (b box) content(r io.ReaderAt, limit int64) ([]byte, error) {
	return readAt(r, b.body, int(min(b.end-b.body, limit)))
}

// readAt reads up to n bytes; the end of the file is not an error.
func readAt(r io.ReaderAt, off int64, n int) ([]byte, error) {
	b := make([]byte, max(0, n))
	m, err := r.ReadAt(b, off)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return b[:m], nil
}
