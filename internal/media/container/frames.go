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
	frameWindow   = 64 << 10 // the first frame begins within it, not counting tags
	maxFrameBytes = 8191     // of MPEG audio and ADTS
	maxChain      = 4        // frames that must agree if other data precedes them
	adtsHeader    = 7        // bytes, the longer of the two headers
)

// firstFrame finds where the frames of MPEG audio layer III or ADTS begin. A single sync word occurs in any
// data, so consecutive frames must agree: two if only zeros precede them, otherwise four, or fewer if the file
// ends.
func firstFrame(window []byte) (at int, kind Kind) {
	padding := len(window) - len(bytes.TrimLeft(window, "\x00"))
	for at < min(len(window), frameWindow) {
		i := bytes.IndexByte(window[at:], 0xff)
		if i < 0 || at+i >= frameWindow {
			break
		}
		at += i
		for kind, length := range frameLengths {
			if chained(window[at:], length, at == padding) {
				return at, kind
			}
		}
		at++
	}
	return 0, Unknown
}

// frameLengths maps each kind to the function that returns a frame's length from its header, 0 if it is not a
// frame.
var frameLengths = map[Kind]func([]byte) int{MP3: mp3Frame, AAC: adtsFrame}

// chained reports whether b begins with a stream of frames. first means that only padding precedes them.
func chained(b []byte, length func([]byte) int, first bool) bool {
	for n := 1; ; n++ {
		size := length(b)
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
	for _, tag := range []string{"TAG", "APETAGEX", "LYRICSBEGIN", "ID3"} {
		if bytes.HasPrefix(b, []byte(tag)) {
			return true
		}
	}
	return false
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
func FramesDuration(path string, kind Kind) (time.Duration, error) {
	length := frameLengths[kind]
	if length == nil {
		return 0, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return 0, fmt.Errorf("walk frames: %w", err)
	}
	defer f.Close()
	r := bufio.NewReaderSize(f, 64<<10)
	var total time.Duration
	for {
		head, err := r.Peek(maxFrameBytes + adtsHeader)
		if len(head) == 0 && err != nil {
			if errors.Is(err, io.EOF) {
				return total, nil
			}
			return 0, fmt.Errorf("walk frames: %w", err)
		}
		step := length(head)
		if step > 0 && chained(head, length, true) {
			total += frameDuration(head, kind)
			step = min(step, len(head))
		} else if step = bytes.IndexByte(head[1:], 0xff) + 1; step == 0 {
			step = len(head)
		}
		if _, err := r.Discard(step); err != nil {
			return 0, fmt.Errorf("walk frames: %w", err)
		}
	}
}

// frameDuration returns the duration of one frame from its header.
func frameDuration(b []byte, kind Kind) time.Duration {
	if kind == AAC {
		rates := [13]int{96000, 88200, 64000, 48000, 44100, 32000, 24000, 22050, 16000, 12000, 11025, 8000, 7350}
		return 1024 * time.Second / time.Duration(rates[b[2]>>2&0xf])
	}
	samples, hz := 1152, mp3Rates[b[2]>>2&3]
	switch b[1] >> 3 & 3 {
	case 2: // MPEG 2
		samples, hz = 576, hz/2
	case 0: // MPEG 2.5
		samples, hz = 576, hz/4
	}
	return time.Duration(samples) * time.Second / time.Duration(hz)
}

// mp3Rates are the sample rates of MPEG 1. MPEG 2 has half of them, MPEG 2.5 a quarter.
var mp3Rates = [3]int{44100, 48000, 32000}

// mp3Frame returns the length of the MPEG audio layer III frame at the start of b, or 0.
func mp3Frame(b []byte) int {
	if len(b) < 4 || b[0] != 0xff || b[1]&0xe0 != 0xe0 {
		return 0
	}
	version, layer := b[1]>>3&3, b[1]>>1&3
	bitrate, rate, pad := int(b[2]>>4), int(b[2]>>2&3), int(b[2]>>1&1)
	if version == 1 || layer != 1 || bitrate == 0 || bitrate == 15 || rate == 3 {
		return 0
	}
	if version == 3 {
		kbit := [15]int{0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320}
		return 144000*kbit[bitrate]/mp3Rates[rate] + pad
	}
	kbit := [15]int{0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160}
	hz := mp3Rates[rate] / 2
	if version == 0 {
		hz = mp3Rates[rate] / 4 // MPEG 2.5
	}
	return 72000*kbit[bitrate]/hz + pad
}

// adtsFrame returns the length of the ADTS frame at the start of b, or 0.
func adtsFrame(b []byte) int {
	if len(b) < adtsHeader || b[0] != 0xff || b[1]&0xf6 != 0xf0 || b[2]>>2&0xf > 12 {
		return 0
	}
	n := int(b[3]&3)<<11 | int(b[4])<<3 | int(b[5]>>5)
	if n < adtsHeader {
		return 0
	}
	return n
}
