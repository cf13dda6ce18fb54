// The sound of finished films: levels, surround, late and short sound, stems, cuts, speed, limiting.

package engine_test

import (
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"cutroom/internal/film/timeline"
	"cutroom/internal/testkit/mediatest"
)

// sound is an audio-only timeline.
func sound(segments ...timeline.Segment) timeline.Timeline {
	tl := film(segments...)
	tl.OutputKind = timeline.Audio
	return tl
}

// db is the peak of a sine of amplitude a, in dBFS.
func db(a float64) float64 { return 20 * math.Log10(a) }

func near(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if !(math.Abs(got-want) <= tolerance) {
		t.Errorf("%s: %.3f, want %.3f give or take %.3f", what, got, want, tolerance)
	}
}

// Every kind of recording keeps its level, on both sides.
func TestEveryKindOfSoundKeepsItsLevel(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	picture := mediatest.Spec{Width: 160, Height: 120, Tone: 440}
	with := func(change func(*mediatest.Spec)) mediatest.Spec {
		s := picture
		change(&s)
		return s
	}
	tests := map[string]mediatest.Spec{
		"aac stereo 48k": picture,
		"aac mono 44.1k": with(func(s *mediatest.Spec) { s.Channels, s.SampleRate = 1, 44100 }),
		"mono 8k amr": with(func(s *mediatest.Spec) {
			s.Container, s.Channels, s.SampleRate, s.AudioCodec = "mov", 1, 8000, "pcm_mulaw"
		}),
		"pcm 96k mov": with(func(s *mediatest.Spec) { s.Container, s.SampleRate, s.AudioCodec = "mov", 96000, "pcm_s24le" }),
		"alac 48k":    with(func(s *mediatest.Spec) { s.AudioCodec = "alac" }),
		"opus webm": with(func(s *mediatest.Spec) {
			s.Container, s.VideoCodec, s.AudioCodec = "webm", "libvpx-vp9", "libopus"
			s.Output = []string{"-deadline", "realtime", "-cpu-used", "8"}
		}),
		"vorbis webm 44.1": with(func(s *mediatest.Spec) {
			s.Container, s.VideoCodec, s.AudioCodec, s.SampleRate = "webm", "libvpx", "libvorbis", 44100
			s.Output = []string{"-deadline", "realtime"}
		}),
		"mp3 in mkv": with(func(s *mediatest.Spec) { s.Container, s.AudioCodec = "mkv", "libmp3lame" }),
		"mp3 alone":  {Tone: 440, Container: "mp3", AudioCodec: "libmp3lame"},
		"flac alone": {Tone: 440, Container: "flac"},
		"adts alone": {Tone: 440, Container: "aac", AudioCodec: "aac"},
	}
	names := slices.Sorted(maps.Keys(tests))
	var specs []mediatest.Spec
	var segments []timeline.Segment
	for _, name := range names {
		specs = append(specs, tests[name])
	}
	for _, clip := range mediatest.Clips(t, specs...) {
		segments = append(segments, cut(clip, 0, 1000))
	}
	out := b.render(t, sound(segments...))
	sides := mediatest.Samples(t, out.Path)
	if len(sides) != 2 {
		t.Fatalf("%d channels", len(sides))
	}
	near(t, "length in seconds", float64(len(sides[0]))/mediatest.SampleRate, float64(len(tests)), 0.04)
	for i, name := range names {
		want := db(0.25)
		if strings.HasPrefix(name, "mp3") {
			want -= 0.45 // LAME's own
		}
		for side, s := range sides {
			s = s[48000*i : 48000*(i+1)]
			near(t, fmt.Sprintf("%s: level of side %d in dB", name, side), db(mediatest.ToneAmplitude(s[4800:43200], 440)), want, 0.1)
			// There is no silence inside: an unbroken 440 Hz tone is never below a tenth of its peak for half a
			// millisecond.
			gap := 0
			for at, x := range s[1440:46560] {
				if gap++; math.Abs(x) > 0.025 {
					gap = 0
				}
				if gap > 24 {
					t.Errorf("%s: a gap on side %d at %v ms", name, side, 30+at/48)
					break
				}
			}
		}
	}
}

