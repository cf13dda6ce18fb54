// Hostile archives: bombs, holes, links, special files, odd names, and the order of tracks.

package separator

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"cutroom/internal/film/media/container"
)

type entry struct {
	header  tar.Header
	content []byte
}

func file(name string, content []byte) entry {
	return entry{tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(content))}, content}
}

func special(name string, kind byte, target string) entry {
	return entry{header: tar.Header{Name: name, Typeflag: kind, Linkname: target, Mode: 0o777}}
}

func gnu(name string, content []byte) entry {
	e := file(name, content)
	e.header.Format = tar.FormatGNU
	return e
}

func tarOf(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		if err := w.WriteHeader(&e.header); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(e.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func zipped(content []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	w.Write(content) // a bytes.Buffer takes everything
	w.Close()
	return b.Bytes()
}

// rawHeader returns a tar header block that archive/tar refuses to write.
func rawHeader(name string, kind byte, size int64) []byte {
	b := make([]byte, 512)
	copy(b, name)
	copy(b[100:], "0000644\x000000000\x000000000\x00")
	copy(b[124:], fmt.Sprintf("%011o\x0000000000000\x00", size))
	copy(b[148:], "        ")
	b[156] = kind
	copy(b[257:], "ustar\x0000")
	sum := 0
	for _, c := range b {
		sum += int(c)
	}
	copy(b[148:], fmt.Sprintf("%06o\x00 ", sum))
	return b
}

// paxHeader returns an extended header, with pairs of key and value, for the entry that follows.
func paxHeader(pairs ...string) []byte {
	var records strings.Builder
	for i := 0; i < len(pairs); i += 2 {
		record := fmt.Sprintf(" %s=%s\n", pairs[i], pairs[i+1])
		fmt.Fprintf(&records, "%d%s", len(record)+2, record) // it includes its own length, which has two digits here
	}
	return slices.Concat(rawHeader("pax", tar.TypeXHeader, int64(records.Len())), block(records.String()))
}

// block fills up a block of a tar.
func block(s string) []byte { return append([]byte(s), make([]byte, 512-len(s))...) }

// sparseWav is an archive of a few kilobytes with a WAV file of realSize bytes that is almost entirely a hole.
func sparseWav(realSize int64) []byte {
	return slices.Concat(
		paxHeader("GNU.sparse.major", "1", "GNU.sparse.minor", "0", "GNU.sparse.name", "bomb.wav", "GNU.sparse.realsize", fmt.Sprint(realSize)),
		rawHeader("bomb.wav", tar.TypeReg, 1024), block("1\n0\n512\n"), block(string(wav("bomb"))),
		make([]byte, 1024))
}

func unpackBytes(t testing.TB, content []byte, limits archiveLimits) (dir string, paths []string, err error) {
	t.Helper()
	root := t.TempDir()
	archive := filepath.Join(root, "a.tar")
	dir = filepath.Join(root, "in", "out")
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(archive, content, 0o600)); err != nil {
		t.Fatal(err)
	}
	stems, err := unpack(context.Background(), archive, dir, limits)
	for _, s := range stems {
		if "."+s.Kind.AudioExt() != filepath.Ext(s.Path) {
			t.Errorf("%s is said to be %v", s.Path, s.Kind)
		}
		paths = append(paths, s.Path)
	}
	checkContained(t, root, dir, paths)
	return dir, paths, err
}

// checkContained fails unless the archive left only regular files at the returned paths, speaker_0, speaker_1, ... in
// dir.
func checkContained(t testing.TB, root, dir string, paths []string) {
	t.Helper()
	for i, path := range paths {
		name := filepath.Base(path)
		if filepath.Dir(path) != dir || !strings.HasPrefix(name, fmt.Sprintf("speaker_%d.", i)) {
			t.Errorf("path %d is %s", i, path)
		}
	}
	seen := 0
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case path == root, path == filepath.Join(root, "in"), path == dir, path == filepath.Join(root, "a.tar"):
		case !d.Type().IsRegular() || !slices.Contains(paths, path):
			t.Errorf("left behind: %s %v", path, d.Type())
		default:
			seen++
		}
		return nil
	})
	if err != nil || seen != len(paths) {
		t.Errorf("found %d of %d files (%v)", seen, len(paths), err)
	}
}

