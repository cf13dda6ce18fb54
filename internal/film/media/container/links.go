package container

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
)

// maxLinks is how many files may be joined into one.
const maxLinks = 256

// ErrTooManyLinks means that a file was joined from more than 256.
var ErrTooManyLinks = errors.New("joined from too many files")

// linkMagic lists the bytes with which a file of each kind begins. A joined file repeats them at each join.
var linkMagic = map[Kind][]byte{Matroska: {0x1A, 0x45, 0xDF, 0xA3}, FLAC: []byte("fLaC"), Ogg: []byte("OggS\x00")}

// linkHead is how many bytes after linkMagic show that a file begins there.
const linkHead = 24

// Links returns the offsets, ascending, at which the files that were joined into a FLAC, Ogg or Matroska file begin.
// The first is 0, and for other kinds the only one. The error may be ErrTooManyLinks.
func Links(path string, kind Kind) (starts []int64, err error) {
	starts = []int64{0}
	magic := linkMagic[kind]
	if magic == nil {
		return starts, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("find links: %w", err)
	}
	defer f.Close()
	r := bufio.NewReaderSize(f, 256<<10)
	first := true // the next page of an Ogg may still be one that begins the link
	for at := int64(0); ; {
		window, err := r.Peek(256 << 10)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("find links: %w", err)
		}
		step := bytes.Index(window, magic)
		if step < 0 {
			if err != nil {
				return starts, nil
			}
			step = len(window) - linkHead
		} else if step+len(magic)+linkHead > len(window) && err == nil {
			// not enough of it is read yet
		} else {
			begins := beginsLink(window[step:], kind)
			if begins && !first && at+int64(step) > 0 {
				starts = append(starts, at+int64(step))
			}
			first = begins && kind == Ogg
			if len(starts) > maxLinks {
				return nil, ErrTooManyLinks
			}
			step += len(magic)
		}
		if _, err := r.Discard(step); err != nil {
			return nil, fmt.Errorf("find links: %w", err)
		}
		at += int64(step)
	}
}

// beginsLink reports whether b is the beginning of a file. b begins with the kind's magic bytes.
func beginsLink(b []byte, kind Kind) bool {
	if len(b) < linkHead {
		return false
	}
	switch kind {
	case FLAC: // the stream's description follows, of 34 bytes
		return b[4]&0x7f == 0 && bytes.Equal(b[5:8], []byte{0, 0, 34})
	case Ogg: // the page begins a logical stream
		return b[5]&2 != 0
	}
	// One of the elements that describe an EBML document follows soon.
	return bytes.Contains(b[4:linkHead], []byte{0x42, 0x86}) || bytes.Contains(b[4:linkHead], []byte{0x42, 0x82})
}
