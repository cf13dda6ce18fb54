// A corpus of sound files that phones, recorders and messengers send. Each is heard in films and stems, and measured,
// as a plain decoder hears it.

package test

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"cutroom/internal/sandbox/separator"
	"cutroom/internal/testkit/apitest"
	"cutroom/internal/testkit/mediatest"
)

// maker returns a file and what a plain decoder hears in it, from its start, left and right at 48 kHz.
type maker func(t testing.TB) (path string, left, right []float64)

// corpus has one line for each file, of kinds that phones, recorders and messengers really send.
var corpus = map[string]maker{
	"mp3, rate and channels up":   plain(joined("m44.mp3", "s48.mp3")),
	"mp3, rate and channels down": plain(joined("s48.mp3", "m16.mp3")),
	"mp3, three pieces":           plain(joined("m16.mp3", "s48.mp3", "m44.mp3")),
	"mp3, tags between":           plain(joined("s44x.mp3", "m44x.mp3")),
	"ADTS, rate and channels up":  plain(joined("m44.aac", "s48.aac")),
	"ADTS, rate down":             plain(joined("s44.aac", "s22.aac")),
	"Ogg Vorbis, same":            joined("s44.ogg", "s44.ogg"),
	"Ogg Vorbis, other":           joined("m44.ogg", "s48.ogg"),
	"Ogg Opus":                    joined("m48.opus", "s48.opus"),
	"Ogg FLAC":                    joined("m44.oga", "s48.oga"),
	"FLAC, same":                  joined("s44.flac", "s44.flac"),
	"FLAC, other":                 joined("m44.flac", "s48.flac"),
	"WebM":                        joined("m48.webm", "s48.webm"),
	"mp3 in mp4":                  plain(copied("mp4", joined("m44.mp3", "s44.mp3"))),
	"mp3 in Matroska":             plain(copied("mkv", joined("s48.mp3", "m44.mp3"))),
	"AAC in mp4":                  plain(copied("m4a", joined("m44.aac", "s44.aac"))),
	// Stereo that becomes mono is not here: ffmpeg leaves in the right channel what its buffer had.
	"AAC in Matroska":                    plain(copied("mkv", joined("m44.aac", "s44.aac"))),
	"AC-3 in mp4, stereo, then 5.1":      plain(copied("mp4", joined("s48.ac3", "x48.ac3"))),
	"fragments behind a short index":     plain(continued),
	"real: fragments behind an index":    plain(real("partially_fragmented.mp4")),
	"real: GSM":                          plain(real("gsm_ms.wav")),
	"FLAC, tags between":                 joined("s44.flac", "s44x.flac"),
	"Ogg Opus, three links":              joined("m48.opus", "s48.opus", "m48.opus"),
	"AC-3 in mp4, one, two, six":         plain(copied("mp4", joined("m48.ac3", "s48.ac3", "x48.ac3"))),
	"real: two links":                    plain(real("ogg_two_links.ogg")),
	"real: mono and stereo in turns":     plain(real("mono_stereo_switch.mp3")),
	"real: stereo behind mono":           plain(real("mp3_mono_then_stereo.mp3")),
	"AC-3 in Matroska, 5.1, then stereo": plain(copied("mkv", joined("x48.ac3", "s48.ac3"))),
	"AC-3 in mp4, rate down":             plain(copied("mp4", joined("s48.ac3", "s44.ac3"))),
	"AC-3 in Matroska, rate down":        plain(copied("mkv", joined("s44.ac3", "s32.ac3"))),
	"mp3 behind garbage":                 joined("garbage/100000", "s48.mp3"),
	"mp3 behind 127 KiB of garbage":      joined("garbage/130048", "m44t.mp3"),
	"ADTS behind garbage":                joined("garbage/100000", "s48.aac"),
	"mp3, Xing header between":           plain(joined("s44.mp3", "s44t.mp3")),
	"mp3, many tags between":             plain(joined("s44x.mp3", "s44x.mp3", "s44x.mp3", "s44x.mp3", "s44x.mp3", "s44x.mp3")),
	"mp3, covers between":                plain(joined("s44.mp3", "garbage/100000", "s44.mp3", "garbage/100000", "s44.mp3")),
	"FLAC, padding behind":               joined("s44.flac", "zeros/5000"),
	"WebM, three recordings":             joined("s48.webm", "m48.webm", "s48.webm"), // a plain decoder skips the second
	"AAC in mp4, two descriptions":       plain(redescribed),
	"MS ADPCM":                           plain(adpcm),
	"real: HE-AAC behind AAC":            plain(joined("s44.aac", "real/aac_he_v2.aac")),
	"real: HE-AAC behind AAC, rate up":   plain(joined("s22.aac", "real/aac_he_v2.aac")),
}

