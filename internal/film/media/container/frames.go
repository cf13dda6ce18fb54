// MPEG audio and ADTS without a container: finds the first frame after tags, adds up durations, and notices frames that
// differ because files were joined.

package container

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// Formats of bare frames have no magic bytes. The first frame follows tags and padding, or the remainder of a
// truncated frame.
const (
	frameWindow   = 128 << 10 // the first frame begins within it, not counting tags
	maxFrameBytes = 8191      // of MPEG audio and ADTS
	maxChain      = 4         // frames that must agree if other data precedes them
	adtsHeader    = 7         // bytes, the longer of the two headers
)

// firstFrame finds frames of MPEG audio layer III or ADTS, and returns their kind and where they begin. A single sync
// word occurs in any data, so consecutive frames must agree: two if only zeros precede them, otherwise four, or fewer
// if the file ends.
func firstFrame(window []byte) (kind Kind, at int) {
	padding := len(window) - len(bytes.TrimLeft(window, "\x00"))
	for ; at < min(len(window), frameWindow); at++ {
		i := bytes.IndexByte(window[at:], 0xff)
		if i < 0 || at+i >= frameWindow {
			break
		}
		at += i
		for kind, parse := range parsers {
			if chained(window[at:], parse, at == padding) {
				return kind, at
			}
		}
	}
	return Unknown, 0
}

// Lead returns how many bytes of a file precede its first frame, if anything but tags does: garbage, padding, or the
// rest of a frame. Readers that look for a sync word in them would find false frames. It is 0 for a kind without bare
// frames.
func Lead(path string, kind Kind) (int64, error) {
	if parsers[kind] == nil {
		return 0, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return 0, fmt.Errorf("find first frame: %w", err)
	}
	defer f.Close()
	tags, err := skipTags(f)
	if err != nil {
		return 0, err
	}
	window, err := readAt(f, tags, HeadBytes)
	if err != nil {
		return 0, err
	}
	if _, at := firstFrame(window); at > 0 {
		return tags + int64(at), nil
	}
	return 0, nil
}

// parser returns how many bytes the frame at the start of b has and how long it lasts, by its header. Both are 0 if
// b begins with no frame.
type parser func(b []byte) (size int, lasts time.Duration)

var parsers = map[Kind]parser{MP3: mp3Frame, AAC: adtsFrame}

// chained reports whether b begins with a stream of frames. first means that only padding precedes them.
func chained(b []byte, parse parser, first bool) bool {
	for n := 1; ; n++ {
		size, _ := parse(b)
		switch {
		case size == 0:
			return false
		case n == maxChain || n == 2 && first:
			return true
		case size > len(b):
			return n > 1
		case size+adtsHeader > len(b): // the file ends here and may contain a single frame
			return n > 1 || first
		case isTrailer(b[size:]):
			return n > 1
		case !agree(b, b[size:]):
			return false
		}
		b = b[size:]
	}
}

// agree reports whether two frames can belong to one stream: they have the same version, layer, sample rate and mono
// flag.
func agree(a, b []byte) bool {
	return a[1] == b[1] && a[2]&0x0c == b[2]&0x0c && (a[3]>>6 == 3) == (b[3]>>6 == 3)
}

// ends reports whether a frame that follows another may end before b: at the end of the file, a tag, or a frame of any
// kind, which begins another joined file.
func ends(b []byte, parse parser) bool {
	size, _ := parse(b)
	return size > 0 || len(b) < adtsHeader || isTrailer(b)
}

// isTagFrame reports whether a frame of MPEG audio contains its encoder's tag instead of sound.
func isTagFrame(frame []byte) bool {
	sideInfo := 32 // bytes, after a header of 4
	switch mono, low := frame[3]>>6 == 3, frame[1]>>3&3 != 3; {
	case mono && low:
		sideInfo = 9
	case mono || low:
		sideInfo = 17
	}
	return len(frame) >= 40 && (beginsWithAny(frame[4+sideInfo:], "Xing", "Info") || beginsWithAny(frame[36:], "VBRI"))
}

// isTrailer reports whether b begins with a tag that ends a file.
func isTrailer(b []byte) bool {
	return beginsWithAny(b, "TAG", "APETAGEX", "LYRICSBEGIN", "ID3")
}

// tagBytes returns the length of the tag at the start of b, or 0. Text that begins with the letters ID3 has no valid
// version and size after them.
func tagBytes(b []byte) int64 {
	switch {
	case len(b) >= 10 && bytes.HasPrefix(b, []byte("ID3")) && b[3] >= 2 && b[3] <= 4 && b[4] < 0xff && (b[6]|b[7]|b[8]|b[9])&0x80 == 0:
		n := 10 + int64(b[6])<<21 + int64(b[7])<<14 + int64(b[8])<<7 + int64(b[9])
		if b[5]&0x10 != 0 {
			n += 10 // the tag has a footer
		}
		return n
	case len(b) >= 32 && bytes.HasPrefix(b, []byte("APETAGEX")):
		return 32 + int64(binary.LittleEndian.Uint32(b[12:]))
	}
	return 0
}

