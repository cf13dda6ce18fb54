package container

import (
	"bytes"
	"encoding/binary"
	"io"
)

// maxChunks is more than any real WAV file has.
const maxChunks = 1024

// UnclaimedWAV returns how many bytes at the end of a WAV file belong to no chunk. If the data chunk declares too few
// bytes, they are the rest of its sound: players that ignore the declared size play them. It returns 0 for a streamed
// file, whose sound extends to its end.
func UnclaimedWAV(path string) (int64, error) {
	f, size, err := open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	off, declared := int64(12), int64(-1) // declared in the ds64 chunk of an RF64 file
	for range maxChunks {
		var head [24]byte
		n, err := f.ReadAt(head[:], off)
		if err != nil && err != io.EOF {
			return 0, err
		}
		length := int64(binary.LittleEndian.Uint32(head[4:]))
		switch id := string(head[:4]); {
		case n < 8:
			return 0, nil
		case id == "ds64" && n == len(head):
			declared = int64(min(binary.LittleEndian.Uint64(head[16:]), uint64(size)))
		case id == "data" && (length == 0 || length == streamedLength):
			if declared < 0 {
				return 0, nil
			}
			length = declared
		case id == "data":
		case bytes.ContainsFunc(head[:4], unprintable) || off+8+length > size:
			return size - off, nil
		}
		off += 8 + length + length&1
	}
	return max(0, size-off), nil
}

// streamedLength is the length of a data chunk whose writer did not know the real length.
const streamedLength = 1<<32 - 1

// unprintable reports whether r is in no chunk's id.
func unprintable(r rune) bool { return r < ' ' || r > '~' }