var roomy = archiveLimits{entries: 64, entryBytes: 1 << 20, totalBytes: 4 << 20}

func TestUnpack(t *testing.T) {
	speakers := func(n int) (out []entry, tags []string) {
		for i := n; i >= 1; i-- {
			out = append(out, file(fmt.Sprintf("out/Speaker %d.wav", i), wav(fmt.Sprint(i))))
		}
		for i := 1; i <= n; i++ {
			tags = append(tags, fmt.Sprint(i))
		}
		return out, tags
	}
	one, oneTag := speakers(1)
	twenty, twentyTags := speakers(20)
	full, fullTags := speakers(64)
	over, _ := speakers(65)
	thousands := make([]entry, 5000)
	for i := range thousands {
		thousands[i] = special(fmt.Sprintf("d%d/", i), tar.TypeDir, "")
	}
	for _, test := range []struct {
		name    string
		content []byte
		tags    []string // of the speakers, in order
		err     error
	}{
		{"one speaker", tarOf(t, one...), oneTag, nil},
		{"twenty speakers", tarOf(t, twenty...), twentyTags, nil},
		{"gzipped", zipped(tarOf(t, twenty...)), twentyTags, nil},
		{"as many as may be", tarOf(t, full...), fullTags, nil},
		{"one too many", tarOf(t, over...), nil, errTooMuch},
		{"thousands of entries", tarOf(t, thousands...), nil, errTooMuch},
		{"traversal", tarOf(t, file("../../evil.wav", wav("a")), file("x/../../../b.wav", wav("b"))), []string{"a", "b"}, nil},
		{"absolute names", tarOf(t, file("/etc/cron.d/b.wav", wav("b")), file("/a.wav", wav("a"))), []string{"a", "b"}, nil},
		{"odd names", tarOf(t, file("a\x01\xff.wav", wav("a")), file("", wav("e")), file(strings.Repeat("n", 5000), wav("n"))), []string{"e", "a", "n"}, nil},
		{"one name twice", tarOf(t, file("a.wav", wav("1")), file("a.wav", wav("2"))), []string{"1", "2"}, nil},
		{"our own names", tarOf(t, file("speaker_1.part", wav("x")), file("speaker_0.wav", wav("y"))), []string{"y", "x"}, nil},
		{"links and devices", tarOf(t,
			special("speaker_0.part", tar.TypeSymlink, "/etc/passwd"), special("speaker_0.wav", tar.TypeLink, "../../../a.tar"),
			special("null", tar.TypeChar, ""), special("disk", tar.TypeBlock, ""), special("pipe", tar.TypeFifo, ""),
			special("dir.wav/", tar.TypeDir, ""), file("speaker_0.wav", wav("real"))), []string{"real"}, nil},
		{"link then file of its name", tarOf(t, special("a", tar.TypeSymlink, "/tmp"), file("a/b.wav", wav("b"))), []string{"b"}, nil},
		{"audio in an entry of unknown type", slices.Concat(rawHeader("a.wav", 'Z', 512), wav("a"), make([]byte, 512-len(wav("a"))+1024)), nil, nil},
		{"no audio", tarOf(t, file("speaker_1.wav", []byte("<html>")), file("empty.wav", nil), file("._speaker.wav", []byte("\x00\x05\x16\x07"))), nil, nil},
		{"some audio", tarOf(t, file("1.txt", []byte("hello")), file("2", wav("a")), file("3.json", []byte("{}"))), []string{"a"}, nil},
		{"no entries", tarOf(t), nil, nil},
		{"large", tarOf(t, file("a.wav", append(wav(""), make([]byte, 1<<20)...))), nil, errTooMuch},
		{"large together", tarOf(t, slices.Repeat([]entry{file("a.wav", append(wav(""), make([]byte, 1<<20-100)...))}, 5)...), nil, errTooMuch},
		{"zeros that are no audio", tarOf(t, file("z", make([]byte, 1<<20)), file("a.wav", wav("a"))), []string{"a"}, nil},
		{"zipped zeros", zipped(tarOf(t, file("z", make([]byte, 8<<20)))), nil, errTooMuch},
		{"zipped zeros for a tar", zipped(make([]byte, 8<<20)), nil, nil},
		{"zipped twice", zipped(zipped(tarOf(t, one...))), nil, errBroken},
		{"zeros in a hole", sparseWav(100_000), []string{"bomb" + strings.Repeat("\x00", 100_000-len(wav("bomb")))}, nil},
		{"gigabytes in a hole", sparseWav(64 << 30), nil, errTooMuch},
		{"not a tar", []byte(strings.Repeat("hello ", 1000)), nil, errBroken},
		{"half a block", []byte("hello"), nil, errBroken},
		{"half an archive", tarOf(t, twenty...)[:1500], nil, errBroken},
		{"half a zip", zipped(tarOf(t, twenty...))[:100], nil, errBroken},
		{"bad zip", []byte("\x1f\x8bnothing of the kind"), nil, errBroken},
		{"names in extended headers", slices.Concat(paxHeader("path", "../../../etc/b.wav"), tarOf(t, file("z", wav("b")))[:1024],
			paxHeader("path", "/etc/a.wav"), tarOf(t, file("y", wav("a")))), []string{"b", "a"}, nil},
		{"long GNU names", tarOf(t, gnu(strings.Repeat("../", 200)+"b.wav", wav("b")), gnu("/"+strings.Repeat("x", 300), wav("x"))), []string{"b", "x"}, nil},
		{"names of no bytes that print", tarOf(t, file("\u202e1\u2066.wav", wav("bidi")), file("\x1b[2J\n.wav", wav("escape")), file("2.wav", wav("two"))),
			[]string{"escape", "two", "bidi"}, nil},
		{"a name of two megabytes", slices.Concat(rawHeader("long", tar.TypeGNULongName, 2<<20), bytes.Repeat([]byte("n"), 2<<20), tarOf(t, one...)), nil, errBroken},
		{"thousands of global headers", tarOf(t, slices.Repeat([]entry{{header: tar.Header{Typeflag: tar.TypeXGlobalHeader,
			PAXRecords: map[string]string{"path": "x"}}}}, 5000)...), nil, errTooMuch},
		{"thousands of headers for one file", slices.Concat(bytes.Repeat(paxHeader("path", "x"), 3000), tarOf(t, one...)), oneTag, nil},
		{"headers beyond the limit", slices.Concat(bytes.Repeat(paxHeader("path", "x"), 6<<10), tarOf(t, one...)), nil, errTooMuch},
		{"a larger size in the extended header", slices.Concat(paxHeader("size", "99999999999"), tarOf(t, one...)), nil, errTooMuch},
		{"a negative size", slices.Concat(paxHeader("size", "-1"), tarOf(t, one...)), nil, errBroken},
		{"link with content", slices.Concat(rawHeader("a.wav", tar.TypeSymlink, 512), block(string(wav("a"))), tarOf(t, one...)), nil, errBroken},
		{"archive in the archive", tarOf(t, file("1.tar", tarOf(t, twenty...)), file("2.tgz", zipped(tarOf(t, twenty...))), file("a.wav", wav("a"))), []string{"a"}, nil},
		{"archive after the archive", slices.Concat(tarOf(t, one...), tarOf(t, twenty...)), oneTag, nil},
		{"zipped in two parts", slices.Concat(zipped(tarOf(t, twenty...)[:700]), zipped(tarOf(t, twenty...)[700:])), twentyTags, nil},
		{"second part broken", slices.Concat(zipped(tarOf(t, twenty...)[:700]), []byte("no zip")), nil, errBroken},
		{"a million holes", slices.Concat(sparseWav(100_000)[:1024], rawHeader("bomb.wav", tar.TypeReg, 4<<20), []byte("999999\n"),
			bytes.Repeat([]byte("0\n0\n"), 1<<20)), nil, errBroken},
		{"size beyond the end", append(rawHeader("a.wav", tar.TypeReg, 1<<19), wav("a")...), nil, errBroken},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, paths, err := unpackBytes(t, test.content, roomy)
			if _, theirs := errors.AsType[*Error](err); !errors.Is(err, test.err) || theirs != (test.err != nil) {
				t.Fatalf("err = %v, want %v", err, test.err)
			}
			var tags []string
			for _, path := range paths {
				content, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				tags = append(tags, strings.TrimPrefix(string(content), string(wav(""))))
			}
			if !slices.Equal(tags, test.tags) {
				t.Errorf("speakers %q, want %q", tags, test.tags)
			}
		})
	}
}