// Surround is folded down as in ITU-R BS.775, without scaling.
func TestSurroundIsFoldedDown(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	// Each channel has its own tone with peak 0.1.
	layouts := []struct {
		name  string
		tones []float64
	}{
		{"5.1", []float64{300, 400, 500, 600, 700, 800}}, {"5.1(side)", []float64{300, 400, 500, 600, 700, 800}},
		{"7.1", []float64{300, 400, 500, 600, 700, 800, 900, 1000}}, {"quad", []float64{300, 400, 700, 800}},
		{"5.0", []float64{300, 400, 500, 700, 800}}, {"2.1", []float64{300, 400, 600}},
	}
	var clips []timeline.Segment
	var in, encode []string
	for i, layout := range layouts {
		var exprs []string
		for _, hz := range layout.tones {
			exprs = append(exprs, fmt.Sprintf("0.1*sin(2*PI*%v*t)", hz))
		}
		// PCM in matroska loses the layout and FLAC keeps it; both must work.
		codec := "flac"
		if layout.name == "5.1" {
			codec = "pcm_s24le"
		}
		path := filepath.Join(t.TempDir(), "surround.mkv")
		in = append(in, "-f", "lavfi", "-t", "1", "-i", "aevalsrc=exprs='"+strings.Join(exprs, "|")+"':s=48000:c="+layout.name)
		encode = append(encode, "-map", fmt.Sprint(i), "-c:a", codec, path)
		clips = append(clips, cut(path, 0, 1000))
	}
	mediatest.FFmpeg(t, append(in, encode...)...)
	sides := mediatest.Samples(t, b.render(t, sound(clips...)).Path)
	half := math.Sqrt2 / 2
	for i, layout := range layouts {
		want := map[float64][2]float64{300: {1, 0}, 400: {0, 1}, 500: {half, half}, 700: {half, 0}, 800: {0, half}, 900: {half, 0}, 1000: {0, half}}
		for _, hz := range layout.tones {
			w, known := want[hz]
			if !known {
				continue // LFE: not part of the fold-down
			}
			for side := range 2 {
				heard := mediatest.ToneAmplitude(sides[side][48000*i+4800:48000*i+43200], hz)
				near(t, fmt.Sprintf("%s: %v Hz on side %d", layout.name, hz, side), heard, 0.1*w[side], 0.004)
			}
		}
	}
}

// Sound that starts late or ends early leaves exact silence and is not shifted.
func TestLateAndShortSoundKeepsItsPlace(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	dir := t.TempDir()
	args := []string{"-f", "lavfi", "-t", "4", "-i", "testsrc2=s=160x120:r=30", "-itsoffset", "0.7", "-f", "lavfi", "-t", "2", "-i",
		"aevalsrc=exprs='0.25*sin(2*PI*440*t)':s=48000:c=stereo"}
	var names []string
	var whole, part []timeline.Segment
	for _, output := range [][]string{{"late.mp4", "aac"}, {"late.mkv", "libopus"}, {"late.mov", "pcm_s16le"}, {"far.mkv", "flac", "-output_ts_offset", "10"}} {
		path := filepath.Join(dir, output[0])
		args = append(append(args, "-map", "0", "-map", "1", "-c:v", "libx264", "-preset", "ultrafast", "-c:a"), append(output[1:], path)...)
		names, whole, part = append(names, output[0]), append(whole, cut(path, 0, 4000)), append(part, cut(path, 500, 1500))
	}
	mediatest.FFmpeg(t, args...)
	film := mediatest.Mono(t, b.render(t, sound(append(whole, part...)...)).Path)
	for i, name := range names {
		// The muxers round and shift a little, so measure the file itself.
		wantStart, wantEnd := toneEdges(mediatest.Mono(t, whole[i].SourceKey))
		near(t, name+": start of the tone in the source", wantStart, 0.7, 0.008)
		start, end := toneEdges(film[4*i*mediatest.SampleRate:][:4*mediatest.SampleRate])
		near(t, name+": start of the tone", start, wantStart, 0.002)
		near(t, name+": end of the tone", end, wantEnd, 0.010)
		start, _ = toneEdges(film[(4*len(names)+i)*mediatest.SampleRate:])
		near(t, name+": start of the tone in the cut", start, wantStart-0.5, 0.002)
	}
}

// toneEdges returns where a tone of peak 0.25 begins and ends, in seconds.
func toneEdges(samples []float64) (start, end float64) {
	first, last := -1, 0
	for i, x := range samples {
		if math.Abs(x) > 0.05 {
			if first < 0 {
				first = i
			}
			last = i
		}
	}
	return float64(first) / mediatest.SampleRate, float64(last) / mediatest.SampleRate
}

