// The fields of a film's sound, on generated signals without ffmpeg: fades, loops, volume points, recordings across
// joins, ducking.

package engine

import (
	"encoding/binary"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"cutroom/internal/film/audio"
	"cutroom/internal/film/media/container"
	"cutroom/internal/film/timeline"
)

// signal is a sound source given by formulas of the time in seconds.
type signal struct {
	seconds     float64
	left, right func(at float64) float64
}

// write writes what a decode of the signal would.
func (s signal) write(t *testing.T, dir string, d *decodedAudio) {
	t.Helper()
	var b []byte
	for n := d.From; n < d.To; n++ {
		for _, side := range []func(float64) float64{s.left, s.right} {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(side(float64(n)/sampleRate))))
		}
	}
	if err := os.WriteFile(filepath.Join(dir, d.File), b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func silence(float64) float64 { return 0 }

// half gives every sample half the gain.
func half(float64) float64 { return 0.5 }

// spoken is a 1 kHz tone between pairs of times.
func spoken(amplitude float64, times ...float64) func(float64) float64 {
	return func(at float64) float64 {
		for i := 0; i < len(times); i += 2 {
			if at >= times[i] && at < times[i+1] {
				return amplitude * math.Sin(2*math.Pi*1000*at)
			}
		}
		return 0
	}
}

// sounds are the sources of a test, by key.
type sounds map[string]signal

// mix plans a timeline, makes its sounds without decoding, and returns both sides of the mix before encoding.
func (s sounds) mix(t *testing.T, tl timeline.Timeline) (sides [2][]float64) {
	t.Helper()
	if err := tl.Validate(timeline.MultipartNames); err != nil {
		t.Fatal(err)
	}
	sources := map[string]*Source{}
	for key, of := range s {
		end := time.Duration(of.seconds * float64(time.Second))
		sources[key] = &Source{Path: key, SHA256: key, info: &Info{Kind: container.WAV, Streams: 1,
			Audio: &audioInfo{Packets: 100, End: end, ClaimedEnd: end}}}
	}
	r := New(Config{Cores: 2}).newRun(Job{Dir: t.TempDir(), Timeline: tl})
	defer r.close()
	var err error
	if r.plan, err = makePlan(tl, sources, r.cfg.Limits, Machine{Cores: 2}); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(r.work, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, d := range r.plan.Audio {
		s[d.source.SHA256].write(t, r.work, d)
	}
	for _, x := range r.plan.Stretches {
		if err := r.makeStretch(t.Context(), x); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.duck(t.Context()); err != nil {
		t.Fatal(err)
	}
	return mixOf(t, r.work, r.plan)
}

// mixOf returns both sides of a plan's mix, whose sounds are in dir.
func mixOf(t *testing.T, dir string, p *Plan) (sides [2][]float64) {
	t.Helper()
	mix := audio.NewMixer(dir, played(p.Regions), p.Samples, audio.Untouched)
	b, err := io.ReadAll(mix)
	if err != nil {
		t.Fatal(err)
	}
	for ; len(b) > 0; b = b[8:] {
		for side := range sides {
			sides[side] = append(sides[side], float64(math.Float32frombits(binary.LittleEndian.Uint32(b[4*side:]))))
		}
	}
	return sides
}

func soundOf(segments ...timeline.Segment) timeline.Timeline {
	tl := filmOf(segments...)
	tl.OutputKind = timeline.Audio
	return tl
}

// checkGains compares what a level of 0.5 became with the expected gain at each second, except near steps.
func checkGains(t *testing.T, what string, samples []float64, want func(at float64) float64, steps ...float64) {
	t.Helper()
	const around = 0.0021 // a seam is softened over 2 ms
	for n, x := range samples {
		at := (float64(n) + 0.5) / sampleRate
		if slices.ContainsFunc(steps, func(s float64) bool { return math.Abs(s-at) < around }) {
			continue
		}
		if d := math.Abs(x/0.5 - want(at)); d > 1e-4 {
			t.Fatalf("%s: the gain at %.5f s is %.5f, want %.5f", what, at, x/0.5, want(at))
		}
	}
}

// between rises or falls linearly from a to b while at goes from begin to end.
func between(at, begin, end, a, b float64) float64 {
	return a + (b-a)*max(0, min(1, (at-begin)/(end-begin)))
}

func msec(n int64) time.Duration { return timeline.Milliseconds(n) }

func TestFadesAreInsideThePlayedSpan(t *testing.T) {
	t.Parallel()
	given := sounds{"silence": {4, silence, silence}, "music": {10, half, silence}}
	for name, tt := range map[string]struct {
		clip     timeline.Clip
		from, to float64 // the audible range
		in, out  float64
	}{
		"to the film's end":         {timeline.Clip{Start: msec(500), FadeIn: time.Second, FadeOut: 2 * time.Second}, 0.5, 4, 1, 2},
		"to endMs":                  {timeline.Clip{Start: msec(500), End: msec(3000), FadeIn: msec(250), FadeOut: msec(125)}, 0.5, 3, 0.25, 0.125},
		"to the range's end":        {timeline.Clip{SourceTrimStart: msec(100), SourceTrimEnd: msec(1100), End: msec(3000), FadeIn: msec(100), FadeOut: msec(200)}, 0, 1, 0.1, 0.2},
		"longer than what is heard": {timeline.Clip{Start: msec(1000), End: msec(3000), FadeIn: 3 * time.Second, FadeOut: time.Second}, 1, 3, 1.5, 0.5},
		"one longer than it":        {timeline.Clip{Start: msec(1000), End: msec(3000), FadeOut: 30 * time.Second}, 1, 3, 0, 2},
		"of a loop":                 {timeline.Clip{SourceTrimEnd: msec(700), Loop: true, End: msec(3000), FadeIn: time.Second, FadeOut: time.Second}, 0, 3, 1, 1},
	} {
		tl := soundOf(of("silence", ms(0, 4000)))
		tt.clip.SourceKey, tt.clip.Volume, tt.clip.Speed = "music", 0.8, 1
		tl.Clips = []timeline.Clip{tt.clip}
		got := given.mix(t, tl)[0]
		checkGains(t, name, got, func(at float64) float64 {
			g := 0.8
			if tt.in > 0 {
				g *= between(at, tt.from, tt.from+tt.in, 0, 1)
			}
			if tt.out > 0 {
				g *= between(at, tt.to-tt.out, tt.to, 1, 0)
			}
			if at < tt.from || at >= tt.to {
				return 0
			}
			return g
		}, tt.from, tt.to)
	}
}

// Stems play where their directive's range lies on the film's time, even in a segment that changes its speed, and in
// what follows it: a speed from 1 to 2 in a second of the source takes ln 2 seconds.
func TestStemsInSegmentsThatChangeTheirSpeed(t *testing.T) {
	t.Parallel()
	given := sounds{"take": {8, half, silence}, "stem": {8, half, silence}}
	curved := of("take", ms(2000, 4000))
	curved.SpeedPoints = []timeline.SpeedPoint{{Speed: 1}, {At: time.Second, Speed: 2}}
	for _, backwards := range []bool{false, true} {
		curved.Reverse = backwards
		tl := soundOf(of("take", ms(0, 2000)), curved, of("take", ms(0, 2000)))
		for _, r := range []timeline.Range{{Start: msec(2200), End: msec(2900)}, {Start: msec(3000), End: msec(3500)}} {
			tl.Directives = append(tl.Directives, timeline.Directive{ID: "d", Range: r, MuteOriginal: true, AppliedSpeed: 1,
				Selections: []timeline.Selection{{StemID: "background", SourceKey: "stem", Volume: 0.25}}})
		}
		mixed := given.mix(t, tl)[0]
		if end := 4 + math.Ln2 + 0.5; math.Abs(float64(len(mixed))/sampleRate-end) > 0.04 {
			t.Errorf("the sound has %d samples, want %.3f s", len(mixed), end)
		}
		var steps []float64
		for _, at := range []float64{2, 2.2, 2.9, 2.5 + math.Ln2, 3, 3.5} {
			steps = append(steps, at-0.004, at, at+0.004) // stems fade for 5 ms
		}
		checkGains(t, "a curve", mixed, func(at float64) float64 {
			if at >= 2.2 && at < 2.9 || at >= 3 && at < 3.5 {
				return 0.25
			}
			return 1
		}, steps...)
	}
}

func TestALoopRepeatsItsRange(t *testing.T) {
	t.Parallel()
	given := sounds{"silence": {5, silence, silence}, "music": {3,
		func(at float64) float64 { return 0.5 * math.Sin(200*at*at) }, func(at float64) float64 { return 0.25 * math.Cos(3000*at) }}}
	for _, tt := range []struct {
		clip   timeline.Clip
		period int
	}{
		{timeline.Clip{Speed: 1, SourceTrimStart: msec(200), SourceTrimEnd: msec(1234)}, 1034 * 48},
		{timeline.Clip{Speed: 1, Start: msec(333)}, 3 * 48000},
		{timeline.Clip{Speed: 1, SourceTrimStart: msec(100), SourceTrimEnd: msec(107)}, 7 * 48},
		{timeline.Clip{Speed: 1.3, SourceTrimEnd: msec(1001)}, 36960}, // 36960 = 48048 / 1.3
	} {
		tt.clip.SourceKey, tt.clip.Volume, tt.clip.Loop = "music", 1, true
		tl := soundOf(of("silence", ms(0, 5000)))
		tl.Clips = []timeline.Clip{tt.clip}
		start := int(samplesOf(tt.clip.Start))
		for side, samples := range given.mix(t, tl) {
			heard := samples[start:]
			var energy float64
			for n, x := range heard[tt.period:] {
				energy += x * x
				// The cross-fade into the next repetition lasts less than 10 ms.
				if left := tt.period - n%tt.period; n < 96 || left < 480 && tt.period > 480 || left < 100 {
					continue
				}
				if d := math.Abs(x - heard[n]); d > 1e-6 {
					t.Fatalf("%v, side %d: sample %d differs by %v from the one a period before", tt.clip, side, n+tt.period, d)
				}
			}
			if energy < 100 {
				t.Errorf("%v, side %d: the loop is silent", tt.clip, side)
			}
		}
	}
}

func TestVolumePointsCountFromTheStartOfTheirClip(t *testing.T) {
	t.Parallel()
	given := sounds{"silence": {6, silence, silence}, "music": {10, half, silence}}
	points := []timeline.Point{{At: msec(500), Volume: 0.2}, {At: msec(1500), Volume: 1}, {At: msec(1501), Volume: 0}}
	at := func(begin, from float64) float64 { // the gain of points that count from begin
		switch x := from - begin; {
		case x < 0.5:
			return 0.2
		case x < 1.5:
			return between(x, 0.5, 1.5, 0.2, 1)
		default:
			return between(x, 1.5, 1.501, 1, 0)
		}
	}
	with := func(volume float64, s timeline.Segment) timeline.Segment {
		s.Volume, s.Points = volume, points
		return of("music", s)
	}
	for name, tt := range map[string]struct {
		segments []timeline.Segment
		change   func(*timeline.Timeline)
		before   float64 // the gain of the first second
		gain     func(x float64) float64
		steps    []float64
	}{
		"segment": {segments: []timeline.Segment{of("music", ms(0, 1000)), with(0.5, ms(3000, 6000))}, before: 1,
			gain: func(x float64) float64 { return 0.5 * at(1, x) }, steps: []float64{0, 1, 4}},
		"second of a run": {segments: []timeline.Segment{of("music", ms(0, 1000)), with(1, ms(1000, 4000))}, before: 1,
			gain: func(x float64) float64 { return at(1, x) }, steps: []float64{1}},
		"clip": {segments: []timeline.Segment{of("silence", ms(0, 6000))}, change: func(tl *timeline.Timeline) {
			tl.Clips = []timeline.Clip{{SourceKey: "music", Start: time.Second, Volume: 2, Speed: 1, Points: points, FadeIn: time.Second}}
		}, gain: func(x float64) float64 { return 2 * between(x, 1, 2, 0, 1) * at(1, x) }},
		"selection": {segments: []timeline.Segment{of("silence", ms(0, 2000)), of("silence", ms(3000, 6000))}, change: func(tl *timeline.Timeline) {
			tl.Directives = []timeline.Directive{{ID: "d", Range: timeline.Range{Start: time.Second, End: 4 * time.Second}, AppliedSpeed: 1,
				Selections: []timeline.Selection{{StemID: "x", SourceKey: "music", Volume: 0.5, Points: points}}}}
		}, gain: func(x float64) float64 { return 0.5 * at(1, min(x, 4)) }, steps: []float64{1, 1.004, 3.996, 4}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tl := soundOf(tt.segments...)
			if tt.change != nil {
				tt.change(&tl)
			}
			checkGains(t, name, given.mix(t, tl)[0], func(x float64) float64 {
				if x < 1 {
					return tt.before
				}
				return tt.gain(x)
			}, tt.steps...)
		})
	}
}

// A recording over several segments plays as it would over one: their joins, which the film's frames move, change no
// sample of it, nor of the music that it turns down.
func TestARecordingPlaysThroughJoins(t *testing.T) {
	t.Parallel()
	given := sounds{"silence": {9, silence, silence}, "music": {10, half, half},
		"voice": {20, func(at float64) float64 { return 0.4 * math.Sin(300*at*at) }, spoken(0.3, 2, 4, 6, 7)}}
	rate := int64(25)
	joined := soundOf(of("silence", ms(0, 1010)), of("silence", joinedBy(timeline.Dissolve, 500, ms(3, 2351))),
		of("silence", joinedBy(timeline.FadeBlack, 300, ms(2500, 4277))), of("silence", ms(5003, 8998)))
	for _, at := range []struct {
		from, to int64
		speed    float64
	}{{0, 60000, 1}, {300, 7000, 1.3}, {800, 4500, 1}} { // 800 lies in the dissolve
		record := func(tl timeline.Timeline) []float64 {
			tl.Canvas = &timeline.Canvas{Aspect: "source", Fit: "contain", FrameRate: &rate}
			tl.FadeIn = &timeline.FilmFade{Colour: timeline.Black, Duration: 100 * time.Millisecond} // it counts frames
			tl.Clips = []timeline.Clip{{SourceKey: "music", Volume: 0.5, Speed: 1, Ducking: &timeline.DefaultDucking}}
			tl.Directives = []timeline.Directive{{ID: "d", Range: timeline.Range{Start: msec(at.from), End: msec(at.to)}, AppliedSpeed: at.speed,
				SourceOffset: msec(700), MuteOriginal: true, Selections: []timeline.Selection{{StemID: "voice_all", SourceKey: "voice", Volume: 0.9,
					Points: []timeline.Point{{At: msec(1000), Volume: 1}, {At: msec(3000), Volume: 0.3}}}}}}
			sides := given.mix(t, tl)
			return append(sides[0], sides[1]...)
		}
		got := record(joined)
		length := int64(len(got)/2) / 48
		if want := record(soundOf(of("silence", ms(0, length)))); !slices.Equal(got, want) {
			n := 0
			for n < min(len(got), len(want)) && got[n] == want[n] {
				n++
			}
			t.Errorf("%+v: %d samples, want %d; they differ from %d on", at, len(got), len(want), n)
		}
	}
}

// duckedGain is the gain of ducked music by the contract: the lowest gain that any voice requires, including the fall
// before it and the rise after it.
func duckedGain(voices [][2]float64, d timeline.Ducking, at float64) float64 {
	gain := 0.0 // dB
	for _, v := range voices {
		g := -d.AmountDB
		if at < v[0] {
			g = between(at, v[0]-d.Attack.Seconds(), v[0], 0, -d.AmountDB)
		} else if at >= v[1] {
			g = between(at, v[1], v[1]+d.Release.Seconds(), -d.AmountDB, 0)
		}
		gain = min(gain, g)
	}
	return fromDB(gain)
}

func TestMusicStepsBackForVoices(t *testing.T) {
	t.Parallel()
	// Voices only on the right, the louder channel. The pause before the second voice is short enough to belong to the
	// first; the pause before the third is not.
	given := sounds{"music": {10, half, silence}, "speech": {8, silence, spoken(0.4, 1, 2, 2.3, 3, 4, 5)},
		"other": {8, silence, spoken(0.4, 6, 6.5)}, "soft": {8, silence, spoken(0.005, 0, 8)}}
	stem := func(id, source string, volume float64, points ...timeline.Point) []timeline.Directive {
		return []timeline.Directive{{ID: "d", Range: timeline.Range{End: 8 * time.Second}, AppliedSpeed: 1,
			Selections: []timeline.Selection{{StemID: id, SourceKey: source, Volume: volume, Points: points}}}}
	}
	muted := stem("background", "soft", 1)
	muted[0].Range.End, muted[0].MuteOriginal = msec(3500), true
	own, duck := [][2]float64{{1, 3}, {4, 5}}, timeline.Ducking{AmountDB: 12, Attack: msec(200), Release: msec(400)}
	later := [][2]float64{{6, 6.5}}
	for name, tt := range map[string]struct {
		segment    string
		directives []timeline.Directive
		ducking    timeline.Ducking
		voices     [][2]float64
	}{
		"the segments' own sound":     {"speech", nil, duck, own},
		"the default":                 {"speech", nil, timeline.DefaultDucking, own},
		"without ramps":               {"speech", nil, timeline.Ducking{AmountDB: 24}, own},
		"ramps longer than the pause": {"speech", nil, timeline.Ducking{AmountDB: 20, Attack: time.Second, Release: 3 * time.Second}, own},
		"by nothing":                  {"speech", nil, timeline.Ducking{Attack: msec(200)}, own},
		"nobody speaks":               {"soft", nil, duck, nil},
		"another stem":                {"speech", stem("background", "other", 1), duck, own},
		"the voice's stem":            {"speech", stem("voice_all", "other", 1), duck, later},
		"a speaker's stem":            {"speech", stem("speaker_1", "other", 1), duck, later},
		"a voice at volume 0":         {"speech", stem("voice_all", "other", 0), duck, nil},
		"a voice too soft":            {"speech", stem("voice_all", "other", 1, timeline.Point{Volume: 0.01}), duck, nil},
		"muted until 3.5 s":           {"speech", muted, duck, own[1:]},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tl := soundOf(of(tt.segment, ms(0, 8000)))
			tl.Directives = tt.directives
			tl.Clips = []timeline.Clip{{SourceKey: "music", Volume: 0.7, Speed: 1, FadeOut: time.Second, Ducking: &tt.ducking,
				Points: []timeline.Point{{At: 0, Volume: 0.5}, {At: 8 * time.Second, Volume: 1}}}}
			mixed := given.mix(t, tl)[0]
			for n := 0; n < len(mixed); n += 16 {
				at := (float64(n) + 0.5) / sampleRate
				rest := 0.7 * between(at, 7, 8, 1, 0) * between(at, 0, 8, 0.5, 1)
				// Times are promised within 1 ms: the gain lies between those around it.
				low, high := math.Inf(1), math.Inf(-1)
				for _, near := range []float64{at - 0.001, at, at + 0.001} {
					g := duckedGain(tt.voices, tt.ducking, near) * rest
					low, high = min(low, g), max(high, g)
				}
				if got := mixed[n] / 0.5; got < low-1e-3 || got > high+1e-3 {
					t.Fatalf("the gain at %.4f s is %.4f, want %.4f to %.4f", at, got, low, high)
				}
			}
		})
	}
}
