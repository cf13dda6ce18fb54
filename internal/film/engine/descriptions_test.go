package engine_test

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"cutroom/internal/testkit/mediatest"
)

// atom is a box of an mp4, with a content or with boxes inside it.
type atom struct {
	kind    string
	content []byte
	inside  []*atom
}

func atoms(b []byte) (all []*atom) {
	for len(b) >= 8 {
		n := binary.BigEndian.Uint32(b)
		a := &atom{kind: string(b[4:8])}
		if strings.Contains("moov trak mdia minf stbl moof traf", a.kind) {
			a.inside = atoms(b[8:n])
		} else {
			a.content = slices.Clone(b[8:n])
		}
		all, b = append(all, a), b[n:]
	}
	return all
}

func (a *atom) append(b []byte) []byte {
	at := len(b)
	b = append(append(append(b, 0, 0, 0, 0), a.kind...), a.content...)
	for _, i := range a.inside {
		b = i.append(b)
	}
	binary.BigEndian.PutUint32(b[at:], uint32(len(b)-at))
	return b
}

// find returns the content of the first box of a kind, at any depth.
func find(all []*atom, kind string) *[]byte {
	for _, a := range all {
		if a.kind == kind {
			return &a.content
		}
		if c := find(a.inside, kind); c != nil {
			return c
		}
	}
	return nil
}

// described makes one fragmented mp4 from two files. Its fragments name the description of the file that they come
// from.
func described(t *testing.T, first, second string, ticks uint64) string {
	t.Helper()
	var files [2][]*atom
	for i, path := range []string{first, second} {
		fragmented := filepath.Join(t.TempDir(), "fragmented.mp4")
		mediatest.FFmpeg(t, "-i", path, "-map", "0", "-c", "copy", "-movflags", "frag_keyframe+empty_moov+default_base_moof", fragmented)
		file, err := os.ReadFile(fragmented)
		if err != nil {
			t.Fatal(err)
		}
		files[i] = atoms(file)
	}
	entries := find(files[0], "stsd")
	*entries = append(*entries, (*find(files[1], "stsd"))[8:]...)
	(*entries)[7] = 2
	var joined []byte
	for _, a := range append(files[0], files[1]...) {
		if (a.kind == "moof" || a.kind == "mdat") && slices.Contains(files[1], a) || slices.Contains(files[0], a) && a.kind != "mfra" {
			if a.kind == "moof" && slices.Contains(files[1], a) {
				fragment, run, at := find(a.inside, "tfhd"), find(a.inside, "trun"), find(a.inside, "tfdt")
				(*fragment)[3] |= 2
				*fragment = slices.Insert(*fragment, 8, 0, 0, 0, 2)
				binary.BigEndian.PutUint32((*run)[8:], binary.BigEndian.Uint32((*run)[8:])+4)
				binary.BigEndian.PutUint64((*at)[4:], binary.BigEndian.Uint64((*at)[4:])+ticks)
			}
			joined = a.append(joined)
		}
	}
	path := filepath.Join(t.TempDir(), "described.mp4")
	if err := os.WriteFile(path, joined, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// ffmpeg decodes all fragments by the first description of their track. Fragments that need another one fail with a
// sentence instead of frozen pictures, noise or sound at a wrong pitch. The same description twice changes nothing.
func TestFragmentsThatChangeTheirDescription(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	clip := func(encode ...string) string {
		path := filepath.Join(t.TempDir(), "clip.mp4")
		mediatest.FFmpeg(t, append(append([]string{"-f", "lavfi", "-i", "testsrc2=s=160x120:r=25:d=0.4", "-bf", "0"}, encode...), path)...)
		return path
	}
	tone := func(rate string) string {
		path := filepath.Join(t.TempDir(), "tone.mp4")
		mediatest.FFmpeg(t, "-f", "lavfi", "-i", "sine=440:d=0.5", "-ar", rate, "-c:a", "aac", path)
		return path
	}
	baseline := clip("-c:v", "libx264", "-profile:v", "baseline")
	high := clip("-c:v", "libx264", "-profile:v", "high")
	hevc := func(size string) string {
		return clip("-c:v", "libx265", "-preset", "ultrafast", "-tag:v", "hvc1", "-x265-params", "log-level=error:bframes=0:ctu="+size)
	}
	pictures := "source_unreadable: segments[0]: the file changes how its pictures are encoded on the way"
	for name, c := range map[string]struct{ path, want string }{
		"H.264": {described(t, baseline, high, 5120), pictures},
		"HEVC":  {described(t, hevc("16"), hevc("32"), 5120), pictures},
		"both":  {described(t, baseline, hevc("16"), 5120), pictures},
		"AAC":   {described(t, tone("48000"), tone("44100"), 24000), "source_unreadable: segments[0]: the file changes how its sound is encoded on the way"},
	} {
		if got := b.fails(t, film(cut(c.path, 0, 0))); !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	same := described(t, high, high, 5120)
	if file, err := os.ReadFile(same); err != nil || bytes.Count(file, []byte("avcC")) != 2 {
		t.Fatalf("not two descriptions: %v", err)
	}
	mediatest.ConstantRate(t, b.render(t, film(cut(same, 0, 0))).Path, 25, 20, 0)
}
