package media

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

// Kind is the container family of a file, as told by its magic bytes.
type Kind int

// The families the service opens. Anything else is KindUnknown and is never
// handed to ffmpeg.
const (
	KindUnknown  Kind = iota
	KindMP4           // the mov family: mp4, m4a, m4v, mov, 3gp
	KindMatroska      // mkv and webm
	KindWAV           // RIFF and RF64
	KindMP3           // MPEG audio layer III, with or without ID3
	KindAAC           // raw ADTS
	KindFLAC
	KindOgg
)

// demuxers names the one demuxer ffmpeg may use for each kind.
var demuxers = map[Kind]string{
	KindMP4: "mov", KindMatroska: "matroska", KindWAV: "wav", KindMP3: "mp3",
	KindAAC: "aac", KindFLAC: "flac", KindOgg: "ogg",
}

// String is the demuxer's name, or "unknown".
func (k Kind) String() string {
	if name, ok := demuxers[k]; ok {
		return name
	}
	return "unknown"
}

// InputArgs returns the arguments, `-i` included, that open path as kind and
// as nothing else. Every input that came from outside must be opened through
// them; options for the same input (-ss, -t) go before. An unknown kind yields
// a whitelist that matches no demuxer, so ffmpeg refuses the file.
//
// A path without a scheme is prefixed with `file:`, so that no name is read as
// a protocol or an option. `pipe:0` passes as it is.
func InputArgs(kind Kind, path string) []string {
	return append(openArgs(kind, path), "-i", inputURL(path))
}

// openArgs are the restrictions of InputArgs without the input itself, as
// ffprobe takes them too.
func openArgs(kind Kind, path string) []string {
	protocol := "file"
	if path == stdinURL {
		protocol = "pipe"
	}
	name, known := demuxers[kind]
	if !known {
		return []string{"-protocol_whitelist", protocol, "-format_whitelist", "none"}
	}
	return []string{"-protocol_whitelist", protocol, "-format_whitelist", name, "-f", name}
}

const stdinURL = "pipe:0"

func inputURL(path string) string {
	if path == stdinURL {
		return path
	}
	return "file:" + path
}

// MayHoldVideo reports whether files of the family can have pictures.
func (k Kind) MayHoldVideo() bool { return k == KindMP4 || k == KindMatroska }

// sniffBytes is how much of a file's head decides its kind; the longest MPEG
// audio or ADTS frame is 8191 bytes, and two headers must be seen.
const sniffBytes = 16 << 10

// Sniff tells a file's container family from its magic bytes. Text, scripts,
// playlists, images and empty files are KindUnknown without an error; the error
// is about reading the file.
func Sniff(path string) (Kind, error) {
	f, err := os.Open(path)
	if err != nil {
		return KindUnknown, fmt.Errorf("sniff: %w", err)
	}
	defer f.Close()
	return SniffReader(f)
}

// SniffReader is Sniff on anything that can be read at an offset.
func SniffReader(r io.ReaderAt) (Kind, error) {
	head, err := readAt(r, 0, sniffBytes)
	if err != nil {
		return KindUnknown, fmt.Errorf("sniff: %w", err)
	}
	if k := sniffMagic(head); k != KindUnknown {
		return k, nil
	}
	if k, err := sniffMov(r, head); k != KindUnknown || err != nil {
		return k, err
	}
	if len(head) < 10 || !bytes.HasPrefix(head, []byte("ID3")) {
		return sniffFrames(head), nil
	}
	return sniffAfterID3(r, head)
}

// Claims tells what a file whose content may be damaged sets out to be, from
// its first bytes alone: KindMP4 for the mov family under an audio brand,
// KindMP3 for an ID3 tag or a lone sync word of MPEG audio layer III. It is far
// weaker than Sniff, which has the last word on what is opened; where Sniff
// knows the file to be something else, that is what it is.
func Claims(path string) (Kind, error) {
	f, err := os.Open(path)
	if err != nil {
		return KindUnknown, fmt.Errorf("sniff: %w", err)
	}
	defer f.Close()
	head, err := readAt(f, 0, 12)
	if err != nil {
		return KindUnknown, fmt.Errorf("sniff: %w", err)
	}
	claimed := claims(head)
	if claimed == KindUnknown {
		return KindUnknown, nil
	}
	if real, err := SniffReader(f); err != nil || real != KindUnknown && real != claimed {
		return KindUnknown, err
	}
	return claimed, nil
}

func claims(head []byte) Kind {
	switch {
	case len(head) == 12 && (string(head[4:]) == "ftypM4A " || string(head[4:]) == "ftypM4B "):
		return KindMP4
	case isID3(head), isSync(head):
		return KindMP3
	}
	return KindUnknown
}

// isID3 reports whether b begins with the header of an ID3v2 tag. Text that
// begins with the same letters has no such version and no such size.
func isID3(b []byte) bool {
	return len(b) >= 10 && bytes.HasPrefix(b, []byte("ID3")) && b[3] >= 2 && b[3] <= 4 && b[4] < 0xff &&
		(b[6]|b[7]|b[8]|b[9])&0x80 == 0
}

// isSync reports whether b begins with the sync word of MPEG audio layer III.
func isSync(b []byte) bool {
	return len(b) >= 4 && b[0] == 0xff && b[1]&0xe0 == 0xe0 && b[1]>>3&3 != 1 && b[1]>>1&3 == 1
}

