package container

import (
	"bytes"
	"errors"
)

// Index is what the index of a mov-family file declares, as far as the index is present. It provides facts that
// ffprobe does not report, and describes files that ffprobe cannot open. Nothing in it is checked against the
// media.
type Index struct {
	Encrypted bool // a protection scheme is declared

	Media bool // the top level has a box with media or an index
	Video bool // a video track is declared
}

const (
	// maxIndexBytes is how much of an index is read. Videos of several hours have smaller indexes. A larger
	// index counts as one with video, because the unread part may declare anything.
	maxIndexBytes = 16 << 20
	maxTopBoxes   = 64
)

// ReadIndex reads the boxes of a file that may be damaged anywhere.
func ReadIndex(path string) (Index, error) {
	f, size, err := open(path)
	if err != nil {
		return Index{}, err
	}
	defer f.Close()
	var x Index
	seen := 0
	for b, err := range boxes(f, 0, size) {
		if err != nil && !errors.Is(err, ErrDamaged) {
			return x, err
		}
		switch b.kind {
		case "mdat", "moof":
			x.Media = true
		case "moov":
			x.Media = true
			content, err := b.content(f, maxIndexBytes+1)
			if err != nil {
				return x, err
			}
			x.read(content)
		}
		if seen++; seen == maxTopBoxes {
			break
		}
	}
	return x, nil
}

// read searches for the names of boxes, because a damaged index may state wrong sizes for the enclosing boxes.
// A handler box contains its name, version and flags, four reserved bytes and the type. A protection scheme contains
// its name, version and flags and the scheme.
func (x *Index) read(index []byte) {
	x.Video = x.Video || len(index) > maxIndexBytes
	eachNamed(index, "hdlr", func(b []byte) { x.Video = x.Video || string(b[8:12]) == "vide" })
	eachNamed(index, "schm", func(b []byte) {
		switch string(b[4:8]) {
		case "cenc", "cens", "cbc1", "cbcs", "piff", "itun", "odkm", "adkm":
			x.Encrypted = true
		}
	})
}

// eachNamed calls visit with the twelve or more bytes that follow each occurrence of a box's name.
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
