package sound

import "math"

// hertz is the pitch of a MIDI key.
func hertz(key int) float64 { return 440 * math.Pow(2, float64(key-69)/12) }

// release shortens a tone to its length with a soft end.
func release(t, length, end float64) float64 {
	if t <= length {
		return 1
	}
	return max(1-(t-length)/end, 0)
}

// electricPiano is two operators of frequency modulation: a round body and the
// short bright stroke of a tine.
func electricPiano(key int, length, velocity float64) []float64 {
	hz := hertz(key)
	out := make([]float64, int((length+0.35)*Rate))
	for i := range out {
		t := float64(i) / Rate
		body := math.Sin(2*math.Pi*hz*t + (1.1*velocity)*math.Exp(-2.6*t)*math.Sin(2*math.Pi*hz*t))
		tine := math.Sin(2*math.Pi*hz*t + 0.9*math.Exp(-14*t)*math.Sin(2*math.Pi*hz*14*t))
		envelope := min(t*260, 1) * math.Exp(-1.5*t) * release(t, length, 0.35)
		out[i] = (0.72*body + 0.28*tine*math.Exp(-5*t)) * envelope * velocity
	}
	return out
}

// pad is a soft choir of detuned tones; side makes the two channels differ, so
// that it sounds wide.
func pad(key int, length float64, side int) []float64 {
	hz := hertz(key)
	out := make([]float64, int((length+0.5)*Rate))
	for voice := range 3 {
		detune := 1 + 0.0021*(float64(voice)-1) + 0.0009*float64(side)*float64(voice+1)
		start := float64(side+3)*1.7 + float64(voice)*2.3
		for partial := 1; partial <= 7; partial++ {
			n := float64(partial)
			amplitude := math.Pow(n, -1.75) / 3
			step := 2 * math.Pi * hz * detune * n / Rate
			// A rotating vector is cheaper than a sine for each sample.
			sin, cos := math.Sincos(start * n)
			rs, rc := math.Sincos(step)
			for i := range out {
				out[i] += sin * amplitude
				sin, cos = sin*rc+cos*rs, cos*rc-sin*rs
			}
		}
	}
	for i := range out {
		t := float64(i) / Rate
		swell := 1 - 0.16*math.Sin(2*math.Pi*0.4*t+float64(side))
		out[i] *= ease(t/0.35) * release(t, length, 0.5) * swell
	}
	return out
}

func ease(t float64) float64 {
	t = min(max(t, 0), 1)
	return t * t * (3 - 2*t)
}

// pluck is a string by Karplus and Strong: a burst of noise that runs round a
// delay line and loses its edge.
func pluck(key int, length, brightness float64) []float64 {
	hz := hertz(key)
	period := Rate / hz
	size := int(period)
	fraction := period - float64(size)
	line := make([]float64, size+1)
	source := noise(key * 7919)
	filter := newLowPass(900 + 5200*brightness)
	for i := range line {
		line[i] = filter.next(source.next())
	}
	out := make([]float64, int((length+0.25)*Rate))
	at, last := 0, 0.0
	damping := 0.9965
	for i := range out {
		next := (at + 1) % len(line)
		v := line[at]*fraction + line[next]*(1-fraction)
		out[i] = v * release(float64(i)/Rate, length, 0.25) * 1.6
		line[at] = damping * (0.62*v + 0.38*last)
		last = v
		at = next
	}
	return out
}

// bass is a round tone with a little growl at its start.
func bass(key int, length float64) []float64 {
	hz := hertz(key)
	out := make([]float64, int((length+0.08)*Rate))
	for i := range out {
		t := float64(i) / Rate
		phase := 2 * math.Pi * hz * t
		v := math.Sin(phase) + 0.34*math.Exp(-3*t)*math.Sin(2*phase) + 0.16*math.Exp(-6*t)*math.Sin(3*phase)
		out[i] = v * min(t*180, 1) * (0.55 + 0.45*math.Exp(-2.2*t)) * release(t, length, 0.08)
	}
	return out
}

func kick() []float64 {
	out := make([]float64, Rate*32/100)
	var phase float64
	for i := range out {
		t := float64(i) / Rate
		phase += 2 * math.Pi * (47 + 95*math.Exp(-t*34)) / Rate
		out[i] = math.Sin(phase)*math.Exp(-t*9.5)*min(t*900, 1) + 0.12*math.Exp(-t*420)
	}
	return out
}

func snare() []float64 {
	out := make([]float64, Rate*24/100)
	source := noise(77)
	low, high := newLowPass(5200), newLowPass(900)
	for i := range out {
		t := float64(i) / Rate
		n := low.next(source.next())
		n -= high.next(n)
		body := math.Sin(2*math.Pi*(182+40*math.Exp(-t*50))*t) * math.Exp(-t*26)
		out[i] = 0.85*n*math.Exp(-t*17) + 0.45*body
	}
	return out
}

// hat is a closed hi-hat; softness shortens it.
func hat(softness float64) []float64 {
	out := make([]float64, Rate*9/100)
	source := noise(123)
	high, low := newLowPass(5500), newLowPass(9000)
	for i := range out {
		n := source.next()
		n = low.next(n - high.next(n))
		out[i] = n * math.Exp(-float64(i)/Rate*(55+60*softness))
	}
	return out
}

// bell is a struck bar: three partials that are no multiples of each other.
func bell(key int, length float64) []float64 {
	hz := hertz(key)
	out := make([]float64, int(length*Rate))
	for i := range out {
		t := float64(i) / Rate
		v := math.Sin(2*math.Pi*hz*t)*math.Exp(-1.9*t) + 0.36*math.Sin(2*math.Pi*hz*2.756*t)*math.Exp(-4.2*t) +
			0.14*math.Sin(2*math.Pi*hz*5.404*t)*math.Exp(-9*t)
		out[i] = v * min(t*500, 1) * (1 - t/length)
	}
	return out
}

// surf is water and wind: noise that swells, different in both channels.
func surf(n int) *Wave {
	w := &Wave{L: make([]float64, n), R: make([]float64, n)}
	for side, out := range [][]float64{w.L, w.R} {
		source := noise(991 + side)
		deep, wide := newLowPass(420), newLowPass(2600)
		for i := range out {
			t := float64(i) / Rate
			v := source.next()
			swell := 0.55 + 0.45*math.Sin(2*math.Pi*t/3.9+float64(side)*0.8)
			out[i] = 1.1*deep.next(v) + 0.22*swell*wide.next(v)
		}
	}
	return w
}

// room adds the echo of a small hall, after Schroeder: four combs and two
// all-passes a side.
func (w *Wave) room(wet float64) {
	for side, channel := range [][]float64{w.L, w.R} {
		spread := side * 23
		sum := make([]float64, len(channel))
		for _, length := range []int{1687, 1601, 2053, 2251} {
			comb(channel, sum, length+spread, 0.77)
		}
		for _, length := range []int{347, 113} {
			allPass(sum, length+spread, 0.6)
		}
		for i := range channel {
			channel[i] += sum[i] * wet / 4
		}
	}
}

func comb(in, sum []float64, length int, feedback float64) {
	line := make([]float64, length)
	damp := newLowPass(3800)
	for i, x := range in {
		at := i % length
		y := line[at]
		line[at] = x + damp.next(y)*feedback
		sum[i] += y
	}
}

func allPass(v []float64, length int, gain float64) {
	line := make([]float64, length)
	for i, x := range v {
		at := i % length
		y := line[at]
		line[at] = x + y*gain
		v[i] = y - line[at]*gain
	}
}