// sniffMagic knows the containers that name themselves in their first bytes.
func sniffMagic(head []byte) Kind {
	switch {
	case len(head) < 12:
		return KindUnknown
	case bytes.HasPrefix(head, []byte{0x1A, 0x45, 0xDF, 0xA3}):
		return KindMatroska
	case (bytes.HasPrefix(head, []byte("RIFF")) || bytes.HasPrefix(head, []byte("RF64"))) && string(head[8:12]) == "WAVE":
		return KindWAV
	case bytes.HasPrefix(head, []byte("fLaC")):
		return KindFLAC
	case bytes.HasPrefix(head, []byte("OggS\x00")):
		return KindOgg
	}
	return KindUnknown
}

// topBoxes are the boxes a mov-family file consists of.
var topBoxes = map[string]bool{
	"ftyp": true, "styp": true, "moov": true, "mdat": true, "moof": true, "sidx": true, "uuid": true,
	"free": true, "skip": true, "wide": true, "pnot": true, "PICT": true, "udta": true, "meta": true,
}

// sniffMov recognises the mov family: `ftyp` (or `styp` of a fragment) of any
// brand, or, in files older than brands, the boxes cameras and QuickTime put
// first. Those four letters are also words ("All free music"), so an old-style
// box must hold, or be followed by, another box.
func sniffMov(r io.ReaderAt, head []byte) (Kind, error) {
	if len(head) < 16 {
		return KindUnknown, nil
	}
	size := int64(binary.BigEndian.Uint32(head))
	next := size
	switch string(head[4:8]) {
	case "ftyp", "styp":
		if size >= 12 && size <= 4096 {
			return KindMP4, nil
		}
		return KindUnknown, nil
	case "moov": // may be cut off behind, and is worth trying even so
		switch string(head[12:16]) {
		case "mvhd", "cmov", "iods", "trak", "udta", "meta", "free", "prfl", "clip":
			return KindMP4, nil
		}
		return KindUnknown, nil
	case "mdat", "free", "skip", "wide", "pnot":
		if size == 1 {
			next = int64(binary.BigEndian.Uint64(head[8:]) & (1<<63 - 1))
		}
	default:
		return KindUnknown, nil
	}
	if next < 8 {
		return KindUnknown, nil // to the end of the file: there is no index
	}
	following, err := readAt(r, next, 8)
	if err != nil {
		return KindUnknown, fmt.Errorf("sniff: %w", err)
	}
	if len(following) == 8 && topBoxes[string(following[4:])] {
		return KindMP4, nil
	}
	return KindUnknown, nil
}

// sniffAfterID3 skips one or more ID3v2 tags and the padding some writers leave
// behind them, and looks at what the tag belongs to.
func sniffAfterID3(r io.ReaderAt, head []byte) (Kind, error) {
	var off int64
	for range 8 {
		if len(head) < 10 || !bytes.HasPrefix(head, []byte("ID3")) {
			break
		}
		size := int64(head[6]&0x7f)<<21 | int64(head[7]&0x7f)<<14 | int64(head[8]&0x7f)<<7 | int64(head[9]&0x7f)
		off += 10 + size
		if head[5]&0x10 != 0 {
			off += 10 // the tag has a footer
		}
		var err error
		if head, err = readAt(r, off, sniffBytes); err != nil {
			return KindUnknown, fmt.Errorf("sniff behind ID3: %w", err)
		}
	}
	head = bytes.TrimLeft(head, "\x00")
	if bytes.HasPrefix(head, []byte("fLaC")) {
		return KindFLAC, nil
	}
	return sniffFrames(head), nil
}

// sniffFrames recognises formats that are a bare run of frames. Two frames in a
// row must agree (or the file must end exactly behind the first), because a
// lone sync word occurs in any data.
func sniffFrames(head []byte) Kind {
	if n := mp3Frame(head); n > 0 && followed(head, n, mp3Frame) {
		return KindMP3
	}
	if n := adtsFrame(head); n > 0 && followed(head, n, adtsFrame) {
		return KindAAC
	}
	return KindUnknown
}

func followed(head []byte, n int, frame func([]byte) int) bool {
	if n == len(head) {
		return true
	}
	if n > len(head) || frame(head[n:]) == 0 {
		return false
	}
	// Version, layer and sample rate are the same in every frame of a stream.
	return head[1] == head[n+1] && head[2]&0x0c == head[n+2]&0x0c
}

// mp3Frame returns the length of the MPEG audio layer III frame b starts with,
// or 0.
func mp3Frame(b []byte) int {
	if len(b) < 4 || b[0] != 0xff || b[1]&0xe0 != 0xe0 {
		return 0
	}
	version, layer := b[1]>>3&3, b[1]>>1&3
	bitrate, rate, pad := int(b[2]>>4), int(b[2]>>2&3), int(b[2]>>1&1)
	if version == 1 || layer != 1 || bitrate == 0 || bitrate == 15 || rate == 3 {
		return 0
	}
	rates := [3]int{44100, 48000, 32000}
	if version == 3 {
		kbit := [15]int{0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320}
		return 144000*kbit[bitrate]/rates[rate] + pad
	}
	kbit := [15]int{0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160}
	hz := rates[rate] / 2
	if version == 0 {
		hz = rates[rate] / 4 // MPEG 2.5
	}
	return 72000*kbit[bitrate]/hz + pad
}

// adtsFrame returns the length of the ADTS frame b starts with, or 0.
func adtsFrame(b []byte) int {
	if len(b) < 7 || b[0] != 0xff || b[1]&0xf6 != 0xf0 || b[2]>>2&0xf > 12 {
		return 0
	}
	n := int(b[3]&3)<<11 | int(b[4])<<3 | int(b[5]>>5)
	if n < 7 {
		return 0
	}
	return n
}

// readAt reads up to n bytes; a file that ends earlier is no error.
func readAt(r io.ReaderAt, off int64, n int) ([]byte, error) {
	b := make([]byte, n)
	m, err := r.ReadAt(b, off)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return b[:m], nil
}
