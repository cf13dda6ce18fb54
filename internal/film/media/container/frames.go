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
	"slices"
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

// firstFrame finds frames of MPEG audio layer III or ADTS, and returns their kind. A single sync word occurs in any
// data, so consecutive frames must agree: two if only zeros precede them, otherwise four, or fewer if the file
// ends.
func firstFrame(window []byte) Kind {
	padding := len(window) - len(bytes.TrimLeft(window, "\x00"))
	for at := 0; at < min(len(window), frameWindow); at++ {
		i := bytes.IndexByte(window[at:], 0xff)
		if i < 0 || at+i >= frameWindow {
			break
		}
		at += i
		for kind, parse := range parsers {
			if chained(window[at:], parse, at == padding) {
				return kind
			}
		}
	}
	return Unknown
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

// agree reports whether two frames can belong to one stream: they have the same version,
// layer, sample rate and mono flag.
func agree(a, b []byte) bool {
	return a[1] == b[1] && a[2]&0x0c == b[2]&0x0c && (a[3]>>6 == 3) == (b[3]>>6 == 3)
}

// isTrailer reports whether b begins with a tag that ends a file.
func isTrailer(b []byte) bool {
	return beginsWithAny(b, "TAG", "APETAGEX", "LYRICSBEGIN", "ID3")
}

// tagBytes returns the length of the tag at the start of b, or 0. Text that begins with
// the letters ID3 has no valid version and size after them.
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

// FramesDuration adds up the durations of a file's bare frames and skips anything between them. Use it for
// files that ffprobe cannot read. For a kind without bare frames it returns 0.
func FramesDuration(path string, kind Kind) (total time.Duration, err error) {
	err = walkFrames(path, kind, func(_ []byte, lasts time.Duration) bool {
		total += lasts
		return true
	})
	return total, err
}

// FramesDiffer reports whether a file's bare frames differ in their sample rate or their channels, as they do in files
// that were joined. It is false for a kind without bare frames.
func FramesDiffer(path string, kind Kind) (differ bool, err error) {
	var first []byte
	err = walkFrames(path, kind, func(frame []byte, _ time.Duration) bool {
		if first == nil {
			first = slices.Clone(frame[:adtsHeader])
		}
		differ = !agree(first, frame) || kind == AAC && first[2]<<7|first[3]>>6 != frame[2]<<7|frame[3]>>6
		return !differ
	})
	return differ, err
}

// walkFrames calls do with each of a file's bare frames, until do returns false.
func walkFrames(path string, kind Kind, do func(frame []byte, lasts time.Duration) bool) error {
	parse := parsers[kind]
	if parse == nil {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("walk frames: %w", err)
	}
	defer f.Close()
	r := bufio.NewReaderSize(f, 64<<10)
	for {
		head, err := r.Peek(maxFrameBytes + adtsHeader)
		if len(head) == 0 && err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("walk frames: %w", err)
		}
		step, lasts := parse(head)
		if step > 0 && len(head) >= adtsHeader && chained(head, parse, true) {
			if !do(head, lasts) {
				return nil
			}
			step = min(step, len(head))
		} else if step = bytes.IndexByte(head[1:], 0xff) + 1; step == 0 {
			step = len(head)
		}
		if _, err := r.Discard(step); err != nil {
			return fmt.Errorf("walk frames: %w", err)
		}
	}
}

// mpegVersions has the samples of a frame, the sample rates and the bit rates of layer III, by the version's number in a
// frame's header.
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