// A stem that replaces the original at volume 1 changes nothing, not even at the ends of its range. Neither do two
// stems that add up to it.
func TestStemsAddUpToTheOriginal(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	dir := t.TempDir()
	original, voice, background := filepath.Join(dir, "o.mkv"), filepath.Join(dir, "v.wav"), filepath.Join(dir, "b.wav")
	tone := func(e string) string { return "aevalsrc=exprs='" + e + "':s=48000:c=stereo" }
	const v, bg = "0.2*sin(2*PI*440*t)", "0.15*sin(2*PI*1234*t)"
	mediatest.FFmpeg(t, "-f", "lavfi", "-t", "6", "-i", "testsrc2=s=160x120:r=30000/1001", "-f", "lavfi", "-t", "6", "-i", tone(v+"+"+bg+"|"+v+"+"+bg),
		"-f", "lavfi", "-t", "6", "-i", tone(v+"|"+v), "-f", "lavfi", "-t", "6", "-i", tone(bg+"|"+bg),
		"-map", "0", "-map", "1", "-c:v", "libx264", "-preset", "ultrafast", "-c:a", "pcm_f32le", original,
		"-map", "2", "-c:a", "pcm_f32le", voice, "-map", "3", "-c:a", "pcm_f32le", background)

	// With cuts between frames, the film's grid and the client's clock differ, and the stems must follow the film.
	tl := sound(cut(original, 517, 2333), cut(original, 2333, 3001), cut(original, 3700, 5811))
	tl.Quality = timeline.High
	plain := b.render(t, tl)
	tl.Directives = []timeline.Directive{
		directive(700, 1504, 517+700, 1, voice, background),
		directive(1504, 2450, 517+1504, 1, voice, background), // continues the first
		directive(2600, 3900, 3700+(2600-2484), 1, voice, background),
	}
	mixed := b.render(t, tl)
	a, c := mediatest.Mono(t, plain.Path), mediatest.Mono(t, mixed.Path)
	if len(a) != len(c) {
		t.Fatalf("%d samples and %d", len(a), len(c))
	}
	var worst float64
	at := 0
	for i := range a {
		if d := math.Abs(a[i] - c[i]); d > worst {
			worst, at = d, i
		}
	}
	t.Logf("largest difference %.6f at %.4f s", worst, float64(at)/48000)
	if worst > 0.002 {
		t.Errorf("the films differ by %.4f at %.4f s", worst, float64(at)/48000)
	}
}

// Cuts that only change the volume cause no click, and cuts without a change cause no gap.
func TestPiecesOfOneSoundReadOn(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	clips := mediatest.Clips(t, mediatest.Spec{Width: 160, Height: 120, Duration: 2 * time.Second, Tone: 440},
		mediatest.Spec{Width: 160, Height: 120, Duration: 2 * time.Second}, mediatest.Spec{Tone: 440, Duration: 4 * time.Second})
	clip, silent, music := clips[0], clips[1], clips[2]
	smooth := func(t *testing.T, tl timeline.Timeline, most float64) {
		t.Helper()
		tl.Quality = timeline.High
		out := b.render(t, tl)
		if residual, at := mediatest.Discontinuity(t, out.Path, 440, mediatest.Between(50, 1900)); residual > most {
			t.Errorf("residual %.4f at %v", residual, at)
		}
		near(t, "the end", mediatest.ToneLevel(t, out.Path, 440, mediatest.Between(1400, 1900)), db(0.25*0.2), 0.1)
	}
	t.Run("segments", func(t *testing.T) {
		t.Parallel()
		tl := sound(cut(clip, 0, 567), cut(clip, 567, 1233), cut(clip, 1233, 0))
		tl.Segments[1].Volume, tl.Segments[2].Volume = 0, 0.2
		smooth(t, tl, 0.05) // the curvature of the ramp; a step is 0.6
	})
	t.Run("segments backwards", func(t *testing.T) {
		t.Parallel()
		tl := sound(cut(clip, 1200, 0), cut(clip, 600, 1200), cut(clip, 0, 600))
		for i := range tl.Segments {
			tl.Segments[i].Reverse, tl.Segments[i].Volume = true, 0.2
		}
		smooth(t, tl, 0.002)
	})
	for _, speed := range []float64{1, 2} {
		t.Run(fmt.Sprintf("music at speed %v", speed), func(t *testing.T) {
			t.Parallel()
			tl := sound(cut(silent, 0, 0))
			for i := range 3 {
				from := time.Duration(i) * 501 * time.Millisecond
				at := time.Duration(float64(from) * speed)
				tl.Clips = append(tl.Clips, timeline.Clip{SourceKey: music, Start: from, SourceTrimStart: at, Volume: 0.2, Speed: speed})
				if i > 0 {
					tl.Clips[i-1].SourceTrimEnd = at
				}
			}
			smooth(t, tl, 0.002)
		})
	}
}

