package media_test

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

	"cutroom/internal/media"
	"cutroom/internal/mediatest"
)

// box is a box of size bytes whose payload begins as given.
func box(size int, kind, payload string) string {
	b := string(binary.BigEndian.AppendUint32(nil, uint32(size))) + kind + payload
	return b + strings.Repeat("\x00", max(0, size-len(b)))
}

// notMedia are files strangers send under the name of a film.
var notMedia = map[string]string{
	"empty":       "",
	"text":        "Hello, this is not a film.\n",
	"hls":         "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nsibling.mp4\n#EXT-X-ENDLIST\n",
	"hls_file":    "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nfile:///etc/passwd\n#EXT-X-ENDLIST\n",
	"ffconcat":    "ffconcat version 1.0\nfile 'sibling.mp4'\n",
	"concat_bare": "file 'sibling.mp4'\n",
	"dash":        `<?xml version="1.0"?><MPD xmlns="urn:mpeg:dash:schema:mpd:2011"><Period></Period></MPD>`,
	"sdp":         "v=0\no=- 0 0 IN IP4 127.0.0.1\nm=video 5004 RTP/AVP 96\n",
	"ffmetadata":  ";FFMETADATA1\ntitle=x\n",
	"png":         "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x02\x00\x00\x00",
	"svg":         `<svg xmlns="http://www.w3.org/2000/svg"><image href="file:///etc/passwd"/></svg>`,
	"html":        "<!doctype html><html></html>",
	"zip":         "PK\x03\x04\x14\x00\x00\x00\x08\x00",
	"avi":         "RIFF\x00\x10\x00\x00AVI LIST",
	"id3_text":    "ID3\x04\x00\x00\x00\x00\x00\x0a0123456789#EXTM3U\nsibling.mp4\n",
	"lone_sync":   "\xff\xfb\x90\x00 and then something else entirely, not another frame of the same stream",
	"free_text":   "All free music of this year, and more of it",
	"moov_text":   "#EXTmoov of a playlist",
	"ftyp_text":   "Big ftypisom is not a size",
	"open_mdat":   "\x00\x00\x00\x00mdat and nothing more, no index",
	"zeros":       strings.Repeat("\x00", 4096),
}

func TestClassifyKnowsNothingOfStrangers(t *testing.T) {
	for name, content := range notMedia {
		if c, err := media.ClassifyReader(strings.NewReader(content)); c.Kind != media.KindUnknown || err != nil {
			t.Errorf("%s: %v, %v", name, c, err)
		}
	}
}

// TestClassifyTellsWhatDamagedFilesSetOutToBe looks at beginnings alone.
func TestClassifyTellsWhatDamagedFilesSetOutToBe(t *testing.T) {
	mov := func(brand string) media.Class { return media.Class{Kind: media.KindMP4, Brand: brand} }
	tagged, synced, unknown := media.Class{Tagged: true}, media.Class{Synced: true}, media.Class{}
	for content, want := range map[string]media.Class{
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
		if c, err := media.ClassifyReader(strings.NewReader(content)); c != want || err != nil {
			t.Errorf("%q: %+v, want %+v (%v)", content, c, want, err)
		}
	}
}

func TestClassifyMovFamily(t *testing.T) {
	moov := box(24, "moov", box(16, "mvhd", ""))
	large := "\x00\x00\x00\x01mdat" + string(binary.BigEndian.AppendUint64(nil, 100)) + strings.Repeat("x", 84)
	for name, file := range map[string]string{
		"isom": box(24, "ftyp", "isom"), "3gp": box(24, "ftyp", "3gp4"), "quicktime": box(20, "ftyp", "qt  "), "m4a": box(24, "ftyp", "M4A "),
		"fragment": box(24, "styp", "msdh"), "moov first": moov, "moov cut off": moov[:20],
		"mdat first": box(1000, "mdat", "") + moov, "large mdat": large + moov,
		"wide": box(8, "wide", "") + box(1000, "mdat", "") + moov, "free": box(32, "free", "") + moov,
		"skip": box(100, "skip", "") + moov, "pnot": box(20, "pnot", "") + moov,
	} {
		if c, err := media.ClassifyReader(strings.NewReader(file)); c.Kind != media.KindMP4 || err != nil {
			t.Errorf("%s: %v, %v", name, c, err)
		}
	}
}

