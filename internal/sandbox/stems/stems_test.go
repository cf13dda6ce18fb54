// The stand-in's separation of sound: stems that add up exactly, and a dialogue that is found in music.

package stems

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"cutroom/internal/sandbox/process"
)

// split runs Split, reads its files and fails unless voice + background is the input and the speakers' sum is the
// voice, sample by sample.
func split(t *testing.T, in []int16, opts Options) (voice, background []int16, speakers [][]int16) {
	t.Helper()
	raw, err := binary.Append(nil, binary.LittleEndian, in)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "in.pcm")
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	result, err := Split(t.Context(), path, t.TempDir(), opts)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range result.Speakers {
		speakers = append(speakers, read(t, path, 44))
	}
	voice, background = read(t, result.Voice, 44), read(t, result.Background, 44)
	if len(voice) != len(in) || len(background) != len(in) {
		t.Fatalf("lengths: input %d, voice %d, background %d", len(in), len(voice), len(background))
	}
	for i, x := range in {
		sum := 0
		for _, s := range speakers {
			sum += int(s[i])
		}
		if int(voice[i])+int(background[i]) != int(x) || len(speakers) > 0 && sum != int(voice[i]) {
			t.Fatalf("sample %d: voice %d + background %d is not %d, or the speakers' %d not the voice", i, voice[i], background[i], x, sum)
		}
	}
	return voice, background, speakers
}

// read returns the samples of a file after its header.
func read(t *testing.T, path string, header int) []int16 {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	out := make([]int16, (len(data)-header)/2)
	if _, err := binary.Decode(data[header:], binary.LittleEndian, out); err != nil {
		t.Fatal(err)
	}
	return out
}

// sound returns seconds of sound from the left and right samples at each time.
func sound(seconds float64, at func(s float64) (left, right float64)) []int16 {
	out := make([]int16, 0, int(seconds*SampleRate)*Channels)
	for i := range int(seconds * SampleRate) {
		left, right := at(float64(i) / SampleRate)
		out = append(out, clip(left), clip(right))
	}
	return out
}

func clip(v float64) int16 { return int16(math.Round(min(max(v, math.MinInt16), math.MaxInt16))) }

func rms(v []int16) float64 {
	var sum float64
	for _, x := range v {
		sum += float64(x) * float64(x)
	}
	return math.Sqrt(sum / float64(max(len(v), 1)))
}

// distortion is how far signal exceeds everything else in estimate, in dB.
func distortion(estimate, signal []int16) float64 {
	var ab, aa, bb float64
	for i := range min(len(estimate), len(signal)) {
		x, y := float64(estimate[i]), float64(signal[i])
		ab, aa, bb = ab+x*y, aa+x*x, bb+y*y
	}
	c := ab * ab / (aa*bb + 1)
	return 10 * math.Log10(c/(1-c))
}

func TestStemsSumExactly(t *testing.T) {
	for _, frames := range []int{1, 2, 511, SampleRate/4 + 777} {
		for _, opts := range []Options{{Fast: true, Speakers: SpeakersFound}, {Fast: true, Speakers: 20}, {Fast: true}, {Speakers: SpeakersFound}, {Speakers: 3}} {
			t.Run(fmt.Sprintf("%d frames %+v", frames, opts), func(t *testing.T) {
				t.Parallel()
				rng := rand.New(rand.NewPCG(7, uint64(frames)))
				in := make([]int16, frames*Channels)
				for i := range in {
					in[i] = clip(rng.NormFloat64() * 30000) // every rounding and every overflow occurs
				}
				if _, _, speakers := split(t, in, opts); opts.Speakers >= 0 && len(speakers) != opts.Speakers {
					t.Errorf("%d speakers", len(speakers))
				}
			})
		}
	}
	for _, x := range []int16{-32768, -1, 0, 1, 32767} {
		for _, v := range []float64{-1e9, -32768, -0.5, 0.5, 32767, 1e9} {
			if rest := int(x) - int(part(x, v)); rest < math.MinInt16 || rest > math.MaxInt16 {
				t.Errorf("part(%d, %g) leaves %d", x, v, rest)
			}
		}
	}
}

