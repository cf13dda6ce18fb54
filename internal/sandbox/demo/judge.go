package demo

import (
	"context"
	"fmt"
	"math"
	"math/big"
	"strings"
	"time"

	"cutroom/internal/sandbox/demo/meter"
	"cutroom/internal/sandbox/demo/picture"
	"cutroom/internal/sandbox/demo/sound"
)

// Tolerances of the measurements.
const (
	aacFrame     = 1024 * time.Second / meter.Rate // an AAC track ends on a multiple of it
	levelWithin  = 0.3                             // dB
	placeWithin  = 5 * time.Millisecond            // of a sound in the mix
	syncWithin   = 10 * time.Millisecond           // between flash and tick
	sampleWithin = 2.0 / 32768                     // two steps of 16 bits: decoding rounds once on either side
)

// result is what the demonstration brought home.
type result struct {
	film             film
	music            string // path
	audio            string // path: what was separated
	stems            map[string]string
	stemLength       time.Duration // as the service says
	video, v3, sound string        // paths of the renders; v3 is empty without an object store
}

// judge measures every output against the edit.
type judge struct {
	result
	protocol
	heard map[string]meter.Sound // decoded sound by path
}

func (j *judge) decode(ctx context.Context, path string) (meter.Sound, error) {
	if s, ok := j.heard[path]; ok {
		return s, nil
	}
	s, err := meter.Decode(ctx, path)
	if err == nil {
		j.heard[path] = s
	}
	return s, err
}

// measure runs all measurements; on gets the progress.
func (r result) measure(ctx context.Context, on func(share float64, what string)) (*judge, error) {
	j := &judge{result: r, heard: map[string]meter.Sound{}}
	tasks := []struct {
		name string
		run  func(context.Context) error
	}{
		{"film.mp4", func(ctx context.Context) error { return j.container(ctx, "film.mp4", r.video) }},
		{"picture against sound", func(ctx context.Context) error { return j.sync(ctx, r.video) }},
		{"the mix", j.mix},
		{"loudness", j.loud},
		{"stems", j.separated},
		{"film-v3.mp4", j.byReference},
		{"film.m4a", j.soundOnly},
	}
	for i, t := range tasks {
		on(float64(i)/float64(len(tasks)), t.name)
		if err := t.run(ctx); err != nil {
			return j, fmt.Errorf("measure %s: %w", t.name, err)
		}
	}
	return j, nil
}

