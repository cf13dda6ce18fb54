// Detection of kinds: real files, their damaged beginnings, and everything that is not media.

package container_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"cutroom/internal/film/media/container"
	"cutroom/internal/testkit/mediatest"
)

// box returns a box of size bytes whose payload begins with payload.
func box(size int, kind, payload string) string {
	b := string(binary.BigEndian.AppendUint32(nil, uint32(size))) + kind + payload
	return b + strings.Repeat("\x00", max(0, size-len(b)))
}

func TestSniffKnowsNothingOfStrangers(t *testing.T) {
	for name, content := range mediatest.NotMedia {
		if c, err := container.Sniff(strings.NewReader(content)); c.Kind != container.Unknown || err != nil {
			t.Errorf("%s: %v, %v", name, c, err)
		}
	}
}

// TestSniffTellsWhatDamagedFilesSetOutToBe sniffs files of which only the beginning is left.
func TestSniffTellsWhatDamagedFilesSetOutToBe(t *testing.T) {
	mov := func(brand string) container.Class { return container.Class{Kind: container.MP4, Brand: brand} }
	tagged, synced, unknown := container.Class{Tagged: true}, container.Class{Synced: true}, container.Class{}
	for content, want := range map[string]container.Class{
		"\x00\x00\x00\x18ftypM4A \x00\x00\x00\x00": mov("M4A "),
		"\x00\x00\x00\x18ftypM4B \x00junk":         mov("M4B "),
		"\x00\x00\x00\x18ftypisom\x00\x00\x00\x00": mov("isom"),
		"ftypM4A \x00\x00\x00\x00":                 unknown,
		"ID3\x03\x00\x00\x00\x00\x00\x7f":          tagged,
		"ID3\x03\x00\x00\x00\x00\x00\x80":          unknown,
		"ID3\x05\x00\x00\x00\x00\x00\x00":          unknown,
		"ID3 is how titles are written":            unknown,
		"ID3":                                      unknown,
		"\xff\xfb\x90\x00 and then nonsense":       synced,
		"\xff\xf3\x00\x00":                         synced,
		"\xff\xfd\x90\x00 layer II":                unknown,
		"\xff\xeb\x90\x00 no such version":         unknown,
		"\xff\xfet\x00e\x00x\x00t\x00":             unknown,
		"\xff\xf1\x50\x80 ADTS":                    unknown,
		"\xff\xfb":                                 unknown,
		"#EXTM3U\n":                                unknown,
		"":                                         unknown,
	} {
		if c, err := container.Sniff(strings.NewReader(content)); c != want || err != nil {
			t.Errorf("%q: %+v, want %+v (%v)", content, c, want, err)
		}
	}
}

func TestSniffMovFamily(t *testing.T) {
	moov := box(24, "moov", box(16, "mvhd", ""))
	large := "\x00\x00\x00\x01mdat" + string(binary.BigEndian.AppendUint64(nil, 100)) + strings.Repeat("x", 84)
	for name, file := range map[string]string{
		"isom": box(24, "ftyp", "isom"), "3gp": box(24, "ftyp", "3gp4"), "quicktime": box(20, "ftyp", "qt  "), "m4a": box(24, "ftyp", "M4A "),
		"fragment": box(24, "styp", "msdh"), "moov first": moov, "moov cut off": moov[:20],
		"mdat first": box(1000, "mdat", "") + moov, "large mdat": large + moov,
		"wide": box(8, "wide", "") + box(1000, "mdat", "") + moov, "free": box(32, "free", "") + moov,
		"skip": box(100, "skip", "") + moov, "pnot": box(20, "pnot", "") + moov,
	} {
		if c, err := container.Sniff(strings.NewReader(file)); c.Kind != container.MP4 || err != nil {
			t.Errorf("%s: %v, %v", name, c, err)
		}
	}
}

