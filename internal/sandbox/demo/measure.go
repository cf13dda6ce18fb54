// The judge of the demonstration: its tolerances, and the measurements of format, stems, loudness and equal sound.

package demo

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/big"
	"os"
	"strings"
	"time"

	"cutroom/internal/sandbox/process"
)

// Tolerances of the measurements.
const (
	syncWithin   = 10 * time.Millisecond // between flash and tick
	sampleWithin = 2.0 / 32768           // two steps of 16 bits: each side's decoding rounds once
	silentBelow  = -60.0                 // dB of full scale
	aacFrame     = 1024 * time.Second / sampleRate
)

// The stems that the demonstration mixes.
const (
	voiceStem      = "voice_all"
	backgroundStem = "background"
)

// result holds the demonstration's results.
type result struct {
	film             film
	music            string // path
	audio            string // path of the sound that was separated
	stems            []stem
	video, v3, sound string // paths of the renders; v3 is empty without an object store
	look             string // path of the film with a look; empty if the clips are the user's
}

// stem returns a stem by its id, or an empty one.
func (r result) stem(id string) stem {
	for _, s := range r.stems {
		if s.StemID == id {
			return s
		}
	}
	return stem{}
}

// sounds returns the paths of all files whose sound is compared.
func (r result) sounds() []string {
	paths := []string{r.video, r.sound, r.audio, r.music}
	if r.v3 != "" {
		paths = append(paths, r.v3)
	}
	for _, c := range r.film.clips {
		if !c.silent {
			paths = append(paths, c.path)
		}
	}
	for _, s := range r.stems {
		paths = append(paths, s.path)
	}
	return paths
}

// check is one measurement.
type check struct {
	name, want, got string
	ok              bool
}

// judge measures every output against the edit.
type judge struct {
	result
	checks []check
	heard  map[string]audio // decoded sound by path
	made   process.Media    // of video
}

func (j *judge) add(name, want, got string, ok bool) {
	j.checks = append(j.checks, check{name, want, got, ok})
}

// measure runs the measurements and reports the progress to on.
func (r result) measure(ctx context.Context, on func(share float64, what string)) (*judge, error) {
	j := &judge{result: r, heard: map[string]audio{}}
	on(0, "decoding")
	var err error
	if j.made, err = probe(ctx, r.video); err != nil {
		return nil, err
	}
	for _, path := range r.sounds() {
		if j.heard[path], err = decode(ctx, path); err != nil {
			return nil, err
		}
	}
	for i, t := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"length and format", j.format}, {"picture against sound", j.sync}, {"fades, joins and bars", j.pictures}, {"stems", j.separated},
		{"the mix", j.mix}, {"loudness", j.loudness}, {"other renders", j.same}, {"crop, zoom, colours and speed", j.looks},
	} {
		on(float64(i+1)/10, t.name)
		if err := t.run(ctx); err != nil {
			return nil, fmt.Errorf("measure %s: %w", t.name, err)
		}
	}
	return j, nil
}

// ownMedia reports whether the film shows the demonstration's own clips, whose sound is known. Encoders change
// noisy recordings more, and users may supply those.
func (j *judge) ownMedia() bool { return j.film.clips[0].lamp != nil }

func (j *judge) format(context.Context) error {
	width, height, rate := j.film.canvas()
	video, audio := j.made.First("video"), j.made.First("audio")
	frames, got, slack := j.film.frames(), video.Packets, 0
	if !j.ownMedia() {
		slack = 1 // a user's clip may end within a frame
	}
	gap := j.heard[j.video].length() - j.film.timeOf(got)
	j.add("length", fmt.Sprintf("%d frames, sound ends within %.0f ms", frames, ms(aacFrame)),
		fmt.Sprintf("%d frames = %.3f s, sound %+.1f ms", got, j.film.timeOf(got).Seconds(), ms(gap)),
		got >= frames-slack && got <= frames+slack && gap.Abs() <= aacFrame)

	raw, err := os.ReadFile(j.video)
	if err != nil {
		return fmt.Errorf("look for the index: %w", err)
	}
	index := "behind"
	if moov, mdat := bytes.Index(raw, []byte("moov")), bytes.Index(raw, []byte("mdat")); moov >= 0 && moov < mdat {
		index = "in front"
	}
	describe := func(w, h int, rate *big.Rat, video, audio string, hz, channels int, index string) string {
		return fmt.Sprintf("%d×%d, %s, %s, %s %d Hz %d ch, index %s", w, h, rateText(rate), video, audio, hz, channels, index)
	}
	want := describe(width, height, rate, "h264", "aac", sampleRate, 2, "in front")
	is := describe(video.Width, video.Height, rateOf(video), video.Codec, audio.Codec, audio.SampleRate, audio.Channels, index)
	j.add("format", want, is, is == want)
	return nil
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func rateText(r *big.Rat) string {
	if r.IsInt() {
		return r.Num().String() + " fps"
	}
	v, _ := r.Float64()
	return fmt.Sprintf("%.3f fps", v)
}

// separated checks that the sum of the stems is exactly the uploaded sound.
func (j *judge) separated(context.Context) error {
	var speakers []audio
	for _, s := range j.stems {
		if strings.HasPrefix(s.StemID, "speaker_") {
			speakers = append(speakers, j.heard[s.path])
		}
	}
	original, voice := j.heard[j.audio], j.heard[j.stem(voiceStem).path]
	largest, _ := difference(original, voice.plus(j.heard[j.stem(backgroundStem).path]))
	gap := (original.length() - voice.length()).Abs()
	about := ""
	if len(speakers) > 0 {
		off, _ := difference(voice, speakers[0].plus(speakers[1:]...))
		largest, about = max(largest, off), fmt.Sprintf("; %d speakers to the voice", len(speakers))
	}
	j.add("stems sum to the input", fmt.Sprintf("every sample within %.0f steps of 16 bits", sampleWithin*32768),
		fmt.Sprintf("largest difference %.1f steps%s", largest*32768, about), len(voice) > 0 && largest <= sampleWithin && gap <= 2*aacFrame)
	return nil
}

// loudness compares the film's loudness and true peak with the request.
func (j *judge) loudness(ctx context.Context) error {
	const within = 0.5
	lufs, peak, err := loudnessOf(ctx, j.video)
	if err != nil {
		return err
	}
	met := math.Abs(lufs-targetLUFS) <= within || lufs < targetLUFS && peak >= maxTruePeakDB-within
	j.add("loudness", fmt.Sprintf("%d LUFS ± %.1f, or the true peak at %d dB", targetLUFS, within, maxTruePeakDB),
		fmt.Sprintf("%.1f LUFS, true peak %.1f dB", lufs, peak), met && peak <= maxTruePeakDB+within)
	return nil
}

// same checks that all renders have the same sound, and that both submission paths give the same film.
func (j *judge) same(ctx context.Context) error {
	m, err := probe(ctx, j.sound)
	if err != nil {
		return err
	}
	ok := m.First("audio").Codec == "aac" && m.First("video").Codec == ""
	film := j.heard[j.video]
	var got []string
	for _, path := range []string{j.sound, j.v3} {
		if path == "" {
			continue
		}
		s := j.heard[path]
		_, relative := difference(film, s)
		ok = ok && relative <= -18 && (film.length()-s.length()).Abs() <= aacFrame
		got = append(got, fmt.Sprintf("%.0f dB", relative))
	}
	j.add("film.m4a (and v3) = film.mp4", "sound differs by at most -18 dB",
		strings.ReplaceAll(strings.Join(got, " and "), "-Inf dB", "no sample differs"), ok)
	return nil
}