// pieceLength is how long each piece of a joined file lasts.
const pieceLength = 2 * time.Second

// piece makes noise with a name such as m44.mp3: m, s or x for mono, stereo or 5.1, the rate in kHz, x for all tags or
// t for only an mp3 encoder's tag, and the format. Names in real/ are files of CUTROOM_MEDIA_DIR.
func piece(t testing.TB, name string) string {
	t.Helper()
	if strings.HasPrefix(name, "real/") {
		return filepath.Join(os.Getenv("CUTROOM_MEDIA_DIR"), name)
	}
	return fixture(t, "piece "+name, func(t testing.TB) string {
		stem, format, _ := strings.Cut(name, ".")
		rate := map[string]int{"16": 16000, "22": 22050, "32": 32000, "44": 44100, "48": 48000}[stem[1:3]]
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
		switch {
		case strings.HasSuffix(stem, "x"):
			encode = []string{"-metadata", "title=A piece"}
		case strings.HasSuffix(stem, "t"):
			encode = []string{"-id3v2_version", "0"}
		}
		return generate(t, name, append([]string{"-filter_complex", graph, "-map", "[out]", "-fflags", "-bitexact"}, encode...)...)
	})
}

// joined joins the bytes of pieces, and of garbage or zeros, whose names state how many bytes.
func joined(names ...string) maker {
	return func(t testing.TB) (path string, left, right []float64) {
		t.Helper()
		var all []byte
		ext := ""
		for _, name := range names {
			if what, number, _ := strings.Cut(name, "/"); what == "garbage" || what == "zeros" {
				n, err := strconv.Atoi(number)
				if err != nil {
					t.Fatal(err)
				}
				between := make([]byte, n)
				if what == "garbage" {
					_, _ = rand.NewChaCha8([32]byte{}).Read(between) // never fails
				}
				all = append(all, between...)
				continue
			}
			path := piece(t, name)
			all = append(all, readFile(t, path)...)
			l, r := heard(t, path)
			left, right = append(left, l...), append(right, r...)
			ext = filepath.Ext(name)
		}
		path = filepath.Join(t.TempDir(), "joined"+ext)
		if err := os.WriteFile(path, all, 0o600); err != nil {
			t.Fatal(err)
		}
		return path, left, right
	}
}

// adpcm makes sound whose length does not follow from its bytes: each of its small blocks begins with a header.
func adpcm(t testing.TB) (path string, left, right []float64) {
	t.Helper()
	path = generate(t, "adpcm.wav", "-f", "lavfi", "-i", "anoisesrc=r=22050:seed=1:a=0.2:d=8,lowpass=f=2000",
		"-c:a", "adpcm_ms", "-block_size", "256")
	return path, nil, nil
}