// endsAfter is a context that ends after so many looks at it.
type endsAfter struct {
	context.Context
	looks int
}

func (c *endsAfter) Err() error {
	if c.looks--; c.looks < 0 {
		return context.Canceled
	}
	return nil
}

// A few bytes that stand for much work do not delay the end of the context.
func TestUnpackStopsWithinAnEntry(t *testing.T) {
	one := tarOf(t, file("a.wav", wav("a")))
	for name, content := range map[string][]byte{
		"a hole":             sparseWav(8 << 20),
		"empty gzip members": slices.Concat(bytes.Repeat(zipped(nil), 200_000), zipped(one)),
	} {
		dir := t.TempDir()
		archive := filepath.Join(dir, "a.tar")
		if err := os.WriteFile(archive, content, 0o600); err != nil {
			t.Fatal(err)
		}
		limits := archiveLimits{entries: 64, entryBytes: 16 << 20, totalBytes: 16 << 20}
		_, err := unpack(&endsAfter{t.Context(), 20}, archive, dir, limits)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: err = %v", name, err)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
			t.Errorf("%s: left behind: %v (%v)", name, left, err)
		}
	}
}

func TestNaturalOrder(t *testing.T) {
	sorted := []string{
		"", "1", "2", "2a", "10", "010a", "a", "A1", "a2b3", "a2b10", "a10", "speaker", "speaker 2.wav", "Speaker 10.wav",
		"speaker_0", "speaker_1", "speaker_2", "Speaker_9", "speaker_10", "speaker_99999999999999999999", "speaker_100000000000000000000", "z",
	}
	for i, name := range sorted[1:] {
		if before := sorted[i]; naturalOrder(before) >= naturalOrder(name) {
			t.Errorf("%q is not before %q", before, name)
		}
	}
}

