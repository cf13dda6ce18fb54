package media_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
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

func TestSniffKnowsNothingOfStrangers(t *testing.T) {
	for name, content := range notMedia {
		if k, err := media.SniffReader(strings.NewReader(content)); k != media.KindUnknown || err != nil {
			t.Errorf("%s: %v, %v", name, k, err)
		}
	}
}

func TestClaims(t *testing.T) {
	for content, want := range map[string]media.Kind{
		"\x00\x00\x00\x18ftypM4A ":              media.KindMP4,
		"\x00\x00\x00\x18ftypM4B \x00junk":      media.KindMP4,
		"\x00\x00\x00\x18ftypisom":              media.KindUnknown,
		"\x00\x00\x00\x18ftypM4V ":              media.KindUnknown,
		"ftypM4A \x00\x00\x00\x00":              media.KindUnknown,
		"ID3\x03\x00\x00\x00\x00\x00\x7f":       media.KindMP3,
		"ID3\x03\x00\x00\x00\x00\x00\x80":       media.KindUnknown,
		"ID3\x05\x00\x00\x00\x00\x00\x00":       media.KindUnknown,
		"ID3 is how titles are written":         media.KindUnknown,
		"ID3":                                   media.KindUnknown,
		"\xff\xfb\x90\x00 and then nonsense":    media.KindMP3,
		"\xff\xf3\x00\x00":                      media.KindMP3,
		"\xff\xfd\x90\x00 layer II":             media.KindUnknown,
		"\xff\xeb\x90\x00 no such version":      media.KindUnknown,
		"\xff\xfet\x00e\x00x\x00t\x00":          media.KindUnknown,
		"\xff\xf1\x50\x80 ADTS":                 media.KindUnknown,
		"\xff\xfb":                              media.KindUnknown,
		"#EXTM3U\n":                             media.KindUnknown,
		"":                                      media.KindUnknown,
		"ID3\x04\x00\x00\x00\x00\x00\x00fLaC..": media.KindUnknown,
	} {
		path := filepath.Join(t.TempDir(), "content")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if k, err := media.Claims(path); k != want || err != nil {
			t.Errorf("%q: %v, want %v (%v)", content, k, want, err)
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
		if k, err := media.SniffReader(strings.NewReader(file)); k != media.KindMP4 || err != nil {
			t.Errorf("%s: %v, %v", name, k, err)
		}
	}
}

func TestSniffRealFiles(t *testing.T) {
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
		if k, err := media.Sniff(mediatest.Clip(t, s)); k != c.want || err != nil {
			t.Errorf("%s %v: %v, %v, want %v", c.container, c.output, k, err, c.want)
		}
	}
	if _, err := media.Sniff(filepath.Join(t.TempDir(), "missing")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}

func TestSniffLooksBehindID3(t *testing.T) {
	mp3, err := os.ReadFile(mediatest.Clip(t, mediatest.Spec{Tone: 440, Container: "mp3", Output: []string{"-id3v2_version", "0"}}))
	if err != nil {
		t.Fatal(err)
	}
	// A tag of 100000 bytes (a cover), syncsafe, and padding behind it.
	size := 100000
	tag := []byte{'I', 'D', '3', 4, 0, 0, byte(size >> 21), byte(size >> 14 & 0x7f), byte(size >> 7 & 0x7f), byte(size & 0x7f)}
	file := slices.Concat(tag, make([]byte, size), make([]byte, 300), mp3)
	if k, err := media.SniffReader(bytes.NewReader(file)); k != media.KindMP3 || err != nil {
		t.Errorf("%v, %v", k, err)
	}
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

func FuzzSniff(f *testing.F) {
	for _, content := range notMedia {
		f.Add([]byte(content))
	}
	f.Add([]byte("\xff\xfb\x90\x00"))
	f.Add([]byte("ID3\x04\x00\x10\x7f\x7f\x7f\x7f"))
	f.Fuzz(func(t *testing.T, b []byte) {
		k, err := media.SniffReader(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		if len(b) > 0 && b[0] == '#' && k != media.KindUnknown {
			t.Errorf("a playlist is %v", k)
		}
	})
}