// redescribed makes an mp4 whose one track of sound has two sample descriptions: mono, then stereo.
func redescribed(t testing.TB) (path string, left, right []float64) {
	t.Helper()
	path, _, _ = copied("m4a", joined("m44.aac", "s44.aac"))(t)
	second := readFile(t, mediatest.Remux(t, piece(t, "s44.aac"), "m4a"))
	file := readFile(t, path)
	number := binary.BigEndian.Uint32
	// content returns where the content of a box begins and ends; the index follows the media.
	content := func(b []byte, kind string) (from, to int) {
		from = bytes.LastIndex(b, []byte(kind)) + 4
		return from, from - 8 + int(number(b[from-8:]))
	}
	// replace edits the content of a box, and the sizes of all boxes around it.
	replace := func(kind string, edit func(content []byte) []byte) {
		from, to := content(file, kind)
		edited := edit(slices.Clone(file[from:to]))
		for _, around := range []string{"moov", "trak", "mdia", "minf", "stbl", kind} {
			at, _ := content(file, around)
			binary.BigEndian.PutUint32(file[at-8:], uint32(int(number(file[at-8:]))+len(edited)-(to-from)))
		}
		file = slices.Replace(file, from, to, edited...)
	}
	replace("stsd", func(b []byte) []byte {
		from, to := content(second, "stsd")
		b[7] = 2
		return append(b, second[from+8:to]...)
	})
	// Each sample becomes a chunk.
	first := bytes.Count(readFile(t, piece(t, "m44.aac")), []byte{0xff, 0xf1})
	from, _ := content(file, "stsz")
	sizes := file[from+12:][:4*number(file[from+8:])]
	from, _ = content(file, "stco")
	offset := number(file[from+8:])
	var chunks []byte
	for size := range slices.Chunk(sizes, 4) {
		chunks = binary.BigEndian.AppendUint32(chunks, offset)
		offset += number(size)
	}
	chunks = append(binary.BigEndian.AppendUint32(make([]byte, 4), uint32(len(sizes)/4)), chunks...)
	replace("stco", func([]byte) []byte { return chunks })
	replace("stsc", func([]byte) []byte {
		b := []byte{0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1}
		return binary.BigEndian.AppendUint32(append(binary.BigEndian.AppendUint32(b, uint32(first+1)), 0, 0, 0, 1), 2)
	})
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	return path, nil, nil
}

// copied copies the packets of a file into another container.
func copied(container string, make maker) maker {
	return func(t testing.TB) (path string, left, right []float64) {
		t.Helper()
		path, left, right = make(t)
		return mediatest.Remux(t, path, container), left, right
	}
}

// continued makes a film whose index has the first samples; the others follow in fragments. Its sound begins late, and
// the index has no edit list to say so.
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

// plain decodes the file as a whole, because the decoder of a single piece drops different samples at its ends.
func plain(make maker) maker {
	return func(t testing.TB) (path string, left, right []float64) {
		t.Helper()
		path, _, _ = make(t)
		left, right = heard(t, path)
		if filepath.Ext(path) == ".aac" { // a film leaves out the first frame, which only primes the decoder
			priming := 1024 * mediatest.SampleRate / mediatest.Inspect(t, path).Audio(t).SampleRate
			left, right = left[priming:], right[priming:]
		}
		return path, left, right
	}
}

// heard decodes a file without its clock: a single channel to both sides, and surround folded down as ITU-R BS.775
// says.
func heard(t testing.TB, path string) (left, right []float64) {
	t.Helper()
	raw := mediatest.FFmpeg(t, "-threads", "1", "-i", "file:"+path, "-map", "0:a:0",
		"-af", "aformat=sample_fmts=fltp,pan=5.1|c0=c0|c1=c1|c2=c2|c3=c3|c4=c4|c5=c5,aresample=48000",
		"-c:a", "pcm_f32le", "-f", "f32le", "-")
	const block = mediatest.SampleRate / 100
	for samples := range slices.Chunk(raw, 6*4*block) {
		n := len(samples) / 24
		var channels [6][]float64
		silent := true // but for the first channel
		for c := range channels {
			channels[c] = make([]float64, n)
			for i := range n {
				v := math.Float32frombits(binary.LittleEndian.Uint32(samples[24*i+4*c:]))
				channels[c][i] = float64(v)
				silent = silent && (c == 0 || v == 0)
			}
		}
		if silent {
			left, right = append(left, channels[0]...), append(right, channels[0]...)
			continue
		}
		for i := range n {
			left = append(left, channels[0][i]+math.Sqrt2/2*(channels[2][i]+channels[4][i]))
			right = append(right, channels[1][i]+math.Sqrt2/2*(channels[2][i]+channels[5][i]))
		}
	}
	return left, right
}

