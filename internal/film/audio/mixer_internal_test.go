// Compares mixes with the sum of their regions, computed sample by sample, and checks the seams of loops.

package audio

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"pgregory.net/rapid"
)

// writeFrames makes a file of the samples.
func writeFrames(t testing.TB, path string, samples []frame) {
	t.Helper()
	b := make([]byte, len(samples)*FrameBytes)
	for i, f := range samples {
		putFrame(b[i*FrameBytes:], f)
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// mixed reads a mix to its end, without limiting.
func mixed(t testing.TB, dir string, regions []*Region, total int64) []frame {
	t.Helper()
	m := NewMixer(dir, regions, total, Untouched)
	b, err := io.ReadAll(m)
	if err != nil || int64(len(b)) != total*FrameBytes {
		t.Fatalf("%d bytes, %v", len(b), err)
	}
	all := make([]frame, total)
	for i := range all {
		for side := range 2 {
			all[i][side] = float64(math.Float32frombits(binary.LittleEndian.Uint32(b[i*FrameBytes+4*side:])))
		}
	}
	return all
}

// slowGain is the envelope by its definition.
func slowGain(p *Region, n int64) float64 {
	x := float64(n) + 0.5
	fade := func(f Fade, distance float64) float64 {
		share := min(1, distance/float64(max(1, f.Length)))
		if f.Length == 0 {
			share = 1
		}
		if f.Shape == Power {
			return math.Sin(math.Pi / 2 * share)
		}
		return share
	}
	g := p.Volume * fade(p.FadeIn, x-float64(p.Start)) * fade(p.FadeOut, float64(p.End)-x)
	for _, m := range p.Mutes {
		if n >= m.Start && n < m.End {
			g *= 1 - fade(Fade{Length: m.FadeIn}, x-float64(m.Start))*fade(Fade{Length: m.FadeOut}, float64(m.End)-x)
		}
	}
	for _, c := range p.Curves {
		level := c[len(c)-1].Gain
		if x < c[0].At {
			level = c[0].Gain
		}
		for i := 1; i < len(c); i++ {
			a, b := c[i-1], c[i]
			if x < a.At || x >= b.At {
				continue
			}
			share := (x - a.At) / (b.At - a.At)
			level = a.Gain*(1-share) + b.Gain*share
			if a.Shape == Decibels {
				level = math.Exp(math.Log(a.Gain)*(1-share) + math.Log(b.Gain)*share)
			}
		}
		g *= level
	}
	return g
}

func drawCurve(rt *rapid.T, total int64) Curve {
	var c Curve
	at := rapid.Int64Range(-100, total).Draw(rt, "first knot")
	for range rapid.IntRange(1, 6).Draw(rt, "knots") {
		gain := rapid.Float64Range(0.05, 3).Draw(rt, "gain")
		c = append(c, Knot{At: float64(at) + rapid.SampledFrom([]float64{0, 0.25}).Draw(rt, "between"), Gain: gain,
			Shape: rapid.SampledFrom([]Shape{Linear, Decibels}).Draw(rt, "shape")})
		if rapid.Bool().Draw(rt, "level") {
			c[len(c)-1].Gain = c[max(0, len(c)-2)].Gain
		}
		at += rapid.SampledFrom([]int64{0, 1, 7, 480, 5000}).Draw(rt, "step") + 1
	}
	return c
}

func drawRegion(rt *rapid.T, files int, length, total int64) *Region {
	start := rapid.Int64Range(0, total-1).Draw(rt, "start")
	p := &Region{Name: "r", File: fmt.Sprint(rapid.IntRange(0, files-1).Draw(rt, "file")), Start: start,
		End: rapid.Int64Range(start+1, total).Draw(rt, "end"), Offset: rapid.Int64Range(-200, length).Draw(rt, "offset")}
	p.Volume = rapid.SampledFrom([]float64{0, 0.3, 1, 2}).Draw(rt, "volume")
	fade := rapid.SampledFrom([]Fade{{}, {96, Linear}, {240, Power}, {5000, Linear}})
	p.FadeIn, p.FadeOut = fade.Draw(rt, "in"), fade.Draw(rt, "out")
	for at := rapid.Int64Range(0, total).Draw(rt, "mute"); len(p.Mutes) < rapid.IntRange(0, 3).Draw(rt, "mutes"); {
		end := at + rapid.Int64Range(1, 3000).Draw(rt, "muted")
		p.Mutes = append(p.Mutes, Mute{at, end, 240, rapid.SampledFrom([]int64{0, 240}).Draw(rt, "rise")})
		at = end
	}
	for range rapid.IntRange(0, 2).Draw(rt, "curves") {
		p.Curves = append(p.Curves, drawCurve(rt, total))
	}
	if rapid.Bool().Draw(rt, "looping") {
		p.Offset = rapid.Int64Range(0, length-6000).Draw(rt, "first")
		p.Period = rapid.Int64Range(1, 6000).Draw(rt, "period")
	}
	return p
}

// Any mix equals the sum of its regions, computed sample by sample.
func TestTheMixIsTheSumOfItsRegions(t *testing.T) {
	const files, length = 4, 9000
	dir := t.TempDir()
	rng := rand.New(rand.NewPCG(1, 2))
	sounds := make([][]frame, files)
	for i := range sounds {
		sign := 1.0
		for range length { // so rough that a loop needs no joint
			sign = -sign
			sounds[i] = append(sounds[i], frame{float64(float32(sign * (1 + rng.Float64()) / 2)), float64(float32(sign * (1 + rng.Float64()) / 2))})
		}
		writeFrames(t, filepath.Join(dir, fmt.Sprint(i)), sounds[i])
	}
	rapid.Check(t, func(rt *rapid.T) {
		total := rapid.Int64Range(1, 15000).Draw(rt, "total")
		var regions []*Region
		for range rapid.IntRange(0, 6).Draw(rt, "regions") {
			regions = append(regions, drawRegion(rt, files, length, total))
		}
		got := mixed(t, dir, regions, total)
		want := make([]frame, total)
		for _, p := range regions {
			var source int
			fmt.Sscan(p.File, &source)
			for n := p.Start; n < p.End; n++ {
				at := p.Offset + n - p.Start
				if p.Period > 0 {
					at = p.Offset + (n-p.Start)%p.Period
				}
				if at < 0 || at >= length {
					continue
				}
				for side := range 2 {
					want[n][side] += sounds[source][at][side] * slowGain(p, n)
				}
			}
		}
		for n := range want {
			for side := range 2 {
				if d := math.Abs(got[n][side] - want[n][side]); d > 1e-6*(1+math.Abs(want[n][side])) {
					rt.Fatalf("sample %d of side %d is %v, want %v", n, side, got[n][side], want[n][side])
				}
			}
		}
	})
}

// A loop whose ends meet is repeated unchanged. Otherwise its end cross-fades into its beginning without a bend, and
// nothing else changes.
func TestLoopsHaveNoSeam(t *testing.T) {
	for name, tt := range map[string]struct {
		hz      float64
		period  int64
		phase   float64
		crossed bool
	}{
		"whole waves":              {480, 48000, 0, false},
		"whole waves, shifted":     {480, 4800, 1, false},
		"half a wave":              {480, 24050, 0, true},
		"half a wave, at its peak": {480, 24050, math.Pi / 2, true},
		"a quarter, long":          {997, 60000, 0.3, true},
		"short":                    {480, 1025, 0.5, true},
	} {
		dir := t.TempDir()
		sound := make([]frame, tt.period)
		wave := func(n float64) float64 { return 0.5 * math.Sin(2*math.Pi*tt.hz*n/SampleRate+tt.phase) }
		for n := range sound {
			sound[n] = frame{wave(float64(n)), -wave(float64(n))}
		}
		writeFrames(t, filepath.Join(dir, "loop"), sound)
		total := 3*tt.period + 100
		got := mixed(t, dir, []*Region{{File: "loop", Period: tt.period, End: total, Envelope: Envelope{Volume: 1}}}, total)
		var bend float64
		cosine := 2 * math.Cos(2*math.Pi*tt.hz/SampleRate)
		for n := int64(2); n < total; n++ {
			bend = max(bend, math.Abs(got[n][0]-cosine*got[n-1][0]+got[n-2][0])/0.5)
			at := n % tt.period
			crosses := tt.crossed && tt.period-at <= loopCross && n < 3*tt.period
			if d := math.Abs(got[n][0] - sound[at][0]); d > 1e-6 && !crosses {
				t.Fatalf("%s: sample %d differs by %v", name, n, d)
			}
		}
		if bend > 0.005 {
			t.Errorf("%s: a bend of %.4f of the peak", name, bend)
		}
	}
}