// directive replaces [from, to) ms by the given stems, read from offset.
func directive(from, to, offset int64, speed float64, stems ...string) timeline.Directive {
	d := timeline.Directive{
		ID: "d", Range: timeline.Range{Start: timeline.Milliseconds(from), End: timeline.Milliseconds(to)},
		MuteOriginal: true, SourceOffset: timeline.Milliseconds(offset), AppliedSpeed: speed,
	}
	for i, s := range stems {
		d.Selections = append(d.Selections, timeline.Selection{StemID: fmt.Sprintf("speaker_%d", i), SourceKey: s, Volume: 1})
	}
	return d
}

// Speed changes how long a segment plays, but not its pitch or level, and keeps picture and sound in sync.
func TestSpeedKeepsPitchAndSync(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	clip := mediatest.FlashBeep(t, 3*time.Second, "30")
	speeds := []float64{0.5, 0.8, 1.25, 2, 3}
	var flashes []timeline.Segment
	var total float64 // seconds
	for _, speed := range speeds {
		s := cut(clip, 0, 3000)
		s.Speed = speed
		flashes, total = append(flashes, s), total+3/speed
	}
	out := b.render(t, film(flashes...))
	mediatest.DurationWithin(t, out.Path, time.Duration(total*1e9), 34*time.Millisecond)
	points := mediatest.SyncPoints(t, out.Path)
	if len(points) != 3*len(speeds) {
		t.Fatalf("%d flashes", len(points))
	}
	for i, p := range points[1:] { // the first begins with the film
		if p.Offset().Abs() > 17*time.Millisecond { // half a frame: the picture's rounding
			t.Errorf("flash %d: its beep comes %v later", i+1, p.Offset())
		}
	}
	tone := mediatest.Clip(t, mediatest.Spec{Width: 160, Height: 120, Duration: 6 * time.Second, Tone: 440})
	at := func(speed float64, ms int64) timeline.Segment { // a range that takes ms in the film
		s := cut(tone, 0, int64(float64(ms)*speed))
		s.Speed = speed
		return s
	}
	var segments []timeline.Segment
	for _, speed := range speeds {
		segments = append(segments, at(speed, 1500))
	}
	tones := b.render(t, sound(segments...))
	for i, speed := range speeds {
		near(t, fmt.Sprintf("the tone at speed %v", speed), mediatest.ToneLevel(t, tones.Path, 440, mediatest.Between(1500*i+200, 1500*i+1300)), db(0.25), 0.5)
	}
	limits := b.render(t, film(at(0.1, 600), at(10, 600)))
	mediatest.DurationWithin(t, limits.Path, 1200*time.Millisecond, 34*time.Millisecond)
	for i, speed := range []float64{0.1, 10} {
		near(t, fmt.Sprintf("the tone at speed %v", speed), mediatest.RMS(t, limits.Path, mediatest.Between(600*i+100, 600*i+500)), db(0.25)-3.01, 1)
	}
}

// Noise at full scale decodes far beyond it even after the limiter, because no encoder preserves the waveform of noise.
func TestSoundDecodesWithinFullScale(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	noise := filepath.Join(t.TempDir(), "noise.wav")
	mediatest.FFmpeg(t, "-f", "lavfi", "-i", "anoisesrc=d=2:c=white:r=48000:a=1:seed=7", "-ac", "2", noise)
	tl := sound()
	tl.Segments = []timeline.Segment{cut(mediatest.Clip(t, mediatest.Spec{Width: 160, Height: 120, Duration: 2 * time.Second}), 0, 2000)}
	tl.Clips = []timeline.Clip{{SourceKey: noise, Volume: 1, Speed: 1}}
	out := b.render(t, tl)
	if peak := mediatest.Peak(t, out.Path, mediatest.Window{}); peak > 1 || peak < 0.5 {
		t.Errorf("peak %.4f", peak)
	}
}