// Every file of the corpus is heard in a film as a plain decoder hears it, and measured as it is heard.
func TestCorpus(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	s := apitest.Start(t, apitest.Bucket(true), apitest.Env("SEPARATION_MAX_PROVIDER_IN_FLIGHT", "1"))
	s.World.Separator.Configure(func(b *separator.Behaviour) { b.HoldAtPercent = 1 }) // only prices matter here
	blank := generate(t, "blank.mp4", "-f", "lavfi", "-i", "color=s=64x64:r=5:d=60", "-c:v", "libx264", "-preset", "ultrafast")
	all := slices.Sorted(maps.Keys(corpus))
	if os.Getenv("CUTROOM_MEDIA_DIR") == "" {
		t.Log("CUTROOM_MEDIA_DIR is not set: the real files are left out")
		all = slices.DeleteFunc(all, func(name string) bool { return strings.HasPrefix(name, "real: ") })
	}
	for names := range slices.Chunk(all, 8) {
		t.Run("", func(t *testing.T) { // one film, because starting programs takes longest
			t.Parallel()
			u := s.SignIn(t, apitest.Credits(16))
			film := &concert{priced: map[string]recital{}}
			for i, name := range names {
				path, left, right := corpus[name](t)
				t.Run(name, func(t *testing.T) { film.add(t, u, path, left, right, fmt.Sprintf("bgm_%d", i)) })
			}
			film.render(t, u, blank)
		})
	}
}

// concert is a film that plays files one after another.
type concert struct {
	clips []M
	parts []apitest.Part
	files []recital
	end   time.Duration

	priced map[string]recital // separation job -> what it separates
}

// recital is a file in a concert.
type recital struct {
	name        string
	left, right []float64
	at          int // its first sample in the film
	length      time.Duration
}

func (c *concert) add(t testing.TB, u *apitest.User, path string, left, right []float64, part string) {
	t.Helper()
	length := time.Duration(len(left)) * time.Second / mediatest.SampleRate
	c.clips = append(c.clips, M{"audioFileKey": part, "startMs": c.end.Milliseconds()})
	c.parts = append(c.parts, apitest.File(part, path))
	r := recital{t.Name(), left, right, int(c.end.Milliseconds()) * mediatest.SampleRate / 1000, length}
	c.files = append(c.files, r)
	c.end += (length + 100*time.Millisecond).Truncate(time.Millisecond)

	var a analysis
	key := uploadAsset(t, u, path, "m4a", "audio/mp4")
	whenFree(t, func() *apitest.Response { return u.Post(t, analysisPath, M{"assetKey": key}) }).Expect(200).JSON(&a)
	near(t, "analysis", a.DurationMs, length)
	c.priced[separateV3(t, u, M{"sourceAssetKey": key})] = r
	if strings.Contains(".mp3 .m4a .wav", filepath.Ext(path)) {
		c.priced[u.Separate(t, path)] = r
	}
	if a.Peaks == nil {
		t.Fatal("the analysis heard nothing")
	}
	perPixel := a.Peaks.SamplesPerPixel * mediatest.SampleRate / a.Peaks.SampleRate
	pair := 2 * a.Peaks.Channels
	reach := max(1, mediatest.SampleRate/25/perPixel)
	for i := reach; i < len(left)/perPixel-reach; i++ {
		loudest, drawn := 0.0, 0
		for at := i * perPixel; at < (i+1)*perPixel; at++ {
			loudest = max(loudest, math.Abs(left[at]+right[at])/2)
		}
		for _, v := range a.Peaks.Data[pair*(i-reach) : min(pair*(i+reach+1), len(a.Peaks.Data))] {
			drawn = max(drawn, v, -v)
		}
		// The waveform is the mean of as many channels as the file ever has.
		if scale := float64(int(1) << (a.Peaks.Bits - 1)); float64(drawn) < loudest/12*scale-1 {
			t.Fatalf("the analysis draws %d at %v, a plain decoder hears %.0f", drawn,
				time.Duration(i*perPixel)*time.Second/mediatest.SampleRate, loudest*scale)
		}
	}
}

