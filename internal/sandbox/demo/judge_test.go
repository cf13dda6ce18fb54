package demo

import (
	"maps"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"cutroom/internal/sandbox/demo/meter"
	"cutroom/internal/sandbox/demo/sound"
)

func asSound(w *sound.Wave) meter.Sound {
	s := meter.Sound{L: make([]float32, w.Len()), R: make([]float32, w.Len())}
	for i := range w.L {
		s.L[i], s.R[i] = float32(w.L[i]), float32(w.R[i])
	}
	return s
}

func scaled(s meter.Sound, gain float32) meter.Sound {
	out := s.Cut(0, s.Length())
	for i := range out.L {
		out.L[i], out.R[i] = out.L[i]*gain, out.R[i]*gain
	}
	return out
}

// instruments are the sounds of the films in these tests, played once.
var instruments = sync.OnceValue(func() map[string]meter.Sound {
	radio, night := sound.Radio(duskLength, lead), sound.Night(auroraLength, lead)
	radio.SetRMS(radioRMS)
	night.SetRMS(nightRMS)
	// Another performance stands in for the voice.
	voice := scaled(asSound(sound.Radio(duskLength, 230*msec)), 0.3)
	for i := range voice.R {
		voice.R[i] = -voice.R[i] // nothing like the background
	}
	background := asSound(radio)
	original := meter.Sum(voice, background)
	return map[string]meter.Sound{"music": asSound(sound.Song()), "voice": voice, "background": background,
		"original": original, "a.mp4": original, "b.mp4": asSound(night)}
})

// studio is a film whose sounds lie in memory under made-up paths.
func studio() *judge {
	return &judge{result: result{film: edit(ownClips(), 14400*msec), music: "music", audio: "original", video: "film",
		stems: map[string]string{voiceStem: "voice", backgroundStem: "background"}, stemLength: duskLength},
		heard: maps.Clone(instruments())}
}

// fault changes one part of the mix on its way into the film.
type fault func(at time.Duration, p *part)

// play mixes the film as the edit says, except for a fault.
func (j *judge) play(t *testing.T, spoil fault) {
	t.Helper()
	length := meter.Sample(j.film.length())
	film := meter.Sound{L: make([]float32, length), R: make([]float32, length)}
	cuts := j.film.cuts()
	for i := 1; i < len(cuts); i++ {
		parts, err := j.partsAt(t.Context(), cuts[i-1])
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range parts {
			if spoil != nil {
				spoil(cuts[i-1], &p)
			}
			l := lane{sound: film}
			l.add(p, cuts[i-1], cuts[i], "")
		}
	}
	j.heard["film"] = film
}

func (j *judge) failed() []string {
	var names []string
	for _, c := range j.checks {
		if !c.ok {
			names = append(names, c.name)
		}
	}
	return names
}

func TestJudgeOfTheMix(t *testing.T) {
	for _, tt := range []struct {
		name  string
		spoil fault
		off   string
	}{
		{"as ordered", nil, ""},
		{"music too loud by 0.5 dB", func(at time.Duration, p *part) {
			if at == 0 && p.name == "music" {
				p.gain *= 1.06
			}
		}, "0.0 to 2.4 s"},
		{"background not turned down", func(at time.Duration, p *part) {
			if at == 2400*msec && p.name == "background" {
				p.gain = 1
			}
		}, "2.4 to 4.8 s"},
		{"voice 20 ms late", func(at time.Duration, p *part) {
			if at == 2400*msec && p.name == "voice" {
				p.from -= 20 * msec
			}
		}, "2.4 to 4.8 s"},
		{"music goes on in its pause", func(at time.Duration, p *part) {
			if at == 4800*msec && p.name == "music" {
				p.gain = 0.45
			}
		}, "4.8 to 7.2 s, both stems at 1 = original"},
		{"music from the wrong place", func(at time.Duration, p *part) {
			if at == 7200*msec && p.name == "music" {
				p.from = 0
			}
		}, "7.2 to 12.0 s"},
		{"second clip missing", func(at time.Duration, p *part) {
			if p.name == "Clip B" {
				p.gain = 0
			}
		}, "7.2 to 12.0 s"},
		{"stems quieter by 0.5 dB", func(at time.Duration, p *part) {
			if at == 4800*msec {
				p.gain *= 0.944
			}
		}, "4.8 to 7.2 s, both stems at 1 = original"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			j := studio()
			j.play(t, tt.spoil)
			if err := j.mix(t.Context()); err != nil {
				t.Fatal(err)
			}
			if len(j.checks) != 5 {
				t.Errorf("%d checks, want 5: %+v", len(j.checks), j.checks)
			}
			if got := strings.Join(j.failed(), ", "); got != tt.off {
				t.Errorf("off: %q, want %q", got, tt.off)
				for _, c := range j.checks {
					t.Logf("%+v", c)
				}
			}
		})
	}
}

