package stems

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// checkSums fails unless voice + background is the input and the speakers'
// sum is the voice, sample by sample.
func checkSums(t *testing.T, in, voice, background []int16, speakers [][]int16) {
	t.Helper()
	if len(voice) != len(in) || len(background) != len(in) {
		t.Fatalf("lengths: input %d, voice %d, background %d", len(in), len(voice), len(background))
	}
	for i, x := range in {
		if int(voice[i])+int(background[i]) != int(x) {
			t.Fatalf("sample %d: %d + %d is not %d", i, voice[i], background[i], x)
		}
		if len(speakers) == 0 {
			continue
		}
		sum := 0
		for _, s := range speakers {
			sum += int(s[i])
		}
		if sum != int(voice[i]) {
			t.Fatalf("sample %d: the speakers sum to %d, the voice is %d", i, sum, voice[i])
		}
	}
}

// loudNoise clips often: every rounding and every overflow occurs in it.
func loudNoise(frames int) []int16 {
	rng := rand.New(rand.NewPCG(7, uint64(frames)))
	out := make([]float64, frames*Channels)
	for i := range out {
		out[i] = rng.NormFloat64() * 30000
	}
	return quantize(out)
}

func TestStemsSumExactly(t *testing.T) {
	lengths := []int{1, 2, hop - 1, hop, hop + 1, window, SampleRate, blockFrames*hop + 777}
	for _, frames := range lengths {
		for _, opts := range []Options{{Fast: true, Speakers: SpeakersFound}, {Fast: true, Speakers: 20}, {Fast: true}, {Speakers: SpeakersFound}, {Speakers: 3}} {
			if frames > SampleRate && opts.Speakers == 20 {
				continue // 19 filters over 20 s
			}
			t.Run(fmt.Sprintf("%d frames %+v", frames, opts), func(t *testing.T) {
				in := loudNoise(frames)
				voice, background, speakers := split(t, in, opts)
				if opts.Speakers >= 0 && len(speakers) != opts.Speakers {
					t.Errorf("%d speakers", len(speakers))
				}
				checkSums(t, in, voice, background, speakers)
			})
		}
	}
}

func TestPartNeverOverflows(t *testing.T) {
	for _, x := range []int16{-32768, -32767, -1, 0, 1, 32766, 32767} {
		for _, v := range []float64{-1e9, -32768, -0.5, 0, 0.5, 32767, 1e9} {
			if taken, rest := part(x, v); int(taken)+int(rest) != int(x) {
				t.Errorf("part(%d, %g) = %d + %d", x, v, taken, rest)
			}
		}
	}
}

func tone(hz, level, seconds float64) []int16 {
	out := make([]float64, int(seconds*SampleRate)*Channels)
	for i := range out {
		out[i] = level * math.Sin(2*math.Pi*hz*float64(i/2)/SampleRate)
	}
	return quantize(out)
}

func TestFastSplitsByFrequency(t *testing.T) {
	low, mid, high := tone(440, 6000, 2), tone(880, 6000, 2), tone(3000, 6000, 2)
	in := mix(mix(low, mid), high)
	voice, background, speakers := split(t, in, Options{Fast: true, Speakers: SpeakersFound})
	if len(speakers) != 2 {
		t.Fatalf("%d speakers", len(speakers))
	}
	for name, tt := range map[string]struct{ got, want []int16 }{
		"background": {background, low}, "voice": {voice, mix(mid, high)}, "speaker 0": {speakers[0], mid}, "speaker 1": {speakers[1], high},
	} {
		// The edges of a tone are broad; they are left out.
		got, want := tt.got[SampleRate/2:SampleRate*3], tt.want[SampleRate/2:SampleRate*3]
		if d := distortion(got, want); d < 40 {
			t.Errorf("%s: %.1f dB above what does not belong there", name, d)
		}
		if r := rms(got) / rms(want); math.Abs(r-1) > 0.01 {
			t.Errorf("%s: %.3f of its level", name, r)
		}
	}
}

// talk is one voice with pauses before, between and after its sentences.
func talk(t *testing.T) []int16 {
	return concat(silence(1.2), speak(t, "en-us", "40", "Good morning, and welcome. Today we are going to look at how a film is cut."),
		silence(1.2), speak(t, "en-us", "40", "First the pictures are put in order."), silence(1))
}

