package demo

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/big"
	"os"
	"slices"
	"strings"
	"time"

	"cutroom/internal/sandbox/measure"
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

// musicPart is the name of the music among the sounds of a stretch.
const musicPart = "music"

// result holds the demonstration's results.
type result struct {
	film             film
	music            string // path of the sound that was separated
	audio            string // path: what was separated
	stems            map[string]string
	waves            []wave // of the stems, as drawn by the service
	video, v3, sound string // paths of the renders; v3 is empty without an object store
}

// check is one measurement.
type check struct {
	name, want, got string
	ok              bool
	skipped         bool // could not be measured; got has the reason
}

// judge measures every output against the edit.
type judge struct {
	result
	checks []check
	heard  map[string]audio // decoded sound by path
	made   media            // of video
}

func (j *judge) add(name, want, got string, ok bool) {
	j.checks = append(j.checks, check{name: name, want: want, got: got, ok: ok})
}

func (j *judge) decode(ctx context.Context, path string) (audio, error) {
	if s, ok := j.heard[path]; ok {
		return s, nil
	}
	s, err := decode(ctx, path)
	j.heard[path] = s
	return s, err
}

// measure runs the measurements and reports the progress to on.
func (r result) measure(ctx context.Context, on func(share float64, what string)) (*judge, error) {
	j := &judge{result: r, heard: map[string]audio{}}
	var err error
	if j.made, err = probe(ctx, r.video); err != nil {
		return nil, err
	}
	for i, t := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"length and format", j.format}, {"picture against sound", j.sync}, {"fades, joins and bars", j.pictures}, {"stems", j.separated},
		{"the mix", j.mix}, {"loudness", j.loudness}, {"other renders", j.same},
	} {
		on(float64(i)/8, t.name)
		if err := t.run(ctx); err != nil {
			return nil, fmt.Errorf("measure %s: %w", t.name, err)
		}
	}
	return j, nil
}

// ownMedia reports whether the film shows the demonstration's own clips, whose sound is known. Encoders change
// noisy recordings more, and users may supply those.
func (j *judge) ownMedia() bool { return j.film.clips[0].lamp != nil }