func TestClassifyRealFiles(t *testing.T) {
	sound := mediatest.Spec{Tone: 440, Duration: 300 * time.Millisecond}
	for _, c := range []struct {
		container string
		output    []string
		want      media.Kind
	}{
		{"wav", nil, media.KindWAV},
		{"wav", []string{"-rf64", "always"}, media.KindWAV},
		{"mp3", nil, media.KindMP3},
		{"mp3", []string{"-id3v2_version", "0", "-write_xing", "0"}, media.KindMP3},
		{"mp3", []string{"-ar", "22050", "-b:a", "64k"}, media.KindMP3},
		{"mp3", []string{"-ar", "8000", "-b:a", "16k"}, media.KindMP3},
		{"aac", nil, media.KindAAC},
		{"flac", nil, media.KindFLAC},
		{"ogg", nil, media.KindOgg},
		{"m4a", nil, media.KindMP4},
		{"mka", nil, media.KindMatroska},
		{"webm", nil, media.KindMatroska},
		{"mp2", nil, media.KindUnknown},
		{"aiff", nil, media.KindUnknown},
	} {
		s := sound
		s.Container, s.Output = c.container, c.output
		if got, err := media.Classify(mediatest.Clip(t, s)); got.Kind != c.want || err != nil {
			t.Errorf("%s %v: %v, %v, want %v", c.container, c.output, got, err, c.want)
		}
	}
	if _, err := media.Classify(filepath.Join(t.TempDir(), "missing")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}

// TestClassifyFindsTheFirstFrame puts before the frames what real files have
// there; all of the sound is found behind it.
func TestClassifyFindsTheFirstFrame(t *testing.T) {
	size := 100000 // of a tag with a cover, syncsafe
	id3 := append([]byte{'I', 'D', '3', 4, 0, 0, byte(size >> 21), byte(size >> 14 & 0x7f), byte(size >> 7 & 0x7f), byte(size & 0x7f)}, make([]byte, size)...)
	ape := append([]byte("APETAGEX\xd0\x07\x00\x00"), binary.LittleEndian.AppendUint32(nil, 70032)...)
	ape = append(append(ape, make([]byte, 16)...), bytes.Repeat([]byte("cover \xff\xd8\xff"), 70032/9+1)[:70032]...)
	noise := make([]byte, 64<<10)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range noise {
		noise[i] = byte(random.Uint32())
	}
	bare := map[string][]string{"mp3": {"-id3v2_version", "0", "-write_xing", "0"}}
	r := newRunner(t)
	for container, kind := range map[string]media.Kind{"mp3": media.KindMP3, "aac": media.KindAAC} {
		raw, err := os.ReadFile(mediatest.Clip(t, mediatest.Spec{Tone: 440, Duration: 3 * time.Second, Container: container,
			Output: bare[container]}))
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
			"tag at the end":     slices.Concat(raw, []byte("TAG"), make([]byte, 125)),
			"cut at the end":     raw[:len(raw)-100],
			"two frames":         raw[:800],
		} {
			c, err := media.ClassifyReader(bytes.NewReader(file))
			if c.Kind != kind || err != nil {
				t.Errorf("%s, %s: %v, %v", container, name, c, err)
				continue
			}
			path := filepath.Join(t.TempDir(), "x")
			if err := os.WriteFile(path, file, 0o600); err != nil {
				t.Fatal(err)
			}
			walked, err := media.FramesDuration(path, kind)
			if want := 3 * time.Second; err != nil || name != "two frames" && (walked-want).Abs() > 120*time.Millisecond {
				t.Errorf("%s, %s: %v (%v), want about %v", container, name, walked, err, want)
			}
			if name == "60000 zeros" || name == "APE" { // ffprobe finds it, too
				all, err := r.Measure(t.Context(), path, kind, media.MeasureOptions{})
				if err != nil || len(all) != 1 || (all[0].Extent-walked).Abs() > 30*time.Millisecond {
					t.Errorf("%s, %s: %+v, %v", container, name, all, err)
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
			if c, err := media.ClassifyReader(bytes.NewReader(file)); c.Kind != media.KindUnknown || err != nil {
				t.Errorf("%s, %s: %v, %v", container, name, c, err)
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

func TestInputArgsForceTheDemuxer(t *testing.T) {
	got := strings.Join(media.InputArgs(media.KindMP4, "/job/-in put.mp4"), " ")
	if want := "-protocol_whitelist file -format_whitelist mov -f mov -i file:/job/-in put.mp4"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	got = strings.Join(media.InputArgs(media.KindWAV, "pipe:0"), " ")
	if want := "-protocol_whitelist pipe -format_whitelist wav -f wav -i pipe:0"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

func FuzzClassify(f *testing.F) {
	for _, content := range notMedia {
		f.Add([]byte(content))
	}
	f.Add([]byte("\xff\xfb\x90\x00"))
	f.Add([]byte("ID3\x04\x00\x10\x7f\x7f\x7f\x7f"))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := media.ClassifyReader(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.HasPrefix(b, []byte("#EXT")) && c.Kind != media.KindUnknown {
			t.Errorf("a playlist is %v", c)
		}
	})
}