// A dialogue in the middle with music at the sides.
func TestDialogueIsFoundInMusic(t *testing.T) {
	dialogue, each := make([]int16, SampleRate), [2][]int16{make([]int16, SampleRate), make([]int16, SampleRate)}
	for i, line := range []struct{ voice, pitch, text string }{
		{"en-us", "30", "Did you see the film last night?"}, {"en-us+f3", "70", "No, I have not seen it yet."}, {"en-us", "30", "It is about a ship."},
	} {
		wav, raw := filepath.Join(t.TempDir(), "line.wav"), filepath.Join(t.TempDir(), "line.pcm")
		if out, err := exec.Command("espeak-ng", "-v", line.voice, "-p", line.pitch, "-w", wav, line.text).CombinedOutput(); err != nil {
			t.Fatalf("espeak-ng: %v: %s", err, out)
		}
		if _, err := Decode(t.Context(), wav, raw); err != nil {
			t.Fatal(err)
		}
		said := append(read(t, raw, 0), make([]int16, SampleRate*4/5)...)
		dialogue, each[i%2] = append(dialogue, said...), append(each[i%2], said...)
		each[1-i%2] = append(each[1-i%2], make([]int16, len(said))...)
	}
	mix := make([]int16, len(dialogue))
	for i, x := range sound(float64(len(dialogue)/Channels)/SampleRate, func(s float64) (left, right float64) {
		return 700 * math.Sin(2*math.Pi*220*s), 700 * math.Sin(2*math.Pi*277*s)
	}) {
		mix[i] = dialogue[i]/2 + x
	}
	voice, background, speakers := split(t, mix, Options{Speakers: SpeakersFound})
	if before, after := distortion(mix, dialogue), distortion(voice, dialogue); after < before+3 {
		t.Errorf("the voice stem holds the speech at %.1f dB, the mix at %.1f dB", after, before)
	}
	if pause := SampleRate * Channels / 3; rms(voice[:pause]) != 0 || rms(background[:pause]) < 400 {
		t.Errorf("a pause sounds at %.0f in the voice and %.0f in the background", rms(voice[:pause]), rms(background[:pause]))
	}
	if len(speakers) != 2 {
		t.Fatalf("%d speakers", len(speakers))
	}
	for i, track := range speakers {
		if own, other := distortion(track, each[i]), distortion(track, each[1-i]); own < 6 || other > -20 {
			t.Errorf("speaker %d: %.1f dB of the one voice, %.1f dB of the other", i, own, other)
		}
	}
	if voice, _, speakers := split(t, make([]int16, SampleRate), Options{Speakers: SpeakersFound}); rms(voice) != 0 || len(speakers) != 1 {
		t.Errorf("silence gives a voice of %.0f and %d speakers", rms(voice), len(speakers))
	}
}

func TestDecodeAndEncode(t *testing.T) {
	dir := t.TempDir()
	raw := filepath.Join(dir, "out.pcm")
	want := 32768 / 8 / math.Sqrt2 // ffmpeg's sine has an amplitude of an eighth
	for _, ext := range []string{".m4a", ".mp3", ".flac"} {
		mono, again := filepath.Join(dir, "mono.wav"), filepath.Join(dir, "again"+ext)
		if err := process.FFmpeg(t.Context(), "-f", "lavfi", "-i", "sine=frequency=500:sample_rate=16000:duration=1", mono); err != nil {
			t.Fatal(err)
		}
		if err := Encode(t.Context(), mono, again); err != nil {
			t.Fatal(err)
		}
		frames, err := Decode(t.Context(), again, raw)
		if err != nil || math.Abs(float64(frames)-SampleRate) > 0.15*SampleRate {
			t.Errorf("%s: %d frames, %v", ext, frames, err)
		}
		if middle := read(t, raw, 0)[SampleRate/2 : SampleRate*3/2]; math.Abs(rms(middle)/want-1) > 0.06 {
			t.Errorf("%s: mono decodes at %.0f, want %.0f", ext, rms(middle), want)
		}
	}
}
