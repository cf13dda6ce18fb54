package engine

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

// mp4File is the little that must be known of an mp4 this program wrote: enough
// to see that it is whole, without starting another process.
type mp4File struct {
	moovFirst bool
	tracks    []mp4Track
}

type mp4Track struct {
	handler   string // "vide" or "soun"
	timescale int64
	ticks     int64   // sum of all samples' durations
	samples   int64   // frames or packets
	uniform   bool    // every sample lasts equally long
	config    string  // the decoder configuration (avcC), raw
	matrixAt  int64   // offset of the display matrix in the file, 0 if unknown
	upright   bool    // the matrix changes nothing
	lightAt   []int64 // offsets of the names of boxes that speak of HDR
}

var errMP4 = errors.New("not a whole mp4")

// maxMoov bounds the index read into memory: hours of film stay far below.
const maxMoov = 256 << 20

// readMP4 reads the index of an mp4.
func readMP4(path string) (*mp4File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	file := &mp4File{}
	sawData, sawIndex := false, false
	for off := int64(0); off < st.Size(); {
		kind, header, size, err := boxAt(f, off, st.Size())
		if err != nil {
			return nil, err
		}
		switch kind {
		case "mdat":
			sawData = true
		case "moov":
			if size-header > maxMoov {
				return nil, fmt.Errorf("%w: index of %d bytes", errMP4, size)
			}
			moov := make([]byte, size-header)
			if _, err := f.ReadAt(moov, off+header); err != nil {
				return nil, err
			}
			file.moovFirst, sawIndex = !sawData, true
			if err := file.readMoov(moov, off+header); err != nil {
				return nil, err
			}
		}
		off += size
	}
	if !sawData || !sawIndex {
		return nil, fmt.Errorf("%w: no data or no index", errMP4)
	}
	return file, nil
}

// boxAt reads a box header; size includes it.
func boxAt(r io.ReaderAt, off, end int64) (kind string, header, size int64, err error) {
	b := make([]byte, 16)
	n, err := r.ReadAt(b, off)
	if n < 8 {
		return "", 0, 0, fmt.Errorf("%w: cut off at %d: %w", errMP4, off, err)
	}
	header, size = 8, int64(binary.BigEndian.Uint32(b))
	if size == 1 && n == 16 {
		header, size = 16, int64(binary.BigEndian.Uint64(b[8:]))
	}
	if size == 0 {
		size = end - off
	}
	if size < header || size > end-off {
		return "", 0, 0, fmt.Errorf("%w: box of %d bytes at %d", errMP4, size, off)
	}
	return string(b[4:8]), header, size, nil
}

// eachBox calls visit for the boxes in b, which begins at offset at of the file;
// visit is told where the box's body begins.
func eachBox(b []byte, at int64, visit func(kind string, body []byte, at int64) error) error {
	for len(b) >= 8 {
		size := int64(binary.BigEndian.Uint32(b))
		if size < 8 || size > int64(len(b)) {
			return fmt.Errorf("%w: inner box of %d bytes", errMP4, size)
		}
		if err := visit(string(b[4:8]), b[8:size], at+8); err != nil {
			return err
		}
		b = b[size:]
		at += size
	}
	return nil
}

func (f *mp4File) readMoov(moov []byte, at int64) error {
	return eachBox(moov, at, func(kind string, body []byte, at int64) error {
		if kind != "trak" {
			return nil
		}
		t := mp4Track{uniform: true}
		if err := t.read(body, at); err != nil {
			return err
		}
		f.tracks = append(f.tracks, t)
		return nil
	})
}

// identity is the display matrix that changes nothing.
var identity = []byte{
	0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
	0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0,
	0, 0, 0, 0, 0, 0, 0, 0, 0x40, 0, 0, 0,
}