// skipTags returns the offset of the content after the leading tags.
func skipTags(r io.ReaderAt) (at int64, err error) {
	for range 8 {
		head, err := readAt(r, at, 32)
		if err != nil {
			return 0, err
		}
		n := tagBytes(head)
		if n == 0 {
			break
		}
		at += n
	}
	return at, nil
}

// isSync reports whether b begins with the sync word of MPEG audio layer III.
func isSync(b []byte) bool {
	return len(b) >= 4 && b[0] == 0xff && b[1]&0xe0 == 0xe0 && b[1]>>3&3 != 1 && b[1]>>1&3 == 1
}

// Frames sums up a file's bare frames, whatever lies between them. It is zero for a kind without bare frames.
type Frames struct {
	Duration time.Duration // without the tag of an encoder at the start of an mp3
	// Joined is set if the rate or the channels change, or if a tag or anything else lies between frames, as in files
	// that were joined.
	Joined bool
	// Around adds up the length of a frame for each place where a frame does not directly follow one of its kind. A
	// decoder may lose or repeat a frame there.
	Around time.Duration
}

// ReadFrames reads all frames of a file. Use it also for files that ffprobe cannot read.
func ReadFrames(path string, kind Kind) (f Frames, err error) {
	var previous []byte
	var lasted time.Duration
	err = walkFrames(path, kind, func(frame []byte, follows bool, lasts time.Duration) {
		tag := kind == MP3 && isTagFrame(frame)
		differs := previous != nil && (tag || !agree(previous, frame) ||
			kind == AAC && previous[2]<<7|previous[3]>>6 != frame[2]<<7|frame[3]>>6)
		if differs || previous != nil && !follows {
			f.Joined = true
			f.Around += max(lasted, lasts)
		}
		if previous != nil || !tag {
			f.Duration += lasts
		}
		previous, lasted = append(previous[:0], frame[:adtsHeader]...), lasts
	})
	return f, err
}

// walkFrames calls do with each of a file's bare frames, and with whether it directly follows another.
func walkFrames(path string, kind Kind, do func(frame []byte, follows bool, lasts time.Duration)) error {
	parse := parsers[kind]
	if parse == nil {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("walk frames: %w", err)
	}
	defer f.Close()
	lead, err := Lead(path, kind)
	if err != nil {
		return err
	}
	if _, err := f.Seek(lead, io.SeekStart); err != nil {
		return fmt.Errorf("walk frames: %w", err)
	}
	r := bufio.NewReaderSize(f, 64<<10)
	follows := false
	for {
		head, err := r.Peek(maxFrameBytes + adtsHeader)
		if len(head) == 0 && err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("walk frames: %w", err)
		}
		step, lasts := parse(head)
		if step > 0 && len(head) >= adtsHeader && (chained(head, parse, true) || follows && ends(head[min(step, len(head)):], parse)) {
			do(head, follows, lasts)
			step, follows = min(step, len(head)), true
		} else {
			follows = false
			if step = bytes.IndexByte(head[1:], 0xff) + 1; step == 0 {
				step = len(head)
			}
		}
		if _, err := r.Discard(step); err != nil {
			return fmt.Errorf("walk frames: %w", err)
		}
	}
}

// mpegVersions lists the samples per frame, the sample rates and the bit rates of layer III, indexed by the version
// number in a frame's header.
var mpegVersions = [4]struct {
	samples int
	rates   [3]int  // Hz
	kbits   [15]int // per second
}{
	0: {576, [3]int{11025, 12000, 8000}, lowKbits},  // MPEG 2.5
	2: {576, [3]int{22050, 24000, 16000}, lowKbits}, // MPEG 2
	3: {1152, [3]int{44100, 48000, 32000}, [15]int{0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320}},
}

var lowKbits = [15]int{0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160}

// mp3Frame parses a frame of MPEG audio layer III.
func mp3Frame(b []byte) (size int, lasts time.Duration) {
	if !isSync(b) {
		return 0, 0
	}
	version, bitrate, rate, padding := mpegVersions[b[1]>>3&3], b[2]>>4, b[2]>>2&3, int(b[2]>>1&1)
	if bitrate == 0 || bitrate == 15 || rate == 3 {
		return 0, 0
	}
	hz := version.rates[rate]
	return version.samples*125*version.kbits[bitrate]/hz + padding, time.Duration(version.samples) * time.Second / time.Duration(hz)
}

// adtsFrame parses an ADTS frame.
func adtsFrame(b []byte) (size int, lasts time.Duration) {
	rates := [13]int{96000, 88200, 64000, 48000, 44100, 32000, 24000, 22050, 16000, 12000, 11025, 8000, 7350}
	if len(b) < adtsHeader || b[0] != 0xff || b[1]&0xf6 != 0xf0 || int(b[2]>>2&0xf) >= len(rates) {
		return 0, 0
	}
	if size = int(b[3]&3)<<11 | int(b[4])<<3 | int(b[5]>>5); size < adtsHeader {
		return 0, 0
	}
	return size, 1024 * time.Second / time.Duration(rates[b[2]>>2&0xf])
}
