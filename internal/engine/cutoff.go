package engine

import (
	"encoding/binary"
	"io"
	"math/bits"
)

// matroskaEndsEarly compares the size of the Segment element, which holds the
// whole film, with what the file holds. Live recordings leave it unknown.
func matroskaEndsEarly(r io.ReaderAt, size int64) bool {
	const segmentID = 0x18538067
	var off int64
	for range 4 { // the EBML header comes first, then the Segment
		head := make([]byte, 16)
		n, _ := r.ReadAt(head, off) // a short read shows in n
		id, idLen := ebmlNumber(head[:n], false)
		if idLen == 0 {
			return false
		}
		length, lenLen := ebmlNumber(head[idLen:n], true)
		if lenLen == 0 {
			return false
		}
		body := off + int64(idLen+lenLen)
		if id == segmentID {
			unknown := length == 1<<(7*lenLen)-1
			return !unknown && (length > uint64(size) || body+int64(length) > size)
		}
		if length > uint64(size) {
			return false
		}
		off = body + int64(length)
	}
	return false
}

// ebmlNumber reads a number of 1 to 8 bytes whose length is told by its leading
// zero bits; mask drops the length marker. A length of 0 means that b holds none.
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

// wavEndsEarly compares the size of the data chunk with the file. Streaming
// writers put 0 or a number near 2^31 or 2^32 there, which means unknown.
func wavEndsEarly(r io.ReaderAt, size int64) bool {
	off := int64(12)
	head := make([]byte, 8)
	for range 64 {
		if n, _ := r.ReadAt(head, off); n < 8 { // a short read is the end of the file
			return false
		}
		length := int64(binary.LittleEndian.Uint32(head[4:]))
		if string(head[:4]) == "data" {
			const streaming = 0x7fff_0000
			return length > 0 && length < streaming && off+8+length > size+1
		}
		off += 8 + length + length&1
	}
	return false
}
