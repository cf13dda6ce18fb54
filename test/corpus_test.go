package test

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"cutroom/internal/testkit/apitest"
	"cutroom/internal/testkit/mediatest"
)

// maker returns a file and what a plain decoder hears in it, from its start, left and right at 48 kHz.
type maker func(t testing.TB) (path string, left, right []float64)

// corpus has one line for each file, of kinds that phones, recorders and messengers really send.
var corpus = map[string]maker{
	"mp3, rate and channels up":          plain(joined("m44.mp3", "s48.mp3")),
	"mp3, rate and channels down":        plain(joined("s48.mp3", "m16.mp3")),
	"mp3, three pieces":                  plain(joined("m16.mp3", "s48.mp3", "m44.mp3")),
	"mp3, tags between":                  plain(joined("s44x.mp3", "m44x.mp3")),
	"ADTS, rate and channels up":         plain(joined("m44.aac", "s48.aac")),
	"ADTS, rate down":                    plain(joined("s44.aac", "s22.aac")),
	"Ogg Vorbis, same":                   joined("s44.ogg", "s44.ogg"),
	"Ogg Vorbis, other":                  joined("m44.ogg", "s48.ogg"),
	"Ogg Opus":                           joined("m48.opus", "s48.opus"),
	"Ogg FLAC":                           joined("m44.oga", "s48.oga"),
	"FLAC, same":                         joined("s44.flac", "s44.flac"),
	"FLAC, other":                        joined("m44.flac", "s48.flac"),
	"WebM":                               joined("m48.webm", "s48.webm"),
	"mp3 in mp4":                         plain(copied("mp4", joined("m44.mp3", "s44.mp3"))),
	"mp3 in Matroska":                    plain(copied("mkv", joined("s48.mp3", "m44.mp3"))),
	"AAC in mp4":                         plain(copied("m4a", joined("m44.aac", "s44.aac"))),
	"AAC in Matroska":                    plain(copied("mkv", joined("s44.aac", "m44.aac"))),
	"AC-3 in mp4, stereo, then 5.1":      plain(copied("mp4", joined("s48.ac3", "x48.ac3"))),
	"fragments behind a short index":     plain(continued),
	"real: fragments behind an index":    plain(real("partially_fragmented.mp4")),
	"real: GSM":                          plain(real("gsm_ms.wav")),
	"real: two links":                    plain(real("ogg_two_links.ogg")),
	"AC-3 in Matroska, 5.1, then stereo": plain(copied("mkv", joined("x48.ac3", "s48.ac3"))),
}

// pieceLength is how long each piece of a joined file lasts.
const pieceLength = 2 * time.Second

// piece makes noise with a name such as m44.mp3: m, s or x for mono, stereo or 5.1, the rate in kHz, and the format.
func piece(t testing.TB, name string) string {
	t.Helper()
	return fixture(t, "piece "+name, func(t testing.TB) string {
		stem, format, _ := strings.Cut(name, ".")
		rate := map[string]int{"16": 16000, "22": 22050, "44": 44100, "48": 48000}[stem[1:3]]
		var noise []string
		count := map[byte]int{'m': 1, 's': 2, 'x': 6}[stem[0]]
		layout := map[byte]string{'m': "mono", 's': "stereo", 'x': "5.1"}[stem[0]]
		for i := range count {
			noise = append(noise, fmt.Sprintf("anoisesrc=r=%d:seed=%d:a=0.2:d=%g,lowpass=f=2000[n%d]", rate, 7*count+i, pieceLength.Seconds(), i))
		}
		inputs := ""
		for i := range count {
			inputs += fmt.Sprintf("[n%d]", i)
		}
		graph := strings.Join(noise, ";") + fmt.Sprintf(";%sjoin=inputs=%d:channel_layout=%s[out]", inputs, count, layout)
		encode := map[string][]string{
			"mp3": {"-write_xing", "0", "-id3v2_version", "0"}, "ogg": {"-c:a", "libvorbis"}, "oga": {"-c:a", "flac", "-f", "ogg"},
			"opus": {"-c:a", "libopus"}, "webm": {"-c:a", "libopus"},
		}[format]
		if strings.HasSuffix(stem, "x") {
			encode = []string{"-metadata", "title=A piece"}
		}
		return generate(t, name, append([]string{"-filter_complex", graph, "-map", "[out]", "-fflags", "-bitexact"}, encode...)...)
	})
}

// joined joins the bytes of pieces.
func joined(names ...string) maker {
	return func(t testing.TB) (path string, left, right []float64) {
		t.Helper()
		var all []byte
		for _, name := range names {
			path := piece(t, name)
			all = append(all, readFile(t, path)...)
			l, r := heard(t, path)
			left, right = append(left, l...), append(right, r...)
		}
		path = filepath.Join(t.TempDir(), "joined"+filepath.Ext(names[0]))
		if err := os.WriteFile(path, all, 0o600); err != nil {
			t.Fatal(err)
		}
		return path, left, right
	}
}

// copied copies the packets of a file into another container.
func copied(container string, make maker) maker {
	return func(t testing.TB) (path string, left, right []float64) {
		t.Helper()
		path, left, right = make(t)
		return mediatest.Remux(t, path, container), left, right
	}
}

// continued makes a film whose index has the first samples; the others follow in fragments. Its sound begins late, and the
// index has no edit list to say so.
func continued(t testing.TB) (path string, left, right []float64) {
	t.Helper()
	path = generate(t, "continued.mp4", "-f", "lavfi", "-i", "testsrc2=s=64x64:r=25:d=2", "-itsoffset", "0.044", "-i", piece(t, "m44.oga"),
		"-bf", "2", "-g", "10", "-c:a", "aac", "-movflags", "frag_keyframe")
	return path, nil, nil
}

