// Detects the kind of a file by its first bytes. Only a detected kind is opened, so text such as a playlist never
// reaches a demuxer.

package container

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"slices"
)

// Class is what a file is, by its content.
type Class struct {
	Kind Kind

	// What the file claims to be, although the rest may be damaged. Much weaker evidence than Kind: any data may begin
	// like this by coincidence.
	Brand  string // major brand of a mov-family file that has one: "isom", "M4A ", ...
	Tagged bool   // begins with an ID3 tag
	Synced bool   // begins with a sync word of MPEG audio layer III, and no stream follows
}

// SniffFile is Sniff for a file.
func SniffFile(path string) (Class, error) {
	f, err := os.Open(path)
	if err != nil {
		return Class{}, fmt.Errorf("sniff: %w", err)
	}
	defer f.Close()
	c, err := Sniff(f)
	if err != nil {
		return Class{}, fmt.Errorf("sniff: %w", err)
	}
	return c, nil
}

// Sniff detects the kind of a file. No other code does; callers pass the Kind on. Text, scripts, playlists, images and
// empty files are Unknown without an error. An error means that reading failed.
func Sniff(r io.ReaderAt) (Class, error) {
	head, err := readAt(r, 0, magicBytes)
	if err != nil {
		return Class{}, err
	}
	if k := magicKind(head); k != Unknown {
		return Class{Kind: k}, nil
	}
	if ok, err := isMov(r, head); ok || err != nil {
		c := Class{Kind: MP4}
		if string(head[4:8]) == "ftyp" {
			c.Brand = string(head[8:12])
		}
		return c, err
	}
	if isForeign(head) {
		return Class{}, nil
	}
	c := Class{Tagged: tagBytes(head) > 0 && head[0] == 'I'}
	at, err := skipTags(r)
	if err != nil {
		return Class{}, err
	}
	window, err := readAt(r, at, HeadBytes)
	if err != nil {
		return Class{}, err
	}
	if bytes.HasPrefix(bytes.TrimLeft(window, "\x00"), []byte("fLaC")) {
		return Class{Kind: FLAC}, nil
	}
	c.Kind, _ = firstFrame(window)
	c.Synced = c.Kind == Unknown && isSync(head)
	return c, nil
}

// HeadBytes is how much of a file without leading tags is enough to sniff it.
const HeadBytes = frameWindow + maxChain*maxFrameBytes

// magicBytes is how much of a file's head contains every magic number.
const magicBytes = 1 << 10

// magicKind detects containers by their first bytes.
func magicKind(head []byte) Kind {
	switch {
	case len(head) < 12:
		return Unknown
	case bytes.HasPrefix(head, []byte{0x1A, 0x45, 0xDF, 0xA3}):
		return Matroska
	case beginsWithAny(head, "RIFF", "RF64") && string(head[8:12]) == "WAVE":
		return WAV
	case bytes.HasPrefix(head, []byte("fLaC")):
		return FLAC
	case bytes.HasPrefix(head, []byte("OggS\x00")):
		return Ogg
	}
	return Unknown
}

// topBoxes are the top-level boxes of mov-family files.
var topBoxes = map[string]bool{
	"ftyp": true, "styp": true, "moov": true, "mdat": true, "moof": true, "sidx": true, "uuid": true,
	"free": true, "skip": true, "wide": true, "pnot": true, "PICT": true, "udta": true, "meta": true,
}

// imageBrands are the major brands of images (HEIF, AVIF) and of their sequences.
var imageBrands = map[string]bool{
	"mif1": true, "msf1": true, "miaf": true, "avif": true, "avis": true, "heic": true, "heix": true, "heim": true,
	"heis": true, "hevc": true, "hevx": true, "hevm": true, "hevs": true,
}

// isMov detects the mov family by `ftyp` (or `styp` of a fragment) with a brand other than an image's. Files older than
// brands begin with other boxes that cameras and QuickTime write first. Their names are also words ("All free music"),
// so such a box must contain, or precede, another box.
func isMov(r io.ReaderAt, head []byte) (bool, error) {
	if len(head) < 16 {
		return false, nil
	}
	first, damaged := parseBox(head, 0, unlimited)
	switch first.kind {
	case "ftyp", "styp":
		size := binary.BigEndian.Uint32(head)
		return size >= 12 && size <= 4096 && !imageBrands[string(head[8:12])], nil
	case "moov": // may be truncated after it, but is still worth trying
		switch string(head[12:16]) {
		case "mvhd", "cmov", "iods", "trak", "udta", "meta", "free", "prfl", "clip":
			return true, nil
		}
		return false, nil
	case "mdat", "free", "skip", "wide", "pnot":
	default:
		return false, nil
	}
	if damaged != nil || first.end == unlimited {
		return false, nil // it reaches to the end of the file: there is no index
	}
	following, err := readAt(r, first.end, 8)
	if err != nil {
		return false, err
	}
	return len(following) == 8 && topBoxes[string(following[4:])], nil
}

// foreignMagic lists the first bytes of files that the service does not open but that may contain frames of MPEG audio.
var foreignMagic = []string{
	"RIFF", "RIFX", "FORM", "caff", "FLV", "\x00\x00\x01\xba", "\x00\x00\x01\xb3", "\x30\x26\xb2\x75", ".RMF", "#!AMR",
	"PK\x03\x04", "Rar!", "7z\xbc\xaf", "%PDF", "\x89PNG", "GIF8", "\xff\xd8\xff", "\x7fELF", "#EXT", "ffconcat",
}

// isForeign reports whether a file is known to be something else, so that it is not searched for frames.
func isForeign(head []byte) bool {
	if beginsWithAny(head, foreignMagic...) || len(head) >= 8 && topBoxes[string(head[4:8])] {
		return true
	}
	// Transport streams have packets of 188 bytes, or of 192 with a time before each.
	for at, step := range map[int]int{0: 188, 4: 192} {
		if len(head) > at+2*step && head[at] == 0x47 && head[at+step] == 0x47 && head[at+2*step] == 0x47 {
			return true
		}
	}
	return false
}

func beginsWithAny(b []byte, prefixes ...string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return bytes.HasPrefix(b, []byte(p)) })
}