// container checks lengths, streams and layout of a film.
func (j *judge) container(ctx context.Context, name, path string) error {
	j.group = name
	m, err := meter.Probe(ctx, path)
	if err != nil {
		return err
	}
	if m.Video == nil || m.Audio == nil {
		j.add("streams", "video and audio", fmt.Sprintf("video %v, audio %v", m.Video != nil, m.Audio != nil), false)
		return nil
	}
	width, height, rate := j.film.canvas()
	frames := j.film.frames()
	slack := 0
	if !j.ownMedia() {
		slack = 1 // a stranger's clip may end within a frame
	}
	got := m.Video.Frames
	j.add("length", fmt.Sprintf("%d frames = %.3f s", frames, framesLast(frames, rate).Seconds()),
		fmt.Sprintf("%d frames = %.3f s", got, framesLast(got, m.Video.Rate).Seconds()), got >= frames-slack && got <= frames+slack)
	j.equal("resolution", fmt.Sprintf("%d×%d", width, height), fmt.Sprintf("%d×%d", m.Video.Width, m.Video.Height))
	j.equal("frame rate", rateText(rate), rateText(m.Video.Rate))
	j.equal("codecs", "h264, aac 48000 Hz 2 ch", fmt.Sprintf("%s, %s %d Hz %d ch", m.Video.Codec, m.Audio.Codec, m.Audio.SampleRate, m.Audio.Channels))
	heard, err := j.decode(ctx, path)
	if err != nil {
		return err
	}
	gap := heard.Length() - framesLast(got, m.Video.Rate)
	j.add("audio ends with video", "within "+trim(ms(aacFrame))+" ms", fmt.Sprintf("%+.1f ms", ms(gap)), gap.Abs() <= aacFrame)
	first, err := meter.IndexFirst(path)
	if err != nil {
		return err
	}
	j.equal("index (moov)", "in front", map[bool]string{true: "in front", false: "at the end"}[first])
	return nil
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func framesLast(n int, rate *big.Rat) time.Duration {
	s, _ := new(big.Rat).Quo(big.NewRat(int64(n), 1), rate).Float64()
	return time.Duration(s * float64(time.Second))
}

func rateText(r *big.Rat) string {
	if r.IsInt() {
		return r.Num().String() + " fps"
	}
	v, _ := r.Float64()
	return fmt.Sprintf("%.3f fps", v)
}

// sync compares every flash of the lamp with its tick.
func (j *judge) sync(ctx context.Context, path string) error {
	j.group = "film.mp4"
	var areas []meter.Area
	var marked []segment
	for _, s := range j.film.segments {
		if lamp := j.film.clips[s.clip].lamp; lamp != nil {
			areas = append(areas, j.film.lampArea(s.clip, *lamp))
			marked = append(marked, s)
		}
	}
	if len(marked) == 0 {
		j.tell("sound after picture", "not measured: the clips have no flashes")
		return nil
	}
	brightness, err := meter.Brightness(ctx, path, areas)
	if err != nil {
		return err
	}
	heard, err := j.decode(ctx, path)
	if err != nil {
		return err
	}
	for i, s := range marked {
		j.syncSegment(s, brightness[i], heard)
	}
	return nil
}

// syncSegment compares the flashes of one segment.
func (j *judge) syncSegment(s segment, brightness []byte, heard meter.Sound) {
	_, _, rate := j.film.canvas()
	var expected []time.Duration // whole seconds of the clip, in the film
	for second := s.from.Truncate(time.Second); second < s.to; second += time.Second {
		if second >= s.from {
			expected = append(expected, s.start+second-s.from)
		}
	}
	var worst, sum time.Duration
	found := 0
	tick := sound.Tick()
	for _, n := range meter.Flashes(brightness) {
		flash := framesLast(n, rate)
		if flash < s.start || flash >= s.end() {
			continue // the other clip's picture under this lamp
		}
		at, score := meter.FindPulse(heard, tick, flash, 150*time.Millisecond)
		if score < 0.5 {
			continue // no tick there
		}
		found++
		late := at - flash
		sum += late
		if late.Abs() > worst.Abs() {
			worst = late
		}
	}
	name := "A/V offset, " + j.film.clips[s.clip].name
	want := fmt.Sprintf("%d flashes within %.0f ms", len(expected), ms(syncWithin))
	if found == 0 {
		j.add(name, want, "no flash with a tick", false)
		return
	}
	mean := sum / time.Duration(found)
	j.add(name, want, fmt.Sprintf("%d flashes, mean %+.2f ms, worst %+.2f ms", found, ms(mean), ms(worst)), found == len(expected) && worst.Abs() <= syncWithin)
}

// lampArea is the middle of a clip's lamp on the film's canvas: other clips are
// scaled to fit and centred.
func (f film) lampArea(n int, lamp picture.Lamp) meter.Area {
	width, height, _ := f.canvas()
	c := f.clips[n]
	scale := min(float64(width)/float64(c.width), float64(height)/float64(c.height))
	left := (float64(width) - float64(c.width)*scale) / 2
	top := (float64(height) - float64(c.height)*scale) / 2
	side := max(int(lamp.Radius*scale*1.1), 2) // well inside the disc
	return meter.Area{X: int(left + lamp.X*scale - float64(side)/2), Y: int(top + lamp.Y*scale - float64(side)/2), Width: side, Height: side}
}

// voiceOf and backgroundOf name the stems.
const (
	voiceStem      = "voice_all"
	backgroundStem = "background"
)

// part is a sound that a stretch of the film is mixed from.
type part struct {
	name  string
	sound meter.Sound
	from  time.Duration // in the sound, at the stretch's start
	gain  float64
}

// partsAt lists what is heard from a on.
func (j *judge) partsAt(ctx context.Context, a time.Duration) ([]part, error) {
	var parts []part
	add := func(name, path string, from time.Duration, gain float64) error {
		s, err := j.decode(ctx, path)
		parts = append(parts, part{name: name, sound: s, from: from, gain: gain})
		return err
	}
	remix := j.film.remixAt(a)
	for _, s := range j.film.segments {
		if s.start <= a && a < s.end() && remix == nil {
			if err := add(j.film.clips[s.clip].name, j.soundOf(s.clip), a-s.start+s.from, s.volume); err != nil {
				return nil, err
			}
		}
	}
	if remix != nil {
		for _, stem := range []struct {
			name, id string
			gain     float64
		}{{"voice", voiceStem, remix.voice}, {"background", backgroundStem, remix.background}} {
			if err := add(stem.name, j.stems[stem.id], a-remix.from+remix.offset, stem.gain); err != nil {
				return nil, err
			}
		}
	}
	playing := false
	for _, m := range j.film.music {
		if m.start <= a && a < m.end() {
			playing = true
			if err := add("music", j.music, a-m.start+m.from, m.volume); err != nil {
				return nil, err
			}
		}
	}
	if !playing && j.ownMedia() {
		// Where the music rests it must not be heard either.
		if err := add("music", j.music, a, 0); err != nil {
			return nil, err
		}
	}
	return parts, nil
}

// soundOf is the file that holds a clip's sound.
func (j *judge) soundOf(n int) string { return j.film.clips[n].path }

// mix takes the film's sound apart, stretch by stretch: each sound must be as
// loud as the edit says, where it says, and nothing else may be heard.
func (j *judge) mix(ctx context.Context) error {
	j.group = "film.mp4, mix"
	heard, err := j.decode(ctx, j.video)
	if err != nil {
		return err
	}
	cuts := j.film.cuts()
	for i := 1; i < len(cuts); i++ {
		a, b := cuts[i-1], cuts[i]
		if b-a < 300*time.Millisecond {
			continue // too short to tell sounds apart
		}
		parts, err := j.partsAt(ctx, a)
		if err != nil {
			return err
		}
		j.stretch(heard, a, b, parts)
	}
	return j.sameAgain(ctx, heard)
}

// fitted is a stretch of the mix taken apart.
type fitted struct {
	mix    meter.Sound // the stretch alone
	parts  []part
	sounds []meter.Sound // of the parts, cut to the stretch
	gains  []float64     // NaN where a part is silent
	rest   float64       // dB relative to the mix
}

func fit(heard meter.Sound, a, b time.Duration, parts []part) fitted {
	f := fitted{mix: heard.Cut(a, b), parts: parts, sounds: make([]meter.Sound, len(parts))}
	for i, p := range parts {
		f.sounds[i] = p.sound.Cut(p.from, p.from+b-a)
	}
	f.gains, f.rest = meter.Unmix(f.mix, f.sounds)
	return f
}

// allowed is how far a part's level may be off, in dB. What the encoder drops
// of a noisy recording makes it quieter, most of all where it is faint in the
// mix; the demonstration's own sounds leave no such excuse.
func (j *judge) allowed(f fitted, i int) float64 {
	if j.ownMedia() {
		return levelWithin
	}
	share := math.Pow(10, (f.sounds[i].Level()+decibels(f.parts[i].gain)-f.mix.Level())/10)
	return levelWithin + lossOf(f.rest, share)
}

// lossOf is how much quieter a part that is share of a mix's power may have
// become by an encoding that changed rest dB of the mix, in dB and at most 1.2.
func lossOf(rest, share float64) float64 {
	return min(-decibels(1-min(math.Pow(10, rest/10)/share, 0.5)), 1.2)
}

// ownMedia tells whether the film shows the demonstration's own clips, whose
// sound is known.
func (j *judge) ownMedia() bool { return j.film.clips[0].lamp != nil }

// restAtMost is how loud what is in the mix beside the expected sounds may be,
// in dB relative to it: the noise of one AAC encoding. Noisy recordings, which
// the user may bring, come out of it less alike.
func (j *judge) restAtMost() float64 {
	if j.ownMedia() {
		return -18
	}
	return -8
}

// stretch checks one stretch of the mix.
func (j *judge) stretch(heard meter.Sound, a, b time.Duration, parts []part) {
	f := fit(heard, a, b, parts)
	ok := f.rest <= j.restAtMost()
	var want, got []string
	var worst time.Duration
	for i, p := range parts {
		if math.IsNaN(f.gains[i]) {
			continue // silent there
		}
		want = append(want, fmt.Sprintf("%s ×%.2f", p.name, p.gain))
		got = append(got, fmt.Sprintf("×%.2f", f.gains[i]))
		if p.gain == 0 {
			ok = ok && math.Abs(f.gains[i]) < 0.03
			continue
		}
		ok = ok && math.Abs(decibels(f.gains[i]/p.gain)) <= j.allowed(f, i)
		alone := meter.Without(heard, a, without(f.sounds, i), without(f.gains, i))
		late, _ := meter.Place(alone, a, b, p.sound, p.from, 60*time.Millisecond)
		if late.Abs() > worst.Abs() {
			worst = late
		}
	}
	if len(want) == 0 {
		return
	}
	j.add(fmt.Sprintf("%.1f to %.1f s", a.Seconds(), b.Seconds()), strings.Join(want, ", "),
		fmt.Sprintf("%s; at most %.2f ms off; rest %.0f dB", strings.Join(got, ", "), ms(worst.Abs()), f.rest),
		ok && worst.Abs() <= placeWithin)
}

func without[T any](list []T, i int) []T {
	return append(append([]T{}, list[:i]...), list[i+1:]...)
}

// sameAgain compares the stretch in which both stems have volume 1 with the
// clip's own sound.
func (j *judge) sameAgain(ctx context.Context, heard meter.Sound) error {
	for _, r := range j.film.remixes {
		if r.voice != 1 || r.background != 1 {
			continue
		}
		original, err := j.decode(ctx, j.audio)
		if err != nil {
			return err
		}
		before := original.Cut(r.offset, r.offset+r.to-r.from)
		after := heard.Cut(r.from, r.to)
		_, difference := meter.Difference(before, after)
		change := after.Level() - before.Level()
		allowed := levelWithin
		if !j.ownMedia() {
			allowed += lossOf(difference, 1)
		}
		j.add("both stems at 1 = original", fmt.Sprintf("%.1f dB ± %.1f", before.Level(), allowed),
			fmt.Sprintf("%.1f dB (%+.2f); difference %.0f dB", after.Level(), change, difference), math.Abs(change) <= allowed)
	}
	return nil
}

// loud compares the loudness of voice and background in the original and where
// the voice is lifted out.
func (j *judge) loud(ctx context.Context) error {
	j.group = "loudness"
	heard, err := j.decode(ctx, j.video)
	if err != nil {
		return err
	}
	for _, r := range j.film.remixes {
		if r.voice == 1 && r.background == 1 {
			continue
		}
		parts, err := j.partsAt(ctx, r.from)
		if err != nil {
			return err
		}
		f := fit(heard, r.from, r.to, parts)
		for i, p := range parts {
			if p.name == "music" || math.IsNaN(f.gains[i]) {
				continue
			}
			before, err := meter.Loudness(ctx, f.sounds[i])
			if err != nil {
				return err
			}
			row := loudnessRow{name: p.name, original: before, film: before + decibels(f.gains[i])}
			j.loudness = append(j.loudness, row)
			j.within(fmt.Sprintf("%s, %.1f to %.1f s", p.name, r.from.Seconds(), r.to.Seconds()),
				before+decibels(p.gain), row.film, j.allowed(f, i), "%.1f LUFS")
		}
	}
	whole, err := meter.Loudness(ctx, heard)
	if err != nil {
		return err
	}
	j.tell("whole film", fmt.Sprintf("%.1f LUFS, peak %.1f dBFS", whole, decibels(heard.Peak())))
	return nil
}