// A stem that ended before its directive begins gives silence, not an error.
func TestStemBeyondItsEndIsSilent(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	clip := mediatest.Clip(t, mediatest.Spec{Width: 160, Height: 120, Duration: 2 * time.Second, Tone: 440})
	stem := mediatest.Tone(t, 660, 500*time.Millisecond)
	tl := sound(cut(clip, 0, 2000))
	tl.Directives = []timeline.Directive{directive(500, 1500, 5000, 1, stem)}
	out := b.render(t, tl)
	if level := mediatest.RMS(t, out.Path, mediatest.Between(600, 1400)); level > -60 {
		t.Errorf("%.1f dB in the muted range", level)
	}
}

// Only the window of a long sound that plays is decoded, at its exact place and for any sample rate.
func TestWindowOfALongSoundKeepsItsPlace(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "long.wav")
	mediatest.FFmpeg(t, "-f", "lavfi", "-t", "200", "-i", "sine=440:r=22050,volume='between(t,190,191)':eval=frame", path)
	tl := film(cut(path, 189500, 191500))
	tl.OutputKind = timeline.Audio
	out := newBench(t).render(t, tl)
	before, during, after := mediatest.RMS(t, out.Path, mediatest.Between(0, 400)), mediatest.RMS(t, out.Path, mediatest.Between(600, 1400)), mediatest.RMS(t, out.Path, mediatest.Between(1600, 2000))
	if before > -50 || during < -25 || after > -50 {
		t.Errorf("levels %.1f, %.1f and %.1f dB before, in and after the tone", before, during, after)
	}
}

// The encoder's priming is not part of the sound. A bare AAC stream does not declare it. In matroska and ogg it lies
// before zero.
func TestMusicStartsOnTime(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tl := sound(cut(mediatest.Clip(t, mediatest.Spec{Width: 160, Height: 120, Duration: 9 * time.Second}), 0, 9000))
	names, dir := []string{"beep.aac", "beep.webm", "beep.ogg"}, t.TempDir()
	args := []string{"-f", "lavfi", "-i", "sine=f=1000:d=3:r=48000,asetnsamples=480,volume=enable='lt(t,1)':volume=0"}
	for i, name := range names {
		beep := filepath.Join(dir, name)
		args = append(args, "-c:a", []string{"aac", "libopus", "libvorbis"}[i], beep)
		tl.Clips = append(tl.Clips, timeline.Clip{SourceKey: beep, Start: time.Duration(3*i) * time.Second, Volume: 1, Speed: 1})
	}
	mediatest.FFmpeg(t, args...)
	samples := mediatest.Samples(t, b.render(t, tl).Path)[0]
	for i, name := range names {
		onset := slices.IndexFunc(samples[3*i*mediatest.SampleRate+mediatest.SampleRate/2:], func(x float64) bool { return math.Abs(x) > 0.05 })
		if d := float64(onset)/48 - 500; math.Abs(d) > 2 {
			t.Errorf("%s: the beep comes %.1f ms late", name, d)
		}
	}
}

// Loud mixes are limited and never exceed full scale; quiet mixes are unchanged.
func TestOnlyLoudMixesAreLimited(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	clips := mediatest.Clips(t, mediatest.Spec{Width: 160, Height: 120, Duration: 3 * time.Second, Tone: 440, Amplitude: 0.9}, mediatest.Spec{Tone: 660, Amplitude: 0.9})
	clip, music := clips[0], clips[1]
	tl := sound(cut(clip, 0, 3000))
	out := b.render(t, tl)
	near(t, "level", mediatest.ToneLevel(t, out.Path, 440, mediatest.Between(100, 2900)), db(0.9), 0.1)
	tl.Clips = []timeline.Clip{{SourceKey: music, Start: time.Second, Volume: 1, Speed: 1}}
	out = b.render(t, tl)
	if peak := mediatest.Peak(t, out.Path, mediatest.Window{}); peak > 1 {
		t.Errorf("peak %.4f", peak)
	}
	near(t, "level before the music", mediatest.ToneLevel(t, out.Path, 440, mediatest.Between(100, 900)), db(0.9), 0.1)
	near(t, "level well after the music", mediatest.ToneLevel(t, out.Path, 440, mediatest.Between(2600, 2950)), db(0.9), 0.1)
}