// real is a file of CUTROOM_MEDIA_DIR.
func real(name string) maker {
	return func(t testing.TB) (path string, left, right []float64) {
		t.Helper()
		folder := os.Getenv("CUTROOM_MEDIA_DIR")
		if folder == "" {
			t.Skip("CUTROOM_MEDIA_DIR is not set")
		}
		return filepath.Join(folder, "real", name), nil, nil
	}
}

// plain has the file decoded as a whole, because the decoder of a piece alone drops other samples at its ends.
func plain(make maker) maker {
	return func(t testing.TB) (path string, left, right []float64) {
		t.Helper()
		path, _, _ = make(t)
		left, right = heard(t, path)
		return path, left, right
	}
}

// heard decodes a file without its clock.
func heard(t testing.TB, path string) (left, right []float64) {
	t.Helper()
	raw := mediatest.FFmpeg(t, "-threads", "1", "-i", "file:"+path, "-map", "0:a:0",
		"-af", "aformat=sample_fmts=fltp,aformat=channel_layouts=mono|stereo,pan=stereo|FL=FL+FC|FR=FR+FC,aresample=48000",
		"-c:a", "pcm_f32le", "-f", "f32le", "-")
	for i := 0; i+8 <= len(raw); i += 8 {
		left = append(left, float64(math.Float32frombits(binary.LittleEndian.Uint32(raw[i:]))))
		right = append(right, float64(math.Float32frombits(binary.LittleEndian.Uint32(raw[i+4:]))))
	}
	return left, right
}

// Every file of the corpus is heard in a film as a plain decoder hears it, and measured and priced as it is heard.
func TestCorpus(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	s := apitest.Start(t, apitest.Bucket(true))
	blank := generate(t, "blank.mp4", "-f", "lavfi", "-i", "color=s=64x64:r=5:d=20", "-c:v", "libx264", "-preset", "ultrafast")
	for name, c := range corpus {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := s.SignIn(t, apitest.Credits(5))
			path, left, right := c(t)
			length := time.Duration(len(left)) * time.Second / mediatest.SampleRate

			film := u.RenderFilm(t, M{"outputKind": "audio",
				"segments": []M{apitest.Segment("video_0", 0, length+time.Second)},
				"bgmClips": []M{{"audioFileKey": "bgm_0", "startMs": 0}},
			}, apitest.File("video_0", blank), apitest.File("bgm_0", path))
			sameSound(t, mediatest.Samples(t, film), left, right)

			key := uploadAsset(t, u, path, "m4a", "audio/mp4")
			var a analysis
			u.Post(t, analysisPath, M{"assetKey": key}).Expect(200).JSON(&a)
			near(t, "analysis", a.DurationMs, length)
			job := u.WaitReady(t, separateV3(t, u, M{"sourceAssetKey": key}))
			near(t, "the stems", job.ActualDurationMs, length)
		})
	}
}

func near(t testing.TB, what string, ms int64, want time.Duration) {
	t.Helper()
	if d := time.Duration(ms)*time.Millisecond - want; d.Abs() > 100*time.Millisecond {
		t.Errorf("%s lasts %d ms, a plain decoder hears %v", what, ms, want)
	}
}

// sameSound compares a film with what a plain decoder hears, in windows of 100 ms: their level, and by how much they are
// early or late.
func sameSound(t testing.TB, film [][]float64, left, right []float64) {
	t.Helper()
	const window = mediatest.SampleRate / 10
	worst := 0
	for side, want := range [][]float64{left, right} {
		got := film[min(side, len(film)-1)]
		for at := window; at+2*window < len(want); at += window {
			if at+2*window > len(got) {
				t.Fatalf("side %d ends after %d of %d samples", side, len(got), len(want))
			}
			w := want[at : at+window]
			if level(w) < -50 {
				continue
			}
			if d := level(got[at:at+window]) - level(w); math.Abs(d) > 3 {
				t.Errorf("side %d at %.1f s: %.1f dB, a plain decoder hears %.1f dB", side, float64(at)/mediatest.SampleRate,
					level(got[at:at+window]), level(w))
			}
			if at/window%4 == 1 {
				if l := lag(got, w, at); max(l, -l) > max(worst, -worst) {
					worst = l
				}
			}
		}
	}
	if late := time.Duration(worst) * time.Second / mediatest.SampleRate; late.Abs() > 35*time.Millisecond {
		t.Errorf("the sound is up to %v late", late)
	}
}

// level is the root mean square in dB of full scale.
func level(samples []float64) float64 {
	var sum float64
	for _, v := range samples {
		sum += v * v
	}
	return 10 * math.Log10(cmp.Or(sum, 1e-12)/float64(len(samples)))
}

// lag returns by how many samples the window that belongs at a place is late in the sound.
func lag(sound, window []float64, at int) int {
	const most, step = mediatest.SampleRate / 20, 8 // the noise ends at 2 kHz
	shifts := []int{}
	for shift := -most; shift <= most; shift += step {
		shifts = append(shifts, shift)
	}
	match := func(shift int) float64 {
		var sum, energy float64
		for i := 0; i < len(window); i += step {
			if n := at + shift + i; n >= 0 && n < len(sound) {
				sum += sound[n] * window[i]
				energy += sound[n] * sound[n]
			}
		}
		return sum / math.Sqrt(cmp.Or(energy, 1))
	}
	return slices.MaxFunc(shifts, func(a, b int) int { return cmp.Compare(match(a), match(b)) })
}
