package container

import (
	"encoding/binary"
	"io"
	"math/bits"
)

// PresentShare compares the lengths that the container states with the size of the file. 1 is a whole file. Except for
// an mp4, a file that states no length counts as whole.
func PresentShare(path string, kind Kind) (float64, error) {
	f, size, err := open(path)
	if err != nil {
		return 1, err
	}
	defer f.Close()
	switch kind {
	case MP4:
		return mp4Share(f, size), nil
	case Matroska:
		return matroskaShare(f, size), nil
	case WAV:
		return wavShare(f, size), nil
	}
	return 1, nil
}

// mp4Share returns how much of the declared boxes is in the file. A box without a size may have been cut off anywhere,
// so the share is almost 0.
func mp4Share(r io.ReaderAt, size int64) float64 {
	seen := 0
	for b := range boxes(r, 0, unlimited) {
		if b.end > size {
			return float64(size) / float64(b.end)
		}
		if seen++; seen > maxBoxes {
			break
		}
	}
	return 1
}

// matroskaShare returns how much of the Segment element, which contains the whole video, is in the file. Live
// recordings leave its size unknown and count as whole.
func matroskaShare(r io.ReaderAt, size int64) float64 {
	const segmentID = 0x18538067
	var off int64
	for range 4 { // the EBML header comes first, then the Segment
		head := make([]byte, 16)
		n, _ := r.ReadAt(head, off) // a short read shows in n
		id, idLen := ebmlNumber(head[:n], false)
		if idLen == 0 {
			return 1
		}
		length, lenLen := ebmlNumber(head[idLen:n], true)
		if lenLen == 0 {
			return 1
		}
		body := off + int64(idLen+lenLen)
		if id == segmentID {
			if unknown := length == 1<<(7*lenLen)-1; unknown || length == 0 {
				return 1
			}
			return min(1, float64(size-body)/float64(length))
		}
		if length > uint64(size) {
			return 1
		}
		off = body + int64(length)
	}
	return 1
}

// ebmlNumber parses a number of 1 to 8 bytes; the zero bits at its start give its length. mask removes the length
// marker. A length of 0 means that b contains no number.
func ebmlNumber(b []byte, mask bool) (value uint64, length int) {
	if len(b) == 0 || b[0] == 0 {
		return 0, 0
	}
	length = bits.LeadingZeros8(b[0]) + 1
	if len(b) < length {
		return 0, 0
	}
	for _, x := range b[:length] {
		value = value<<8 | uint64(x)
	}
	if mask {
		value &= 1<<(7*length) - 1
	}
	return value, length
}

// wavShare returns how much of the data chunk is in the file. Streaming writers give it the size 0 or a number near
// 2^31 or 2^32, which means unknown.
func wavShare(r io.ReaderAt, size int64) float64 {
	off := int64(12)
	head := make([]byte, 8)
	for range 64 {
		if n, _ := r.ReadAt(head, off); n < 8 { // a short read is the end of the file
			return 1
		}
		length := int64(binary.LittleEndian.Uint32(head[4:]))
		if string(head[:4]) == "data" {
			const streaming = 0x7fff_0000
			present := size - off - 8
			if length == 0 || length >= streaming || present <= 0 {
				return 1
			}
			return min(1, float64(present)/float64(length))
		}
		off += 8 + length + length&1
	}
	return 1
}