func TestJudgeOfLoudness(t *testing.T) {
	j := studio()
	j.play(t, nil)
	if err := j.loud(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(j.loudness) != 2 || len(j.failed()) != 0 {
		t.Fatalf("rows %+v, failed %v", j.loudness, j.failed())
	}
	for i, want := range []float64{decibels(liftVoice), decibels(liftBackground)} {
		if r := j.loudness[i]; r.film-r.original < want-0.05 || r.film-r.original > want+0.05 {
			t.Errorf("%s changed by %.2f dB, want %.2f", r.name, r.film-r.original, want)
		}
	}
}

func TestJudgeOfStems(t *testing.T) {
	for _, tt := range []struct {
		name  string
		spoil func(j *judge)
		off   string
	}{
		{"exact", func(*judge) {}, ""},
		{"background too quiet", func(j *judge) { j.heard["background"] = scaled(j.heard["background"], 0.99) }, "voice + background = original"},
		{"voice cut short", func(j *judge) { j.heard["voice"] = j.heard["voice"].Cut(0, 7*time.Second) }, "length of the voice, length of the original"},
		{"no background", func(j *judge) { delete(j.stems, backgroundStem) }, "tracks"},
		{"speakers that are not the voice", func(j *judge) {
			j.stems["speaker_0"], j.stems["speaker_1"] = "voice", "background"
		}, "speaker 0 + speaker 1 = voice"},
	} {
		j := studio()
		tt.spoil(j)
		if err := j.separated(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(j.failed(), ", "); got != tt.off {
			t.Errorf("%s: off: %q, want %q (%+v)", tt.name, got, tt.off, j.checks)
		}
	}
}

// The container is judged on real files: the right film, and ones with a frame
// too few, another size, the index at the end and sound that ends early.
func TestJudgeOfTheContainer(t *testing.T) {
	if testing.Short() {
		t.Skip("encodes video")
	}
	f := edit(ownClips(), 14400*msec)
	encode := func(name, video, size, audio string, more ...string) string {
		path := filepath.Join(t.TempDir(), name)
		args := []string{"-nostdin", "-f", "lavfi", "-t", video, "-i", "color=c=gray:r=30:s=" + size, "-f", "lavfi", "-t", audio, "-i", "sine=r=48000",
			"-preset", "ultrafast", "-ac", "2", "-c:a", "aac"}
		if err := ffmpeg(t.Context(), "encode", nil, append(append(args, more...), path)...); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, tt := range []struct{ name, path, off string }{
		{"right", encode("a.mp4", "12", "1280x720", "12", "-movflags", "+faststart"), ""},
		{"a frame less", encode("b.mp4", "11.96", "1280x720", "11.967", "-movflags", "+faststart"), "length"},
		{"other size, index behind", encode("c.mp4", "12", "640x360", "12"), "resolution, index (moov)"},
		{"sound ends early", encode("d.mp4", "12", "1280x720", "11.5", "-movflags", "+faststart"), "audio ends with video"},
	} {
		j := &judge{result: result{film: f}, heard: map[string]meter.Sound{}}
		if err := j.container(t.Context(), "film.mp4", tt.path); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(j.failed(), ", "); got != tt.off {
			t.Errorf("%s: off: %q, want %q (%+v)", tt.name, got, tt.off, j.checks)
		}
	}
}
