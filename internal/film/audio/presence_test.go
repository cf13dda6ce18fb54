package audio_test

import (
	"math"
	"testing"

	"cutroom/internal/film/audio"
)

// spoken is a tone of a level, in dBFS RMS, on one channel, in each span of seconds.
func spoken(channel int, dbfs float64, spans ...[2]float64) signal {
	voice := tone(220, math.Sqrt2*math.Pow(10, dbfs/20))
	return func(c int, at float64) float64 {
		for _, s := range spans {
			if c == channel && at >= s[0] && at < s[1] {
				return voice(c, at-s[0])
			}
		}
		return 0
	}
}

func sum(signals ...signal) signal {
	return func(c int, at float64) (x float64) {
		for _, s := range signals {
			x += s(c, at)
		}
		return x
	}
}

func TestVoiceIsPresent(t *testing.T) {
	hiss := noise(1, 0.003, 0) // -55 dBFS
	absurd := func(c int, at float64) float64 { return map[bool]float64{true: 1e30}[c == 0 && at == 0.75] }
	for _, c := range []struct {
		name  string
		sound signal
		want  [][2]float64
	}{
		{"silence", spoken(0, -20), nil},
		{"one word", spoken(0, -20, [2]float64{1, 1.7}), [][2]float64{{1, 1.7}}},
		{"from the first sample to the last", spoken(1, -20, [2]float64{0, 4}), [][2]float64{{0, 4}}},
		{"to the last sample", spoken(1, -20, [2]float64{3.99, 4}), [][2]float64{{3.99, 4}}},
		{"a pause of 499 ms", spoken(1, -25, [2]float64{0.5, 1}, [2]float64{1.499, 2}), [][2]float64{{0.5, 2}}},
		{"a pause of 502 ms", spoken(1, -25, [2]float64{0.5, 1}, [2]float64{1.502, 2}), [][2]float64{{0.5, 1}, {1.502, 2}}},
		{"many short pauses", spoken(0, -12, [2]float64{1, 1.2}, [2]float64{1.5, 1.6}, [2]float64{1.9, 2.3}), [][2]float64{{1, 2.3}}},
		{"speakers on both sides", sum(spoken(0, -20, [2]float64{1, 2}), spoken(1, -30, [2]float64{1.8, 3})), [][2]float64{{1, 3}}},
		{"too soft", spoken(0, -46, [2]float64{1, 3}), nil},
		{"too soft on both sides", sum(spoken(0, -46, [2]float64{1, 3}), spoken(1, -46, [2]float64{1, 3})), nil},
		{"just loud enough", spoken(0, -43.5, [2]float64{1, 3}), [][2]float64{{1, 3}}},
		{"a click", spoken(0, -20, [2]float64{1, 1.00005}), nil},
		{"over hiss", sum(hiss, spoken(0, -25, [2]float64{1, 2})), [][2]float64{{1, 2}}},
		{"hiss", hiss, nil},
		{"after an absurd sample", sum(absurd, spoken(0, -20, [2]float64{0.5, 1}), spoken(0, -25, [2]float64{2, 3})),
			[][2]float64{{0.5, 1}, {2, 3}}},
	} {
		d := audio.NewPresenceDetector()
		write(t, d, c.sound.render(2, 4))
		got := d.Spans()
		if len(got) != len(c.want) {
			t.Errorf("%s: %v, want %v seconds", c.name, got, c.want)
			continue
		}
		for i, s := range got {
			const ms = audio.SampleRate / 1000
			if math.Abs(float64(s.Start)-c.want[i][0]*audio.SampleRate) > ms || math.Abs(float64(s.End)-c.want[i][1]*audio.SampleRate) > ms {
				t.Errorf("%s: %v, want %v seconds", c.name, got, c.want)
			}
		}
	}
}
