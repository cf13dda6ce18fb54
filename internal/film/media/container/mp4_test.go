package container_test

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"cutroom/internal/film/media/container"
)

// nest puts a box into the named boxes; the last one is the innermost.
func nest(inner string, kinds ...string) string {
	for _, kind := range slices.Backward(kinds) {
		inner = box(8+len(inner), kind, inner)
	}
	return inner
}

// ticks is a table of durations for frames of equal length.
func ticks(n, each uint32) string {
	b := binary.BigEndian.AppendUint32(make([]byte, 4), 1)
	return box(24, "stts", string(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, n), each)))
}

// damaged are files with impossible sizes.
var damaged = map[string]string{
	"empty":             "",
	"cut in a header":   "\x00\x00\x00",
	"no data":           box(16, "moov", box(8, "trak", "")),
	"no index":          box(16, "mdat", ""),
	"too small":         box(4, "moov", ""),
	"beyond the end":    "\x00\xff\xff\xffmdat",
	"64 bits, cut":      "\x00\x00\x00\x01mdat\x00",
	"64 bits, too much": "\x00\x00\x00\x01mdat\xff\xff\xff\xff\xff\xff\xff\xff",
	"64 bits, too few":  "\x00\x00\x00\x01mdat\x00\x00\x00\x00\x00\x00\x00\x08",
	"inner too large":   box(8, "mdat", "") + box(16, "moov", "\x00\x00\x01\x00trak"),
	"short stts":        box(8, "mdat", "") + nest(box(12, "stts", ""), "moov", "trak", "mdia", "minf", "stbl"),
	"two of a kind":     box(8, "mdat", "") + box(8+2*48, "moov", strings.Repeat(nest(box(32, "hdlr", "\x00\x00\x00\x00\x00\x00\x00\x00soun"), "trak", "mdia"), 2)),
	"entries of air":    box(8, "mdat", "") + nest(box(16, "stts", "\x00\x00\x00\x00\x7f\xff\xff\xff"), "moov", "trak", "mdia", "minf", "stbl"),
}

func TestReadMovieRefusesDamage(t *testing.T) {
	for name, content := range damaged {
		path := write(t, []byte(content))
		if m, err := container.ReadMovie(path); !errors.Is(err, container.ErrDamaged) {
			t.Errorf("%s: %+v, %v", name, m, err)
		}
		if _, err := container.ReadIndex(path); err != nil { // it reads what is present
			t.Errorf("%s: %v", name, err)
		}
	}
	whole := box(8, "mdat", "") + nest(ticks(30, 512), "moov", "trak", "mdia", "minf", "stbl")
	if _, err := container.ReadMovie(write(t, []byte(whole))); err != nil {
		t.Errorf("the same, whole: %v", err)
	}
	if _, err := container.ReadMovie(filepath.Join(t.TempDir(), "missing")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}

// TestIndexOfDamagedFiles reads what is present in a damaged index.
func TestIndexOfDamagedFiles(t *testing.T) {
	hdlr := box(32, "hdlr", "\x00\x00\x00\x00\x00\x00\x00\x00vide")
	for name, c := range map[string]struct {
		file string
		want container.Index
	}{
		"cut":           {"\x00\x01\x00\x00moov" + hdlr, container.Index{Media: true, Video: true}},
		"encrypted":     {nest(box(20, "schm", "\x00\x00\x00\x00cenc"), "moov", "trak", "sinf"), container.Index{Media: true, Encrypted: true}},
		"of no size":    {"\x00\x00\x00\x02moov" + hdlr, container.Index{Media: true}},
		"two codecs":    {descriptions("hvc1", 2), container.Index{Media: true, MixedVideo: true}},
		"one is unused": {descriptions("hvc1", 1), container.Index{Media: true}},
		"one codec":     {descriptions("avc3", 2), container.Index{Media: true}},
		"to the end":    {box(24, "ftyp", "isom") + "\x00\x00\x00\x00moov" + hdlr, container.Index{Media: true, Video: true}},
		"after a crowd": {strings.Repeat(box(8, "free", ""), 64) + nest(hdlr, "moov"), container.Index{}},
	} {
		if x, err := container.ReadIndex(write(t, []byte(c.file))); x != c.want || err != nil {
			t.Errorf("%s: %+v, want %+v (%v)", name, x, c.want, err)
		}
	}
}

// descriptions is an index with a track of two sample entries, and chunks that use the first and the given one.
func descriptions(second string, used byte) string {
	entries := box(16, "avc1", "12345678") + box(16, second, "12345678")
	chunks := "\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x00\x01" + "\x00\x00\x00\x02\x00\x00\x00\x01\x00\x00\x00" + string(rune(used))
	return nest(box(48, "stsd", "\x00\x00\x00\x00\x00\x00\x00\x02"+entries)+box(40, "stsc", "\x00\x00\x00\x00\x00\x00\x00\x02"+chunks), "moov")
}

func FuzzReadMovie(f *testing.F) {
	for _, content := range damaged {
		f.Add([]byte(content))
	}
	f.Add([]byte(box(8, "mdat", "") + nest(ticks(30, 512), "moov", "trak", "mdia", "minf", "stbl")))
	f.Add([]byte(strings.Repeat("\x00\x00\x00\x00mdia", 1000)))
	f.Fuzz(func(t *testing.T, b []byte) {
		path := write(t, b)
		if _, err := container.ReadMovie(path); err != nil && !errors.Is(err, container.ErrDamaged) {
			t.Errorf("%v", err)
		}
		if _, err := container.ReadIndex(path); err != nil {
			t.Errorf("index: %v", err)
		}
	})
}