func (t *mp4Track) read(b []byte, at int64) error {
	return eachBox(b, at, func(kind string, body []byte, at int64) error {
		switch kind {
		case "mdia", "minf", "stbl":
			return t.read(body, at)
		case "tkhd":
			matrix := 40
			if len(body) > 0 && body[0] == 1 {
				matrix = 52 // version 1 has longer times
			}
			if len(body) >= matrix+len(identity) {
				t.matrixAt = at + int64(matrix)
				t.upright = bytes.Equal(body[matrix:matrix+len(identity)], identity)
			}
		case "hdlr":
			if len(body) >= 12 {
				t.handler = string(body[8:12])
			}
		case "mdhd":
			switch {
			case len(body) >= 24 && body[0] == 1:
				t.timescale = int64(binary.BigEndian.Uint32(body[20:]))
			case len(body) >= 16:
				t.timescale = int64(binary.BigEndian.Uint32(body[12:]))
			}
		case "stts":
			return t.readDurations(body)
		case "stsz":
			if len(body) >= 12 {
				t.samples = int64(binary.BigEndian.Uint32(body[8:]))
			}
		case "stsd":
			const entry = 8 + 8 + 78 // list header, box header, fixed part of a picture's entry
			if t.handler == "vide" && len(body) > entry {
				return eachBox(body[entry:], at+entry, func(kind string, body []byte, at int64) error {
					switch kind {
					case "avcC":
						t.config = string(body)
					case "mdcv", "clli", "SmDm", "CoLL", "dvcC", "dvvC":
						t.lightAt = append(t.lightAt, at-4)
					}
					return nil
				})
			}
		}
		return nil
	})
}

func (t *mp4Track) readDurations(body []byte) error {
	if len(body) < 8 {
		return fmt.Errorf("%w: short stts", errMP4)
	}
	n := int64(binary.BigEndian.Uint32(body[4:]))
	if n*8 > int64(len(body)-8) {
		return fmt.Errorf("%w: stts of %d entries", errMP4, n)
	}
	for i := range n {
		e := body[8+8*i:]
		t.ticks += int64(binary.BigEndian.Uint32(e)) * int64(binary.BigEndian.Uint32(e[4:]))
	}
	t.uniform = n <= 1
	return nil
}

// track returns the only track of a kind.
func (f *mp4File) track(handler string) (mp4Track, error) {
	var found []mp4Track
	for _, t := range f.tracks {
		if t.handler == handler {
			found = append(found, t)
		}
	}
	if len(found) != 1 {
		return mp4Track{}, fmt.Errorf("%w: %d tracks of kind %s", errMP4, len(found), handler)
	}
	return found[0], nil
}

// disown takes from a part what speaks of its source: ffmpeg copies the display
// matrix and what is known of the light of an HDR master to the output, even though
// the planned filters have turned and tone-mapped the pictures already.
func disown(path string) error {
	f, err := readMP4(path)
	if err != nil {
		return err
	}
	t, err := f.track("vide")
	if err != nil {
		return err
	}
	if (t.upright || t.matrixAt == 0) && len(t.lightAt) == 0 {
		return nil
	}
	w, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer w.Close()
	if t.matrixAt != 0 {
		if _, err := w.WriteAt(identity, t.matrixAt); err != nil {
			return err
		}
	}
	for _, at := range t.lightAt {
		if _, err := w.WriteAt([]byte("free"), at); err != nil {
			return err
		}
	}
	return w.Close()
}

// checkPart makes sure that a part holds what the plan says, and returns its
// decoder configuration.
func (v *VideoPart) checkPart(path string) (config string, err error) {
	f, err := readMP4(path)
	if err != nil {
		return "", fmt.Errorf("check %s: %w", v.Name, err)
	}
	t, err := f.track("vide")
	if err != nil {
		return "", fmt.Errorf("check %s: %w", v.Name, err)
	}
	if !t.upright || len(t.lightAt) > 0 {
		return "", fmt.Errorf("check %s: %w: it is turned, or of HDR", v.Name, errMP4)
	}
	if t.samples != v.Frames {
		return "", fmt.Errorf("check %s: %w: %d frames of %d", v.Name, errMP4, t.samples, v.Frames)
	}
	if !t.uniform {
		return "", fmt.Errorf("check %s: %w: frames of unequal length", v.Name, errMP4)
	}
	return t.config, nil
}
