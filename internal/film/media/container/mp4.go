// Reads the mp4 files that this program wrote, to check them without starting a process, and removes what a source left
// in their metadata.

package container

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
)

// Movie describes an mp4 that this program wrote, in enough detail to check that it is complete without starting
// another process.
type Movie struct {
	IndexFirst   bool  // before the media, so that playback starts before the download ends
	Video, Audio Track // the only one of its kind; zero if there is none
}

// Track is one track of a Movie.
type Track struct {
	Timescale int64
	Ticks     int64  // sum of all samples' durations
	Samples   int64  // frames or packets
	Uniform   bool   // every sample lasts equally long
	Config    string // the decoder configuration (avcC), raw

	handler  string  // "vide" or "soun"
	matrixAt int64   // offset of the display matrix in the file, 0 if unknown
	upright  bool    // the matrix changes nothing
	lightAt  []int64 // offsets of the names of boxes with HDR metadata
}

// The handlers of video and audio tracks.
const (
	video = "vide"
	sound = "soun"
)

// ReadMovie reads the index of an mp4. The error wraps ErrDamaged if the mp4 is incomplete.
func ReadMovie(path string) (m Movie, err error) {
	f, size, err := open(path)
	if err != nil {
		return m, err
	}
	defer f.Close()
	sawData, sawIndex := false, false
	for b, err := range boxes(f, 0, size) {
		if err != nil {
			return m, err
		}
		switch b.kind {
		case "mdat":
			sawData = true
		case "moov":
			m.IndexFirst, sawIndex = !sawData, true
			if err := m.readTracks(f, b); err != nil {
				return m, err
			}
		}
	}
	if !sawData || !sawIndex {
		return m, fmt.Errorf("%w: no data or no index", ErrDamaged)
	}
	return m, nil
}

func (m *Movie) readTracks(r io.ReaderAt, moov box) error {
	for b, err := range boxes(r, moov.body, moov.end) {
		if err != nil {
			return err
		}
		if b.kind != "trak" {
			continue
		}
		t := Track{Uniform: true}
		if err := t.read(r, b); err != nil {
			return err
		}
		place := map[string]*Track{video: &m.Video, sound: &m.Audio}[t.handler]
		if place == nil {
			continue
		}
		if place.handler != "" {
			return fmt.Errorf("%w: two tracks of kind %s", ErrDamaged, t.handler)
		}
		*place = t
	}
	return nil
}

// identity is the display matrix that changes nothing.
var identity = []byte{
	0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
	0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0,
	0, 0, 0, 0, 0, 0, 0, 0, 0x40, 0, 0, 0,
}

const (
	maxField = 1 << 20  // bytes of a box that is not a table
	maxTable = 64 << 20 // bytes of a table of durations; our own files need one entry
)

// inner names, for each box on the way to a track's tables, the next box inside it.
var inner = map[string]string{"trak": "mdia", "mdia": "minf", "minf": "stbl"}

// read reads the boxes of a track within another box.
func (t *Track) read(r io.ReaderAt, within box) error {
	for b, err := range boxes(r, within.body, within.end) {
		if err != nil {
			return err
		}
		switch b.kind {
		case inner[within.kind]:
			err = t.read(r, b)
		case "tkhd", "hdlr", "mdhd", "stsz":
			var content []byte
			if content, err = b.content(r, 128); err == nil {
				t.readField(b, content)
			}
		case "stts":
			err = t.readDurations(r, b)
		case "stsd":
			err = t.readEntry(r, b)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// readField reads a box with a few fixed fields.
func (t *Track) readField(b box, content []byte) {
	long := len(content) > 0 && content[0] == 1 // version 1 has longer times
	switch b.kind {
	case "tkhd":
		matrix := 40
		if long {
			matrix = 52
		}
		if len(content) >= matrix+len(identity) {
			t.matrixAt = b.body + int64(matrix)
			t.upright = bytes.Equal(content[matrix:matrix+len(identity)], identity)
		}
	case "hdlr":
		if len(content) >= 12 {
			t.handler = string(content[8:12])
		}
	case "mdhd":
		t.Timescale = int64(number(content, 12))
		if long {
			t.Timescale = int64(number(content, 20))
		}
	case "stsz":
		t.Samples = int64(number(content, 8))
	}
}

// readEntry reads the boxes after the fixed part of a video track's sample entry.
func (t *Track) readEntry(r io.ReaderAt, stsd box) error {
	const fixed = 8 + 8 + 78 // list header, box header, fields of video
	if t.handler != video {
		return nil
	}
	for b, err := range boxes(r, stsd.body+fixed, stsd.end) {
		if err != nil {
			return err
		}
		switch b.kind {
		case "avcC":
			config, err := b.content(r, maxField)
			if err != nil {
				return err
			}
			t.Config = string(config)
		case "mdcv", "clli", "SmDm", "CoLL", "dvcC", "dvvC":
			t.lightAt = append(t.lightAt, b.at+4)
		}
	}
	return nil
}

func (t *Track) readDurations(r io.ReaderAt, stts box) error {
	table, err := stts.content(r, maxTable)
	if err != nil {
		return err
	}
	n := int64(number(table, 4))
	if int64(len(table)) < 8+8*n {
		return fmt.Errorf("%w: stts of %d entries in %d bytes", ErrDamaged, n, len(table))
	}
	for entry := range slices.Chunk(table[8:8+8*n], 8) {
		t.Ticks += int64(number(entry, 0)) * int64(number(entry, 4))
	}
	t.Uniform = n <= 1
	return nil
}

// Neutral reports whether a player shows the frames unchanged, neither rotated nor as HDR.
func (t Track) Neutral() bool { return t.upright && len(t.lightAt) == 0 }

// Neutralize removes metadata of the source from an mp4. ffmpeg copies the display matrix and the light levels of an
// HDR master to the output although filters have already rotated and tone-mapped the frames.
func Neutralize(path string) error {
	m, err := ReadMovie(path)
	if err != nil {
		return err
	}
	t := m.Video
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