func (c *concert) render(t *testing.T, u *apitest.User, blank string) {
	film := mediatest.Samples(t, u.RenderFilm(t, M{"outputKind": "audio",
		"segments": []M{apitest.Segment("video_0", 0, c.end)}, "bgmClips": c.clips,
	}, append(c.parts, apitest.File("video_0", blank))...))
	for _, j := range history(t, u, "/api/v2/separate", "50") {
		near(t, c.priced[j.JobID].name+" "+j.FileName+": the priced sound", j.SourceDurationMs, c.priced[j.JobID].length)
	}
	for _, f := range c.files {
		name := f.name[strings.LastIndexByte(f.name, '/')+1:]
		t.Run(name, func(t *testing.T) {
			sameSound(t, [][]float64{film[0][f.at:], film[len(film)-1][f.at:]}, f.left, f.right)
		})
	}
}

// Sound that changes is heard in every use of a file: as a segment, trimmed, slowed down, and in stems.
func TestSoundThatChangesEverywhere(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	s := apitest.Start(t, apitest.Bucket(true))
	for _, name := range []string{"mp3, rate and channels up", "Ogg FLAC", "AC-3 in mp4, stereo, then 5.1", "WebM"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := s.SignIn(t)
			path, left, right := corpus[name](t)
			length := time.Duration(len(left)) * time.Second / mediatest.SampleRate
			const whole = 2 * pieceLength
			film := mediatest.Samples(t, u.RenderFilm(t, M{"outputKind": "audio", "segments": []M{
				apitest.With(apitest.Segment("audio_0", 0, whole), M{"trimEndMs": whole.Milliseconds()}),
				apitest.With(apitest.Segment("audio_0", 1, time.Second), M{"trimStartMs": 2500, "trimEndMs": 3500}),
				apitest.With(apitest.Segment("audio_0", 2, 2*whole), M{"speedScale": 0.5}),
			}}, apitest.File("audio_0", path)))
			second := mediatest.SampleRate
			part := func(from, to int) [][]float64 { return [][]float64{film[0][from:to], film[1][from:to]} }
			sameSound(t, part(0, 4*second), left[:4*second], right[:4*second])
			sameSound(t, part(4*second, 5*second), left[second*5/2:second*7/2], right[second*5/2:second*7/2])
			for side, want := range [][]float64{left, right} {
				for at := second / 4; at < second*7/2; at += second / 4 {
					slow := film[side][5*second+2*at:][:second/2]
					if d := level(slow) - level(want[at:at+second/4]); math.Abs(d) > 3 {
						t.Errorf("side %d at half speed: %.1f dB louder at %.2f s", side, d, float64(at)/mediatest.SampleRate)
					}
				}
			}

			key := uploadAsset(t, u, path, "m4a", "audio/mp4")
			job := u.WaitReady(t, separateV3(t, u, M{"sourceAssetKey": key}))
			near(t, "the stems", job.ActualDurationMs, length)
			voice := mediatest.Samples(t, s.DownloadStem(t, job.Stem(t, "voice_all")))
			background := mediatest.Samples(t, s.DownloadStem(t, job.Stem(t, "background")))
			sides := make([][]float64, 2)
			for side := range sides {
				v, b := voice[min(side, len(voice)-1)], background[min(side, len(background)-1)]
				for i := range min(len(v), len(b)) {
					sides[side] = append(sides[side], v[i]+b[i])
				}
			}
			sameSound(t, sides, left, right)
		})
	}
}

func near(t testing.TB, what string, ms int64, want time.Duration) {
	t.Helper()
	if d := time.Duration(ms)*time.Millisecond - want; d.Abs() > 100*time.Millisecond {
		t.Errorf("%s lasts %d ms, a plain decoder hears %v", what, ms, want)
	}
}