func TestVoiceIsFoundInMusic(t *testing.T) {
	speech := scale(talk(t), 2500)
	songs := map[string][]int16{"synthetic": music(20)}
	if dir := os.Getenv("CUTROOM_MEDIA_DIR"); dir != "" {
		for _, path := range glob(t, filepath.Join(dir, "music*")) {
			songs[filepath.Base(path)] = decode(t, path)
		}
	}
	for name, song := range songs {
		t.Run(name, func(t *testing.T) {
			song = scale(song, 2000)
			in := mix(speech, song)
			clean, song := speech[:len(in)], song[:len(in)]
			voice, background, speakers := split(t, in, Options{Speakers: SpeakersFound})
			checkSums(t, in, voice, background, speakers)
			before, after := distortion(in, clean), distortion(voice, clean)
			t.Logf("speech: correlation %.3f in the mix, %.3f in the voice stem; %.1f dB -> %.1f dB; music %.1f dB -> %.1f dB",
				correlation(in, clean), correlation(voice, clean), before, after, distortion(in, song), distortion(background, song))
			if after < before+4 {
				t.Errorf("the voice stem holds the speech at %.1f dB, the mix at %.1f dB", after, before)
			}
			if music := distortion(background, song); music < distortion(in, song)+4 {
				t.Errorf("the background holds the music at %.1f dB only", music)
			}
			pause := voice[:SampleRate*Channels]
			if rms(pause) > rms(in[:len(pause)])/30 {
				t.Errorf("a pause sounds at %.0f in the voice stem", rms(pause))
			}
			if len(speakers) != 1 {
				t.Errorf("%d speakers", len(speakers))
			}
		})
	}
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

func TestPureSources(t *testing.T) {
	song := music(8)
	if voice, _, _ := split(t, song, Options{}); rms(voice) > rms(song)/100 {
		t.Errorf("music alone gives a voice of %.0f", rms(voice))
	}
	speech := scale(talk(t), 2500)
	if voice, background, _ := split(t, speech, Options{}); rms(background) > rms(voice)/10 {
		t.Errorf("speech alone gives a background of %.0f beside a voice of %.0f", rms(background), rms(voice))
	}
	if voice, _, speakers := split(t, silence(2), Options{Speakers: SpeakersFound}); rms(voice) != 0 || len(speakers) != 1 {
		t.Errorf("silence gives a voice of %.0f and %d speakers", rms(voice), len(speakers))
	}
}

func TestTwoVoicesAreToldApart(t *testing.T) {
	lines := []struct{ voice, pitch, text string }{
		{"en-us", "30", "Did you see the film last night? I thought it was wonderful."},
		{"en-us+f3", "70", "No, I have not seen it yet. What was it about?"},
		{"en-us", "30", "It is about a ship that gets lost in the ice for a whole winter."},
		{"en-us+f3", "70", "That sounds rather cold to me, but I will go and watch it."},
	}
	both, each := silence(1), [2][]int16{silence(1), silence(1)}
	for i, line := range lines {
		said := concat(speak(t, line.voice, line.pitch, line.text), silence(0.35))
		both = append(both, said...)
		each[i%2] = append(each[i%2], said...)
		each[1-i%2] = append(each[1-i%2], make([]int16, len(said))...)
	}
	for name, in := range map[string][]int16{"alone": both, "over music": mix(scale(both, 2500), scale(music(30), 1500))} {
		voice, background, speakers := split(t, in, Options{Speakers: SpeakersFound})
		checkSums(t, in, voice, background, speakers)
		if len(speakers) != 2 {
			t.Errorf("%s: %d speakers", name, len(speakers))
			continue
		}
		for i, track := range speakers {
			if own, other := correlation(track, each[i]), correlation(track, each[1-i]); own < 0.9 || other > 0.1 {
				t.Errorf("%s: speaker %d is %.2f the one voice and %.2f the other", name, i, own, other)
			}
		}
	}
	_, _, three := split(t, both, Options{Speakers: 3})
	_, _, one := split(t, both, Options{Speakers: 1})
	if len(three) != 3 || len(one) != 1 {
		t.Errorf("asked for 3 and 1 speakers, got %d and %d", len(three), len(one))
	}
}

func TestDecode(t *testing.T) {
	dir := t.TempDir()
	source := filepath.Join(dir, "mono.m4a")
	if out, err := exec.Command("ffmpeg", "-loglevel", "error", "-f", "lavfi", "-i", "sine=frequency=500:sample_rate=16000:duration=1", source).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	frames, err := Decode(t.Context(), source, filepath.Join(dir, "out.raw"))
	if err != nil || math.Abs(float64(frames)-SampleRate) > 0.1*SampleRate {
		t.Errorf("%d frames, %v", frames, err)
	}
	if loud, want := rms(readRaw(t, filepath.Join(dir, "out.raw"), 0)), 32768/8/math.Sqrt2; math.Abs(loud/want-1) > 0.02 {
		t.Errorf("mono decodes at %.0f, want %.0f: ffmpeg's sine has an amplitude of an eighth", loud, want)
	}
	text := filepath.Join(dir, "text.mp3")
	if err := os.WriteFile(text, []byte("this is no audio"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Decode(t.Context(), text, filepath.Join(dir, "x.raw")); !errors.Is(err, ErrNotAudio) {
		t.Errorf("text decodes: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Split(ended, writeRaw(t, music(1)), dir, Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("split after the end: %v", err)
	}
	if _, err := Split(t.Context(), writeRaw(t, music(1)), dir, Options{Speakers: 21}); err == nil {
		t.Error("21 speakers were accepted")
	}
}

func TestEncodedStems(t *testing.T) {
	dir := t.TempDir()
	result, err := Split(t.Context(), writeRaw(t, tone(880, 6000, 1)), dir, Options{Fast: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, ext := range []string{".mp3", ".m4a", ".flac"} {
		path := filepath.Join(dir, "voice"+ext)
		if err := Encode(t.Context(), result.Voice, path); err != nil {
			t.Fatal(err)
		}
		if got := decode(t, path); rms(got) < 3000 {
			t.Errorf("%s sounds at %.0f", ext, rms(got))
		}
	}
}

func TestHoursOfTurnsAreClustered(t *testing.T) {
	turns := make([]turn, 2001)
	for i := range turns {
		// Two voices, an octave apart, in turn: no neighbours are alike.
		turns[i] = turn{from: i * 200, to: i*200 + 150, features: []float64{(7 + float64(i%2)) * pitchWeight, 0}}
	}
	labels := cluster(turns, SpeakersFound)
	for i, label := range labels {
		if label < 0 || label > maxFound {
			t.Fatalf("turn %d has label %d", i, label)
		}
	}
	few := cluster(turns[:500], SpeakersFound)
	for i, label := range few {
		if label != i%2 {
			t.Fatalf("turn %d has label %d", i, label)
		}
	}
}