func (j *judge) format(ctx context.Context) error {
	width, height, rate := j.film.canvas()
	heard, err := j.decode(ctx, j.video)
	if err != nil {
		return err
	}
	frames, got, slack := j.film.frames(), j.made.frames, 0
	if !j.ownMedia() {
		slack = 1 // a user's clip may end within a frame
	}
	gap := heard.length() - j.film.timeOf(got)
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
	is := "no video"
	if m := j.made; m.video != "" {
		is = describe(m.width, m.height, m.rate, m.video, m.audio, m.sampleRate, m.channels, index)
	}
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

// sync compares every flash of the lamps with its tick.
func (j *judge) sync(ctx context.Context) error {
	const name = "sound after picture"
	if !j.ownMedia() {
		j.checks = append(j.checks, check{name: name, got: "not measured: the clips have no flashes", ok: true, skipped: true})
		return nil
	}
	heard, err := j.decode(ctx, j.video)
	if err != nil {
		return err
	}
	chirp, err := stereo(ctx, "-f", "lavfi", "-i", "aevalsrc=exprs='"+tick+"|"+tick+"':s=48000:d=0.024")
	if err != nil {
		return err
	}
	expected, found := 0, 0
	var worst, sum time.Duration
	for i, s := range j.film.segments {
		from, to := j.film.alone(i)
		bright, err := brightness(ctx, j.video, j.film.lampArea(s.clip))
		if err != nil {
			return err
		}
		for second := (s.from + time.Second - 1).Truncate(time.Second); second < s.to; second += time.Second {
			if at := s.start + second - s.from; at >= from && at < to && !j.film.mutedAt(at) {
				expected++
			}
		}
		for _, n := range measure.Flashes(bright) {
			flash := j.film.timeOf(n)
			if flash < from || flash >= to || j.film.mutedAt(flash) {
				continue // the other clip covers this lamp, or there is silence
			}
			late, score := findChirp(heard, chirp, flash)
			if score < 0.5 {
				continue // no tick there
			}
			found++
			sum += late
			if late.Abs() > worst.Abs() {
				worst = late
			}
		}
	}
	j.add(name, fmt.Sprintf("%d flashes within %.0f ms", expected, ms(syncWithin)),
		fmt.Sprintf("%d flashes, mean %+.2f ms, worst %+.2f ms", found, ms(sum)/float64(max(found, 1)), ms(worst)),
		found == expected && worst.Abs() <= syncWithin)
	return nil
}

// brightness returns the mean brightness of an area in every frame of a film.
func brightness(ctx context.Context, path string, a lamp) ([]byte, error) {
	side := max(a.radius, 2) // well inside the disc
	frames, err := measure.Pictures(ctx, path,
		fmt.Sprintf("format=gray,crop=%d:%d:%d:%d,scale=1:1:flags=area", side, side, a.x-side/2, a.y-side/2), "gray", 1)
	return slices.Concat(frames...), err
}

// findChirp finds a chirp within 150 ms of a time. It returns how late it is, and its share of the sound there,
// from 0 to 1.
func findChirp(heard, chirp audio, near time.Duration) (late time.Duration, score float64) {
	const reach = 150 * time.Millisecond
	// Sharpen both alike, which removes the music and speech under the chirp.
	around, want := sharpen(heard.cut(near-reach, near+reach+chirp.length())), sharpen(chirp)
	power, best := dot(want, want), 0
	for lag := 0; lag+len(want) <= len(around); lag += 2 {
		here := around[lag : lag+len(want)]
		if s := dot(want, here) / math.Sqrt(dot(here, here)*power+1e-12); s > score {
			best, score = lag, s
		}
	}
	return audio(around[:best]).length() - reach, score
}

// sharpen applies the second difference, which rises by 12 dB per octave, twice.
func sharpen(s audio) audio {
	for range 2 {
		out := make(audio, len(s))
		for i := 2; i+2 < len(s); i++ {
			out[i] = s[i-2] - 2*s[i] + s[i+2]
		}
		s = out
	}
	return s
}

// separated checks that the sum of the stems is exactly the uploaded sound.
func (j *judge) separated(ctx context.Context) error {
	tracks := map[string]audio{"": nil}
	var err error
	if tracks[""], err = j.decode(ctx, j.audio); err != nil {
		return err
	}
	var speakers []audio
	for id, path := range j.stems {
		if tracks[id], err = j.decode(ctx, path); err != nil {
			return err
		}
		if strings.HasPrefix(id, "speaker_") {
			speakers = append(speakers, tracks[id])
		}
	}
	original, voice := tracks[""], tracks[voiceStem]
	largest, _ := difference(original, voice.plus(tracks[backgroundStem]))
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

// part is one of the sounds mixed in a range of the film.
type part struct {
	name  string
	sound audio
	from  time.Duration // in the sound, at the stretch's start
	gain  float64
}

// partsAt lists the sounds that are audible at a, shaped by the film's fade there.
func (j *judge) partsAt(ctx context.Context, a time.Duration) ([]part, error) {
	parts, err := j.mixedAt(ctx, a)
	fade, rest := j.film.fade(), j.film.length()-a
	for i := range parts {
		switch {
		case a < fade:
			parts[i].shape(fade-a, func(at time.Duration) float64 { return float64(a+at) / float64(fade) })
		case rest <= fade:
			parts[i].shape(rest, func(at time.Duration) float64 { return float64(rest-at) / float64(fade) })
		}
	}
	return parts, err
}

// mixedAt lists the sounds that are mixed at a.
func (j *judge) mixedAt(ctx context.Context, a time.Duration) ([]part, error) {
	var parts []part
	add := func(name, path string, from time.Duration, gain float64) error {
		s, err := j.decode(ctx, path)
		parts = append(parts, part{name: name, sound: s, from: from, gain: gain})
		return err
	}
	if remix := j.film.remixAt(a); remix != nil {
		from := a - remix.from + remix.offset
		if err := add("voice", j.stems[voiceStem], from, remix.voice); err != nil {
			return nil, err
		}
		if err := add("background", j.stems[backgroundStem], from, remix.background); err != nil {
			return nil, err
		}
	} else {
		for _, s := range j.film.segments {
			if s.start <= a && a < s.end() {
				if err := add(j.film.clips[s.clip].name, j.film.clips[s.clip].path, a-s.start+s.from, s.volume); err != nil {
					return nil, err
				}
				if d := j.film.joinAt(a); d != nil {
					parts[len(parts)-1].cross(a-d.start, d.overlap, s.start == d.start)
				}
			}
		}
	}
	for _, m := range j.film.music {
		if m.start <= a && a < m.end() {
			return parts, add(musicPart, j.music, a-m.start+m.from, m.volume)
		}
	}
	return parts, add(musicPart, j.music, a, 0) // if the music pauses, it must not be audible either
}

// shape multiplies a sound's next part by a gain that changes over time.
func (p *part) shape(length time.Duration, gain func(at time.Duration) float64) {
	p.sound = p.sound.cut(p.from, p.from+length)
	p.from = 0
	for i := range p.sound {
		p.sound[i] *= float32(gain(time.Duration((float64(i/2) + 0.5) / sampleRate * float64(time.Second))))
	}
}

// cross sets the gain of a sound that fades in or out with equal power over a join that began into ago. If
// it is hardly audible there, it becomes silence, because its gain would be a guess.
func (p *part) cross(into, length time.Duration, in bool) {
	p.shape(length-into, func(at time.Duration) float64 {
		turn := math.Pi / 2 * float64(into+at) / float64(length)
		if in {
			return math.Sin(turn)
		}
		return math.Cos(turn)
	})
	if p.sound.level() < -50 {
		clear(p.sound)
	}
}

// mix decomposes the film's sound, range by range: each sound must have the gain that the edit states. A sound
// at a wrong place would not be found, so this checks places too.
func (j *judge) mix(ctx context.Context) error {
	heard, err := j.decode(ctx, j.video)
	if err != nil {
		return err
	}
	allowed := 0.3 // dB
	if !j.ownMedia() {
		allowed = 1.5 // encoders make noisy recordings quieter
	}
	type gains struct {
		want, got []string
		ok        bool
	}
	voice, music, moving := gains{ok: true}, gains{ok: true}, gains{ok: true}
	var overall float64 // the gain that brings the film to its loudness
	quiet, silent := "", true
	for i, cuts := 1, j.film.cuts(); i < len(cuts); i++ {
		a, b := cuts[i-1], cuts[i]
		if j.film.mutedAt(a) {
			// The encoder smears the edges of a silence over a frame or two.
			level := max(heard.cut(a+2*aacFrame, b-2*aacFrame).level(), -120)
			quiet, silent = quiet+fmt.Sprintf("%.1f to %.1f s: %.0f dBFS", a.Seconds(), b.Seconds(), level), silent && level < silentBelow
			continue
		}
		if b-a < 300*time.Millisecond {
			continue // too short to tell sounds apart
		}
		parts, err := j.partsAt(ctx, a)
		if err != nil {
			return err
		}
		for k, gain := range unmix(heard.cut(a, b), parts, b-a) {
			p, into := parts[k], &voice
			if p.name == musicPart {
				into = &music
			}
			if math.IsNaN(gain) {
				continue // silent there
			}
			if overall == 0 {
				overall = gain / p.gain
			}
			gain /= overall
			if least, most := j.film.musicGains(a); p.name == musicPart && least != most {
				share := gain / p.gain
				moving.want, moving.got = append(moving.want, fmt.Sprintf("×%.2f to ×%.2f", least, most)),
					append(moving.got, fmt.Sprintf("×%.2f", share))
				moving.ok = moving.ok && share >= least && share <= most
				continue
			}
			into.want, into.got = append(into.want, fmt.Sprintf("×%.2f", p.gain)), append(into.got, fmt.Sprintf("×%.2f", gain))
			if p.gain == 0 {
				into.ok = into.ok && math.Abs(gain) < 0.03*math.Pow(10, allowed-0.3)
			} else {
				into.ok = into.ok && math.Abs(decibels(gain/p.gain)) <= allowed
			}
		}
	}
	for _, g := range []struct {
		name string
		gains
	}{{"clips, voice, background", voice}, {"music", music}} {
		j.add(g.name, strings.Join(g.want, " ")+fmt.Sprintf(" ± %.1f dB", allowed), strings.Join(g.got, " "), g.ok && len(g.got) > 0)
	}
	if j.ownMedia() {
		j.add("ducked and fading music", strings.Join(moving.want, ", ")+" of its volume", strings.Join(moving.got, ", "),
			moving.ok && len(moving.got) > 0)
	}
	j.add("muted range", fmt.Sprintf("below %.0f dBFS", silentBelow), quiet, silent && quiet != "")
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

func decibels(gain float64) float64 { return 20 * math.Log10(math.Abs(gain)) }

// unmix estimates the gain of each of several known sounds in a mix: the gains with which their sum is closest
// to it (least squares). A silent sound gets NaN.
func unmix(mix audio, parts []part, length time.Duration) []float64 {
	gains := make([]float64, len(parts))
	var used []int
	var sounds []audio
	for i, p := range parts {
		gains[i] = math.NaN()
		if s := p.sound.cut(p.from, p.from+length); s.level() > -75 {
			used, sounds = append(used, i), append(sounds, s)
		}
	}
	rows := make([][]float64, len(used))
	for i, s := range sounds {
		for _, other := range sounds {
			rows[i] = append(rows[i], dot(s, other))
		}
		rows[i] = append(rows[i], dot(s, mix))
	}
	for i, pivot := range rows {
		for k, row := range rows {
			if k == i {
				continue
			}
			f := row[i] / pivot[i]
			for c := range row {
				row[c] -= f * pivot[c]
			}
		}
	}
	for i, row := range rows {
		gains[used[i]] = row[len(row)-1] / row[i]
	}
	return gains
}

// same checks that all renders have the same sound, and that both submission paths give the same film.
func (j *judge) same(ctx context.Context) error {
	film, err := j.decode(ctx, j.video)
	if err != nil {
		return err
	}
	m, err := probe(ctx, j.sound)
	if err != nil {
		return err
	}
	ok := m.audio == "aac" && m.video == ""
	var got []string
	paths := slices.DeleteFunc([]string{j.sound, j.v3}, func(path string) bool { return path == "" })
	for _, path := range paths {
		s, err := j.decode(ctx, path)
		if err != nil {
			return err
		}
		_, relative := difference(film, s)
		ok = ok && relative <= -18 && (film.length()-s.length()).Abs() <= aacFrame
		got = append(got, fmt.Sprintf("%.0f dB", relative))
	}
	j.add("film.m4a (and v3) = film.mp4", "sound differs by at most -18 dB",
		strings.ReplaceAll(strings.Join(got, " and "), "-Inf dB", "no sample differs"), ok)
	return nil
}