func FuzzUnpack(f *testing.F) {
	f.Add(tarOf(f, file("b 10.wav", wav("a")), file("b 2.mp3", []byte("ID3 etc"))))
	f.Add(zipped(tarOf(f, file("../a.wav", wav("a")), special("l", tar.TypeSymlink, "/etc"))))
	f.Add(sparseWav(4000))
	f.Add(rawHeader("x", tar.TypeReg, 1<<30))
	f.Fuzz(func(t *testing.T, content []byte) {
		limits := archiveLimits{entries: 4, entryBytes: 10_000, totalBytes: 20_000}
		_, paths, err := unpackBytes(t, content, limits)
		if err != nil && paths != nil {
			t.Errorf("both %v and %v", paths, err)
		}
		var e *Error
		if err != nil && !errors.As(err, &e) {
			t.Errorf("blames us: %v", err)
		}
		if len(paths) > limits.entries {
			t.Errorf("%d files", len(paths))
		}
		var total int64
		for _, path := range paths {
			stat, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if class, err := container.SniffFile(path); err != nil || "."+class.Kind.AudioExt() != filepath.Ext(path) {
				t.Errorf("%s holds %v (%v)", path, class, err)
			}
			total += stat.Size()
		}
		if total > limits.totalBytes {
			t.Errorf("%d bytes", total)
		}
	})
}
