package container_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"

	"cutroom/internal/media/container"
)

func TestOutline(t *testing.T) {
	box := func(kind string, size int) string {
		b := make([]byte, size)
		binary.BigEndian.PutUint32(b, uint32(size))
		copy(b[4:], kind)
		return string(b)
	}
	long := "\x00\x00\x00\x01mdat\x00\x00\x00\x00\x00\x00\x00\x20" + strings.Repeat("x", 16)
	for name, c := range map[string]struct {
		file string
		want []container.Span // nil: damaged
	}{
		"index first":    {box("ftyp", 16) + box("moov", 40) + box("mdat", 1000), []container.Span{{0, 16}, {16, 56}, {56, 64}}},
		"index last":     {box("ftyp", 16) + box("free", 100) + long + box("moov", 40), []container.Span{{0, 16}, {16, 24}, {116, 132}, {148, 188}}},
		"no index":       {box("ftyp", 16) + box("mdat", 100), nil},
		"fragmented":     {box("moov", 40) + box("moof", 40) + box("mdat", 100), nil},
		"cut off":        {box("moov", 40) + box("mdat", 100)[:50], nil},
		"too many boxes": {box("moov", 40) + strings.Repeat(box("free", 8), 100), nil},
		"too large":      {box("moov", 40) + box("uuid", 33<<20), nil},
		"empty":          {"", nil},
	} {
		got, err := container.Outline(bytes.NewReader([]byte(c.file)), int64(len(c.file)))
		if !slices.Equal(got, c.want) || (c.want == nil) != errors.Is(err, container.ErrDamaged) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}
