// Facts in the index of a mov-family file that ffprobe does not report: several sample descriptions, mixed codecs,
// fragments. It searches for the names of boxes, because the file may be damaged.

package container

import (
	"bytes"
	"encoding/binary"
	"errors"
)

// Index is what the index of a mov-family file declares, as far as the index is present. It provides facts that
// ffprobe does not report, and describes files that ffprobe cannot open. Nothing in it is checked against the
// media.
type Index struct {
	Encrypted bool // a protection scheme is declared

	Media     bool // the top level has a box with media or an index
	Video     bool // a video track is declared
	DolbyAV1  bool // a track has Dolby Vision in AV1 under a name that only newer versions of ffmpeg know
	Continued bool // fragments may follow an index that has samples itself
	// MixedVideo is set if ffmpeg would decode samples of a video track with the description of other samples: the
	// samples have several codecs, or fragments do not use the track's first description. MixedSound is the same for
	// sound.
	MixedVideo, MixedSound bool
	// EditedVideo is set if the edit list of a video track pauses between two stretches of the media, or plays one at
	// another speed. ffmpeg does neither, so it would show something else. EditedSound is the same for sound.
	EditedVideo, EditedSound bool
	// RestartedVideo is set if the times of a video track's fragments start over, as those of several recordings do.
	// ffmpeg sorts the fragments by time and drops some. RestartedSound is the same for sound.
	RestartedVideo, RestartedSound bool
}

const (
	// maxIndexBytes is how much of an index is read. Videos of several hours have smaller indexes. A larger index
	// counts as one with video, because the unread part may declare anything.
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
	seen, described := 0, false
	for b, err := range boxes(f, 0, size) {
		if err != nil && !errors.Is(err, ErrDamaged) {
			return x, err
		}
		switch b.kind {
		case "mdat":
			x.Media = true
		case "moof":
			x.Media = true
		case "moov":
			x.Media = true
			content, err := b.content(f, maxIndexBytes+1)
			if err != nil {
				return x, err
			}
			described = x.read(content) || described
		}
		if seen++; seen == maxTopBoxes {
			break
		}
	}
	return x, x.readTables(path, described)
}

// readTables finds tracks that ffmpeg shows differently from what their tables say, because of their edit list or their
// fragments: these start over, or do not use the first of several different descriptions.
func (x *Index) readTables(path string, described bool) error {
	tables, err := ReadTables(path)
	if errors.Is(err, ErrTooManyBoxes) {
		return nil
	}
	for _, t := range tables.Tracks {
		x.MixedVideo = x.MixedVideo || described && t.redescribed && t.pictures
		x.MixedSound = x.MixedSound || described && t.redescribed && t.Sound
		x.EditedVideo = x.EditedVideo || t.edited && t.pictures
		x.EditedSound = x.EditedSound || t.edited && t.Sound
		x.RestartedVideo = x.RestartedVideo || t.restarted && t.pictures
		x.RestartedSound = x.RestartedSound || t.restarted && t.Sound
	}
	return err
}

// read reports whether a track has several different sample descriptions. It searches for the names of boxes, because a
// damaged index may state wrong sizes for the enclosing boxes. A handler box contains its name, version and flags, four
// reserved bytes and the type. A protection scheme contains its name, version and flags and the scheme.
func (x *Index) read(index []byte) (described bool) {
	x.Video = x.Video || len(index) > maxIndexBytes
	eachNamed(index, "hdlr", func(b []byte) { x.Video = x.Video || string(b[8:12]) == "vide" })
	tracks := 0
	eachNamed(index, "stsd", func(b []byte) {
		if tracks++; tracks <= maxNamedTracks {
			several, mixed := descriptions(b)
			described, x.MixedVideo = described || several, x.MixedVideo || mixed
		}
	})
	eachNamed(index, "dav1", func([]byte) { x.DolbyAV1 = true })
	if bytes.Contains(index, []byte("trex")) { // the fragments' defaults
		eachNamed(index, "stsz", func(b []byte) { x.Continued = x.Continued || binary.BigEndian.Uint32(b[8:]) > 0 })
	}
	eachNamed(index, "schm", func(b []byte) {
		switch string(b[4:8]) {
		case "cenc", "cens", "cbc1", "cbcs", "piff", "itun", "odkm", "adkm":
			x.Encrypted = true
		}
	})
	return described
}

// videoCodecs names the codec of the sample entries that phones and cameras write.
var videoCodecs = map[string]string{
	"avc1": "avc", "avc2": "avc", "avc3": "avc", "avc4": "avc", "dva1": "avc", "dvav": "avc", "hvc1": "hevc", "hev1": "hevc",
	"dvh1": "hevc", "dvhe": "hevc", "av01": "av1", "dav1": "av1", "vp09": "vp9", "vp08": "vp8", "mp4v": "mpeg4",
}

// Limits on the sample entries that are read. Real tracks have one.
const (
	maxEntries     = 16
	maxNamedTracks = 32
)

// descriptions reports whether a track has several different sample entries, and whether its samples use entries of
// several video codecs. index starts at the content of the sample entries; the table that says which samples use which
// entry follows.
func descriptions(index []byte) (several, mixed bool) {
	number := func(b []byte, at int) int { return int(binary.BigEndian.Uint32(b[at:])) }
	var codecs []string // of the entries
	var first []byte
	for at := 8; len(codecs) < min(number(index, 4), maxEntries) && len(index) >= at+8; {
		codecs = append(codecs, videoCodecs[string(index[at+4:at+8])])
		size := number(index, at)
		if size < 8 || size > len(index)-at {
			break
		}
		entry := index[at : at+size]
		if first == nil {
			first = entry
		}
		several = several || !bytes.Equal(first, entry)
		at += size
	}
	if len(codecs) < 2 || codecs[0] == "" {
		return several, false
	}
	used := map[string]bool{}
	if i := bytes.Index(index, []byte("stsc")); i >= 0 {
		table := index[i+4:]
		for at := 8; at+12 <= len(table) && at < 8+12*number(table, 4); at += 12 {
			if entry := number(table, at+8); entry >= 1 && entry <= len(codecs) {
				used[codecs[entry-1]] = true
			}
		}
	}
	return several, len(used) > 1
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