// sameSound compares a film with what a plain decoder hears, in windows of 100 ms: their level, and by how much they
// are early or late.
func sameSound(t testing.TB, film [][]float64, left, right []float64) {
	t.Helper()
	const window = mediatest.SampleRate / 10
	for side, want := range [][]float64{left, right} {
		got := film[min(side, len(film)-1)]
		for at := window; at+2*window < len(want); at += window {
			if at+2*window > len(got) {
				t.Fatalf("side %d ends after %d of %d samples", side, len(got), len(want))
			}
			w, begins := want[at:at+window], float64(at)/mediatest.SampleRate
			if level(w) < -50 {
				continue
			}
			if d := level(got[at:at+window]) - level(w); math.Abs(d) > 2 {
				t.Errorf("side %d at %.1f s: %.1f dB, a plain decoder hears %.1f dB", side, begins, level(got[at:at+window]), level(w))
			}
			if at/window%4 == 1 {
				if late, alike := lag(got, w, at); late.Abs() > 30*time.Millisecond || alike < 0.5 {
					t.Errorf("side %d at %.1f s is %v late, and like what a plain decoder hears by %.2f", side, begins, late, alike)
				}
			}
		}
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

// lag returns how late the sound plays the window that belongs at a position, and how alike the two are there: 1 if
// they differ only in level.
func lag(sound, window []float64, at int) (late time.Duration, alike float64) {
	const most, step = mediatest.SampleRate / 20, 8 // the noise ends at 2 kHz
	var own float64
	for i := 0; i < len(window); i += step {
		own += window[i] * window[i]
	}
	for shift := -most; shift <= most; shift += step {
		var sum, energy float64
		for i := 0; i < len(window); i += step {
			if n := at + shift + i; n >= 0 && n < len(sound) {
				sum += sound[n] * window[i]
				energy += sound[n] * sound[n]
			}
		}
		// Sound that repeats itself is alike in many places: the nearest of them counts.
		d := time.Duration(shift) * time.Second / mediatest.SampleRate
		if r := sum / math.Sqrt(cmp.Or(energy*own, 1)); r > alike+0.02 || r > alike-0.02 && d.Abs() < late.Abs() {
			late, alike = d, max(alike, r)
		}
	}
	return late, alike
}

// A separation fails and is refunded if only a part of its cut decodes: its stems would be silent where the file has
// sound.
func TestACutWithDamageBehindAChangeFails(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	s := apitest.Start(t, apitest.Bucket(true))
	u := s.SignIn(t)
	second := readFile(t, piece(t, "s44.aac"))
	const header = 7 // bytes of an ADTS header without a checksum
	for rest := second; len(rest) > header; {
		length := int(rest[3]&3)<<11 | int(rest[4])<<3 | int(rest[5])>>5
		for i := header; i < length; i++ {
			rest[i] = 0xff
		}
		rest = rest[length:]
	}
	path := filepath.Join(t.TempDir(), "damaged.aac")
	if err := os.WriteFile(path, append(readFile(t, piece(t, "m44.aac")), second...), 0o600); err != nil {
		t.Fatal(err)
	}
	before := u.Balance(t)
	key := uploadAsset(t, u, mediatest.Remux(t, path, "mkv"), "m4a", "audio/mp4")
	job := u.WaitSeparation(t, separateV3(t, u, M{"sourceAssetKey": key}), "FAILED")
	if job.ErrorCode != "source_unreadable" {
		t.Errorf("the job failed with %q: %s", job.ErrorCode, job.Error)
	}
	if after := u.Balance(t); after != before {
		t.Errorf("the failed job cost %d credits", before-after)
	}
}

// If a FLAC has lost its end, films of it fail and separations refuse it, unless they use only what is there.
func TestAFLACThatLostItsEnd(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	s := apitest.Start(t, apitest.Bucket(true))
	u := s.SignIn(t)
	file := readFile(t, piece(t, "s44.flac"))
	binary.BigEndian.PutUint32(file[22:], 6*44100) // the samples that its header counts
	path := filepath.Join(t.TempDir(), "lost.flac")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	film := func(trimEnd time.Duration) string {
		segment := apitest.With(apitest.Segment("audio_0", 0, time.Second), M{"trimEndMs": trimEnd.Milliseconds()})
		return u.Render(t, M{"outputKind": "audio", "segments": []M{segment}}, apitest.File("audio_0", path))
	}
	if st := u.WaitFinished(t, film(5*time.Second)); st.Status != "FAILED" || st.ErrorCode != "source_unreadable" {
		t.Errorf("a film of what is missing: %+v", st)
	}
	u.WaitRendered(t, film(time.Second))

	before := u.Balance(t)
	key := uploadAsset(t, u, path, "m4a", "audio/mp4")
	u.Post(t, separateV3Path, M{"sourceAssetKey": key}).
		Error(400, "sourceAssetKey names a damaged file: only 2.0 s of 6.0 s of the sound are there")
	if after := u.Balance(t); after != before {
		t.Errorf("the refused job cost %d credits", before-after)
	}
	u.WaitReady(t, separateV3(t, u, M{"sourceAssetKey": key, "trimEndMs": 1900}))
}

// Sound of less than a millisecond is refused before it costs anything, and everything longer has stems.
func TestTheShortestSound(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	s := apitest.Start(t, apitest.Bucket(true))
	u := s.SignIn(t)
	before := u.Balance(t)
	sound := func(samples int) (path, key string) {
		path = generate(t, "short.wav", "-f", "lavfi", "-i", "anoisesrc=r=48000:d=0.1", "-af", fmt.Sprintf("atrim=end_sample=%d", samples))
		return path, uploadAsset(t, u, path, "m4a", "audio/mp4")
	}
	for _, samples := range []int{1, 40} {
		path, key := sound(samples)
		u.Post(t, separateV3Path, M{"sourceAssetKey": key}).
			Error(400, "sourceAssetKey names a file with less than a millisecond of sound between the trims")
		u.Send(t, apitest.Request{Method: "POST", Path: "/api/v2/separate", Form: apitest.SeparationForm(path), Valid: true}).
			Error(400, "file: the sound is shorter than a millisecond")
	}
	if after := u.Balance(t); after != before {
		t.Errorf("refused jobs cost %d credits", before-after)
	}
	path, key := sound(48)
	u.WaitReady(t, separateV3(t, u, M{"sourceAssetKey": key}))
	u.WaitReady(t, u.Separate(t, path))
}

// Each picture in the fragments after a short index is in the film, at the time when a player shows it. Without an edit
// list, the first picture comes two frames late, because B-frames delay it.
func TestPicturesBehindAShortIndex(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	clip := generate(t, "clip.mp4", "-f", "lavfi", "-i", "color=black:s=256x64:r=25:d=2"+numbered, "-itsoffset", "0.044",
		"-i", piece(t, "m44.oga"), "-pix_fmt", "yuv420p", "-bf", "2", "-g", "10", "-c:a", "aac", "-movflags", "frag_keyframe")
	film := apitest.Shared(t).SignIn(t).RenderFilm(t, M{"segments": []M{apitest.Segment("video_0", 0, 2*time.Second)}}, apitest.File("video_0", clip))
	mediatest.ConstantRate(t, film, 25, 52, time.Millisecond)
	for i, picture := range mediatest.Frames(t, film, mediatest.Every(20*time.Millisecond, 40*time.Millisecond, 52)...) {
		if n := numberOf(picture, picture.Bounds()); n != max(0, i-2) {
			t.Errorf("frame %d of the film is frame %d of the clip, want %d", i, n, max(0, i-2))
		}
	}
}

// A Matroska file that was cut without re-encoding may begin at negative times, with the frames from its key frame to
// the cut. Each is shown in its place.
func TestPicturesBelowZero(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	whole := generate(t, "whole.mp4", "-f", "lavfi", "-i", "color=black:s=256x64:r=25:d=4"+numbered, "-pix_fmt", "yuv420p", "-bf", "2", "-g", "50")
	clip := generate(t, "clip.mkv", "-ss", "0.72", "-i", whole, "-c", "copy", "-avoid_negative_ts", "disabled")
	for _, from := range []time.Duration{0, 400 * time.Millisecond, 2400 * time.Millisecond} {
		segment := apitest.With(apitest.Segment("video_0", 0, 4*time.Second), M{"trimStartMs": from.Milliseconds(), "trimEndMs": (from + time.Second).Milliseconds()})
		film := apitest.Shared(t).SignIn(t).RenderFilm(t, M{"segments": []M{segment}}, apitest.File("video_0", clip))
		mediatest.ConstantRate(t, film, 25, 25, time.Millisecond)
		for i, picture := range mediatest.Frames(t, film, mediatest.Every(20*time.Millisecond, 40*time.Millisecond, 25)...) {
			if n, want := numberOf(picture, picture.Bounds()), int(from/(40*time.Millisecond))+i; n != want {
				t.Errorf("from %v: frame %d of the film is frame %d of the clip, want %d", from, i, n, want)
			}
		}
	}
}
