package media

import (
	"bytes"
	"encoding/binary"
	"io"
	"os"
)

// MovIndex is what the index of a mov-family file declares, as far as it is
// there. It is for what ffprobe does not tell and for files that it cannot open;
// nothing of it is checked against the media.
type MovIndex struct {
	Encrypted bool // a protection scheme is declared

	Media   bool  // there is a box with media or an index at the top level
	Video   bool  // a video track is declared
	Samples int64 // packets declared by the largest sample table
}

// maxIndexBytes is how much of an index is read; that of a film of hours is
// smaller. What lies beyond counts as video: nobody knows.
const maxIndexBytes = 16 << 20

// ReadMovIndex looks at the boxes of a file that may be damaged anywhere.
func ReadMovIndex(path string) (MovIndex, error) {
	f, err := os.Open(path)
	if err != nil {
		return MovIndex{}, err
	}
	defer f.Close()
	var x MovIndex
	for at, boxes := int64(0), 0; boxes < 64; boxes++ {
		header, err := readAt(f, at, 16)
		if err != nil || len(header) < 8 {
			return x, err
		}
		size, head := int64(binary.BigEndian.Uint32(header)), int64(8)
		if size == 1 && len(header) == 16 { // the size follows in 64 bits
			size, head = int64(binary.BigEndian.Uint64(header[8:])&(1<<62-1)), 16
		}
		if size == 0 { // to the end of the file
			size = 1 << 62
		}
		switch string(header[4:8]) {
		case "mdat", "moof":
			x.Media = true
		case "moov":
			x.Media = true
			// A box that claims more than there is ends with the file.
			index, err := io.ReadAll(io.LimitReader(io.NewSectionReader(f, at+head, max(0, size-head)), maxIndexBytes+1))
			if err != nil {
				return x, err
			}
			x.read(index)
		}
		if size < head || at > 1<<61 {
			return x, nil
		}
		at += size
	}
	return x, nil
}

// read looks for the boxes that matter wherever they are: in a damaged index
// the sizes of those around them need not be right. A handler box holds its
// name, version and flags, four reserved bytes and the type; a sample table its
// name, version and flags, the size of all samples and their number; a protection
// scheme its name, version and flags and the scheme.
func (x *MovIndex) read(index []byte) {
	x.Video = x.Video || len(index) > maxIndexBytes
	eachNamed(index, "hdlr", func(b []byte) { x.Video = x.Video || string(b[8:12]) == "vide" })
	eachNamed(index, "schm", func(b []byte) {
		switch string(b[4:8]) {
		case "cenc", "cens", "cbc1", "cbcs", "piff", "itun", "odkm", "adkm":
			x.Encrypted = true
		}
	})
	eachNamed(index, "stsz", func(b []byte) { x.Samples = max(x.Samples, int64(binary.BigEndian.Uint32(b[8:]))) })
}

// eachNamed calls visit with the twelve bytes or more that follow each
// occurrence of a box's name.
func eachNamed(index []byte, name string, visit func(content []byte)) {
	for {
		i := bytes.Index(index, []byte(name))
		if i < 0 || len(index) < i+16 {
			return
		}
		index = index[i+4:]
		visit(index)
	}
}