func TestSniffRealFiles(t *testing.T) {
	t.Parallel()
	sound := mediatest.Spec{Tone: 440, Duration: 300 * time.Millisecond}
	for _, c := range []struct {
		container string
		output    []string
		want      container.Kind
	}{
		{"wav", nil, container.WAV},
		{"wav", []string{"-rf64", "always"}, container.WAV},
		{"mp3", nil, container.MP3},
		{"mp3", []string{"-id3v2_version", "0", "-write_xing", "0"}, container.MP3},
		{"mp3", []string{"-ar", "22050", "-b:a", "64k"}, container.MP3},
		{"mp3", []string{"-ar", "8000", "-b:a", "16k"}, container.MP3},
		{"aac", nil, container.AAC},
		{"flac", nil, container.FLAC},
		{"ogg", nil, container.Ogg},
		{"m4a", nil, container.MP4},
		{"mka", nil, container.Matroska},
		{"webm", nil, container.Matroska},
		{"mp2", nil, container.Unknown},
		{"aiff", nil, container.Unknown},
	} {
		s := sound
		s.Container, s.Output = c.container, c.output
		if got, err := container.SniffFile(mediatest.Clip(t, s)); got.Kind != c.want || err != nil {
			t.Errorf("%s %v: %v, %v, want %v", c.container, c.output, got, err, c.want)
		}
	}
	if _, err := container.SniffFile(filepath.Join(t.TempDir(), "missing")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}

// TestSniffFindsTheFirstFrame puts data before the frames as real files do. ffmpeg must find all of the sound after it.
func TestSniffFindsTheFirstFrame(t *testing.T) {
	t.Parallel()
	size := 100000 // of a tag with a cover, syncsafe
	id3 := append([]byte{'I', 'D', '3', 4, 0, 0, byte(size >> 21), byte(size >> 14 & 0x7f), byte(size >> 7 & 0x7f), byte(size & 0x7f)}, make([]byte, size)...)
	ape := append([]byte("APETAGEX\xd0\x07\x00\x00"), binary.LittleEndian.AppendUint32(nil, 70032)...)
	ape = append(append(ape, make([]byte, 16)...), bytes.Repeat([]byte("cover \xff\xd8\xff"), 70032/9+1)[:70032]...)
	noise := make([]byte, 128<<10)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range noise {
		noise[i] = byte(random.Uint32())
	}
	bare := map[string][]string{"mp3": {"-id3v2_version", "0", "-write_xing", "0"}}
	for format, kind := range map[string]container.Kind{"mp3": container.MP3, "aac": container.AAC} {
		raw, err := os.ReadFile(mediatest.Clip(t, mediatest.Spec{Tone: 440, Duration: 3 * time.Second, Container: format,
			Output: bare[format]}))
		if err != nil {
			t.Fatal(err)
		}
		for name, file := range map[string][]byte{
			"211 zeros":          slices.Concat(make([]byte, 211), raw),
			"60000 zeros":        slices.Concat(make([]byte, 60000), raw),
			"cut in a frame":     raw[201:],
			"large ID3, padding": slices.Concat(id3, make([]byte, 300), raw),
			"ID3, then a cut":    slices.Concat(id3, raw[100:]),
			"two tags":           slices.Concat(id3[:10:10], make([]byte, size), id3, raw),
			"APE":                slices.Concat(ape, raw),
			"noise":              slices.Concat(noise[:30000], raw),
			"130000 of noise":    slices.Concat(noise[:130000], raw),
			"tag at the end":     slices.Concat(raw, []byte("TAG"), make([]byte, 125)),
			"cut at the end":     raw[:len(raw)-100],
			"two frames":         raw[:800],
		} {
			c, err := container.Sniff(bytes.NewReader(file))
			if c.Kind != kind || err != nil {
				t.Errorf("%s, %s: %v, %v", format, name, c, err)
				continue
			}
			path := filepath.Join(t.TempDir(), "x")
			if err := os.WriteFile(path, file, 0o600); err != nil {
				t.Fatal(err)
			}
			walked, err := container.ReadFrames(path, kind)
			if want := 3 * time.Second; err != nil || name != "two frames" && (walked.Duration-want).Abs() > 120*time.Millisecond {
				t.Errorf("%s, %s: %v (%v), want about %v", format, name, walked.Duration, err, want)
			}
			if name == "60000 zeros" || name == "APE" || name == "130000 of noise" { // ffmpeg finds it, too
				pcm := mediatest.FFmpeg(t, "-f", kind.Demuxer(), "-i", path, "-ac", "1", "-ar", "48000", "-f", "s16le", "pipe:1")
				if heard := time.Duration(len(pcm)/2) * time.Second / 48000; (heard - walked.Duration).Abs() > 100*time.Millisecond {
					t.Errorf("%s, %s: ffmpeg decodes %v of %v", format, name, heard, walked.Duration)
				}
			}
		}
		for name, file := range map[string][]byte{
			"too late":    slices.Concat(noise, raw),
			"in AVI":      slices.Concat([]byte("RIFF\x00\x10\x00\x00AVI LIST"), raw),
			"in a zip":    slices.Concat([]byte("PK\x03\x04\x14\x00\x00\x00\x08\x00"), raw),
			"in AIFF":     slices.Concat([]byte("FORM\x00\x00\x10\x00AIFF"), raw),
			"in a box":    slices.Concat([]byte("\x00\x00\x00\x00mdat\x00\x00\x00\x00\x00\x00\x00\x00"), raw),
			"in a stream": transport(raw),
			"noise":       noise,
			"0xff":        bytes.Repeat([]byte{0xff}, 100000),
		} {
			if c, err := container.Sniff(bytes.NewReader(file)); c.Kind != container.Unknown || err != nil {
				t.Errorf("%s, %s: %v, %v", format, name, c, err)
			}
		}
	}
}

// transport wraps bytes in packets of 188 bytes.
func transport(b []byte) []byte {
	var out []byte
	for part := range slices.Chunk(b, 184) {
		out = append(append(out, 0x47, 0x01, 0x00, 0x10), part...)
	}
	return out
}

func FuzzSniff(f *testing.F) {
	for _, content := range mediatest.NotMedia {
		f.Add([]byte(content))
	}
	f.Add([]byte("\xff\xfb\x90\x00"))
	f.Add([]byte("ID3\x04\x00\x10\x7f\x7f\x7f\x7f"))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := container.Sniff(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.HasPrefix(b, []byte("#EXT")) && c.Kind != container.Unknown {
			t.Errorf("a playlist is %v", c)
		}
	})
}
