package container

import (
	"encoding/binary"
	"testing"
)

func TestOddEdits(t *testing.T) {
	const nothing = 0xFFFFFFFF
	entry := func(duration, media, rate uint32) []uint32 { return []uint32{duration, media, rate} }
	for _, tt := range []struct {
		name    string
		entries [][]uint32
		want    bool
	}{
		{"plain", [][]uint32{entry(100, 0, 1<<16)}, false},
		{"late", [][]uint32{entry(50, nothing, 1<<16), entry(100, 1024, 1<<16)}, false},
		{"a cut", [][]uint32{entry(50, 0, 1<<16), entry(100, 5000, 1<<16)}, false},
		{"a pause at the end", [][]uint32{entry(50, 0, 1<<16), entry(100, nothing, 1<<16)}, false},
		{"a pause", [][]uint32{entry(50, 0, 1<<16), entry(50, nothing, 1<<16), entry(50, 2000, 1<<16)}, true},
		{"half speed", [][]uint32{entry(50, 0, 1<<15)}, true},
		{"no rate", [][]uint32{entry(50, 0, 0)}, false},
		{"a still", [][]uint32{entry(50, 0, 1<<16), entry(50, 2000, 0)}, true},
		{"empty", nil, false},
	} {
		short, long := make([]byte, 8), []byte{1, 0, 0, 0, 0, 0, 0, 0}
		binary.BigEndian.PutUint32(short[4:], uint32(len(tt.entries)))
		binary.BigEndian.PutUint32(long[4:], uint32(len(tt.entries)))
		for _, e := range tt.entries {
			media := uint64(e[1])
			if e[1] == nothing {
				media = 1<<64 - 1
			}
			short = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(short, e[0]), e[1]), e[2])
			long = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(long, uint64(e[0])), media), e[2])
		}
		for _, elst := range [][]byte{short, long} {
			if got := oddEdits(elst); got != tt.want {
				t.Errorf("%s, version %d: %v", tt.name, elst[0], got)
			}
			oddEdits(elst[:len(elst)/2]) // cut off
		}
	}
}
