// Changes the tempo of a sound and keeps its pitch, by WSOLA. Onsets divide the sound into sections, so that each beat
// stays where the map from film to source puts it.

package audio

import (
	"bufio"
	"context"
	"fmt"
	"math"
	"os"
)

// Stretching changes the tempo and keeps the pitch, by WSOLA (waveform similarity overlap-add). The output consists of
// windows that overlap by half. The window whose middle is output sample o comes from around source sample From +
// o*Tempo, moved by up to searchRadius to where it best continues the previous window.
//
// ffmpeg's atempo is similar but drifts: compared with the exact map from output to source time it leads by 42 ms at
// half speed, and for tempos beyond 2 it needs chained filters, whose drifts add up. Here the map places every window,
// so the sound stays within searchRadius of the picture at every tempo, and the length is exact.
//
// If the tempo changes, the source is also divided where sounds end suddenly: how long a sound lasts then depends on
// where it lies, and a window that outlasts the sound would shift its middle.
//
// Windows smear sudden starts: at half speed a clap would be heard 20 ms early. So the source is divided at its onsets.
// No window before an onset reaches into it, and a new window begins at the onset, at exactly the sample given by the
// map.
const (
	stretchWindow = 2048              // samples; 43 ms contain two periods of the lowest voice
	stretchHop    = stretchWindow / 2 // between windows in the output
	searchRadius  = 600               // samples; 12.5 ms to each side: together more than a period at 50 Hz
	coarse        = 6                 // the search starts with averages of six samples: 8 kHz
	// stretchJoin is the length in samples of the fade from the sound before an onset into the onset, which is loud
	// enough to mask the seam.
	stretchJoin = 2 * onsetStep
	// stretchSection is the minimum distance between two onsets: the section between them must have room for a
	// window at every place that the search may try.
	stretchSection = stretchWindow + 2*searchRadius + 2*stretchJoin
)

// Stretch is a range of a sound at another tempo and the same pitch, or backwards, or both.
type Stretch struct {
	From   float64 // sample of the source that plays first
	Tempo  float64 // 2 is twice as fast; 1 if there is a Pace
	Length int64   // of the output in samples, exact

	Pace Pace // set if the tempo changes; nil otherwise
	// Backwards reverses the source first: its sample Last becomes sample 0, and From counts in the reversed source.
	Backwards bool
	Last      int64
}

// Pace maps the output of a changing tempo to its source, both in seconds, and back.
type Pace interface {
	At(output float64) (source, tempo float64)
	FilmTime(source float64) float64
}

// Source returns the sample of the source that output sample n plays, counted from From.
func (s Stretch) Source(n float64) float64 {
	if s.Pace == nil {
		return n * s.Tempo
	}
	at, _ := s.Pace.At(n / SampleRate)
	return at * SampleRate
}

// advance returns how far the source plays in the n samples after output sample begin.
func (s Stretch) advance(begin, n int64) float64 {
	if s.Pace == nil {
		return float64(n) * s.Tempo
	}
	return s.Source(float64(begin+n)) - s.Source(float64(begin))
}

// output is the inverse of Source.
func (s Stretch) output(source float64) float64 {
	if s.Pace == nil {
		return source / s.Tempo
	}
	return s.Pace.FilmTime(source/SampleRate) * SampleRate
}

// tempoAt returns the tempo at output sample n.
func (s Stretch) tempoAt(n int64) float64 {
	if s.Pace == nil {
		return s.Tempo
	}
	_, tempo := s.Pace.At(float64(n) / SampleRate)
	return tempo
}

// fastestTo returns the highest tempo in a section that ends at a sample of the source.
func (s Stretch) fastestTo(source float64) float64 {
	if s.Pace == nil {
		return s.Tempo
	}
	tempo := func(at float64) float64 { return s.tempoAt(int64(s.output(at))) }
	return max(tempo(source), tempo(source-2*stretchSection), tempo(source+2*stretchSection))
}

// Write creates the file dst, which must not exist, from the file src, whose first sample has the number first. If ctx
// ends, it returns ctx's cause.
func (s Stretch) Write(ctx context.Context, src string, first int64, dst string) error {
	in, err := openPCM(src, first)
	if err != nil {
		return fmt.Errorf("stretch: %w", err)
	}
	defer in.close()
	in.backwards, in.last = s.Backwards, s.Last
	if err := newStretcher(in).run(ctx, s, dst); err != nil {
		return fmt.Errorf("stretch: %w", err)
	}
	return nil
}

// stretcher creates one stretched sound.
type stretcher struct {
	in     *pcmFile
	window [stretchWindow]float64

	// span is the source around the window being placed, mono the sum of its channels, and low the same at a sixth of
	// the rate.
	span []frame
	mono []float64
	low  []float64

	// tail is the source's own continuation of the last window: the samples after its first half.
	tail    [stretchWindow]float64
	tailLow [stretchWindow / coarse]float64
	ahead   float64 // sum of the rounding errors in the windows' positions, in samples

	second [stretchHop]frame  // second half of the last window
	ready  [stretchHop]frame  // finished output samples
	join   [stretchJoin]frame // end of the previous section

	out *bufio.Writer
}

func newStretcher(in *pcmFile) *stretcher {
	s := &stretcher{in: in}
	for i := range s.window {
		// A Hann window and its shifted copy add up to exactly 1.
		s.window[i] = 0.5 - 0.5*math.Cos(2*math.Pi*(float64(i)+0.5)/stretchWindow)
	}
	const n = stretchWindow + 2*searchRadius
	s.span, s.mono, s.low = make([]frame, n), make([]float64, n), make([]float64, n/coarse)
	return s
}

// section is a range of the output that begins at an onset or at the start.
type section struct {
	source float64 // sample of the source that plays first
	begin  int64   // output sample
	length int64   // output samples
	// lowest and beyond bound the source samples that the section may use.
	lowest, beyond int64
}

// divide splits the output at the source's onsets. Each section but the last extends stretchJoin into the next one.
func (s *stretcher) divide(ctx context.Context, want Stretch) ([]section, error) {
	from := want.From
	apart := func(at int64) int64 {
		return int64(math.Ceil(stretchSection * max(1, want.fastestTo(float64(at)-from))))
	}
	found, err := onsets(ctx, s.in, int64(math.Floor(from)), int64(math.Ceil(from+want.Source(float64(want.Length)))), apart, want.Pace != nil)
	if err != nil {
		return nil, err
	}
	sections := []section{{source: from, length: want.Length, lowest: math.MinInt64 / 2, beyond: math.MaxInt64 / 2}}
	for _, at := range found {
		p := section{lowest: at - stretchJoin, beyond: math.MaxInt64 / 2, source: float64(at - stretchJoin)}
		p.begin = int64(math.Round(want.output(float64(at)-from))) - stretchJoin
		p.length = want.Length - p.begin
		before := &sections[len(sections)-1]
		before.length = p.begin + stretchJoin - before.begin
		before.beyond = at
		sections = append(sections, p)
	}
	return sections, nil
}

// run writes the stretch to path.
func (s *stretcher) run(ctx context.Context, want Stretch, path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o640)
	if err != nil {
		return err
	}
	defer f.Close()
	s.out = bufio.NewWriterSize(f, 1<<16)
	if want.Pace == nil && want.Tempo == 1 {
		err = s.copy(ctx, want)
	} else {
		err = s.stretch(ctx, want)
	}
	if err != nil {
		return err
	}
	if err := s.out.Flush(); err != nil {
		return err
	}
	return f.Close()
}

// copy writes the samples as they are.
func (s *stretcher) copy(ctx context.Context, want Stretch) error {
	var block [4096]frame
	for n := int64(0); n < want.Length; n += int64(len(block)) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		some := block[:min(int64(len(block)), want.Length-n)]
		if err := s.in.read(some, int64(want.From)+n); err != nil {
			return err
		}
		for _, f := range some {
			if err := s.write(f); err != nil {
				return err
			}
		}
	}
	return nil
}

// stretch writes the samples at another tempo.
func (s *stretcher) stretch(ctx context.Context, want Stretch) error {
	sections, err := s.divide(ctx, want)
	if err != nil {
		return err
	}
	for i, p := range sections {
		if err := s.section(ctx, p, want, i > 0, i < len(sections)-1); err != nil {
			return err
		}
	}
	return nil
}

func (s *stretcher) write(f frame) error {
	var b [FrameBytes]byte
	putFrame(b[:], f)
	_, err := s.out.Write(b[:])
	return err
}

// section creates one section. If joined is set, its first samples fade in over the samples of the previous section in
// join. If leaves is set, its own last samples are stored in join.
func (s *stretcher) section(ctx context.Context, p section, want Stretch, joined, leaves bool) error {
	// A slowly rising sound is its own best continuation, so around its start the search moves windows as far as
	// allowed, always in the same direction. Subtracting half of that everywhere splits the error evenly between sounds
	// that start and sounds that last.
	bias := func(tempo float64) float64 { return max(-searchRadius, min(searchRadius, stretchHop*(1-tempo))) / 2 }
	s.ahead = 0
	// Window k covers samples [(k-1)*hop, (k+1)*hop) of the section. Once it is placed, the samples before k*hop are
	// complete.
	for k := int64(0); (k-1)*stretchHop < p.length; k++ {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		middle := p.source
		if k > 0 {
			middle += want.advance(p.begin, k*stretchHop) - bias(want.tempoAt(p.begin+k*stretchHop))
		}
		if err := s.place(int64(math.Round(middle))-stretchHop, k == 0, p); err != nil {
			return err
		}
		if k == 0 {
			continue // its finished half lies before the start
		}
		for i := range min(stretchHop, p.length-(k-1)*stretchHop) {
			n, x := (k-1)*stretchHop+i, s.ready[i]
			if joined && n < stretchJoin {
				in := (float64(n) + 0.5) / stretchJoin
				x[0], x[1] = in*x[0]+(1-in)*s.join[n][0], in*x[1]+(1-in)*s.join[n][1]
			}
			if rest := p.length - n; leaves && rest <= stretchJoin {
				s.join[stretchJoin-rest] = x
				continue
			}
			if err := s.write(x); err != nil {
				return err
			}
		}
	}
	return nil
}

// place adds a window whose nominal start is source sample begin. Unless it is the first of its section, place
// moves it to where it fits best. The samples that it completes are in ready.
func (s *stretcher) place(begin int64, first bool, p section) error {
	at := begin
	if !first {
		// Inside the section the window may move in both directions; near an end of the section, only inwards.
		from := max(begin-searchRadius, p.lowest)
		to := max(begin+searchRadius, from+searchRadius)
		if end := p.beyond - stretchWindow; to > end {
			to = end
			from = max(min(from, to-searchRadius), p.lowest)
		}
		span := s.span[:stretchWindow+to-from]
		if err := s.in.read(span, from); err != nil {
			return err
		}
		for i, f := range span {
			s.mono[i] = f[0] + f[1]
		}
		home := min(max(begin, from), to) - from
		at = from + int64(s.search(s.mono[:len(span)], int(home)))
	}
	var window [stretchWindow]frame
	if err := s.in.read(window[:], at); err != nil {
		return err
	}
	s.crossFade(window[:stretchHop])
	copy(s.second[:], window[stretchHop:])
	return s.remember(at + stretchHop)
}

// crossFade writes the cross-fade from the second half of the last window to the first half of the next one into ready.
//
// The weights of the halves add up to 1, which keeps the level of similar halves. For dissimilar halves, as in wind or
// applause, only the powers add up, and the middle would lose half the power. So the sum is amplified by what two
// halves of equal power lose at their correlation: 0 to 3 dB.
func (s *stretcher) crossFade(first []frame) {
	var a, b, both float64
	for i, x := range s.second {
		// The loss is largest in the middle, so weight the correlation towards it.
		w, y := s.window[i]*s.window[stretchHop+i], first[i]
		a += w * (x[0]*x[0] + x[1]*x[1])
		b += w * (y[0]*y[0] + y[1]*y[1])
		both += w * (x[0]*y[0] + x[1]*y[1])
	}
	likeness := 1.0
	if a > 0 && b > 0 {
		likeness = max(0, both/math.Sqrt(a*b))
	}
	for i, x := range s.second {
		out, in, y := s.window[stretchHop+i], s.window[i], first[i]
		gain := 1 / math.Sqrt(out*out+in*in+2*out*in*likeness)
		out, in = out*gain, in*gain
		s.ready[i] = frame{out*x[0] + in*y[0], out*x[1] + in*y[1]}
	}
}

// remember stores the source's own continuation of the window just placed, which the next window should resemble.
func (s *stretcher) remember(at int64) error {
	var next [stretchWindow]frame
	if err := s.in.read(next[:], at); err != nil {
		return err
	}
	for i, f := range next {
		s.tail[i] = f[0] + f[1]
	}
	downsample(s.tailLow[:], s.tail[:])
	return nil
}

// downsample averages groups of coarse samples.
func downsample(dst, src []float64) {
	for i := range dst {
		var sum float64
		for _, x := range src[i*coarse : (i+1)*coarse] {
			sum += x
		}
		dst[i] = sum
	}
}

// search returns where in signal the window fits best, by correlation with tail: first on the downsampled signal over
// the whole range, then sample by sample around the best place. home is where the map places it.
func (s *stretcher) search(signal []float64, home int) int {
	last := len(signal) - stretchWindow
	low := s.low[:len(signal)/coarse]
	downsample(low, signal)
	best, at := bestMatch(low, s.tailLow[:], 0, last/coarse, home/coarse, searchRadius/coarse)
	if best <= 0 {
		return home // silence, or no similarity: follow the map
	}
	from, to := max(0, (at-1)*coarse), min(last, (at+1)*coarse)
	if _, at = bestMatch(signal, s.tail[:], from, to, at*coarse, searchRadius); at < 0 {
		return home
	}
	// The best place lies between two samples. Rounding it in every window would add up and detune a tone, so the next
	// windows compensate for the error.
	exact := float64(at) + peakOffset(signal, s.tail[:], at)
	taken := min(max(int(math.Round(exact-s.ahead)), 0), last)
	s.ahead += float64(taken) - exact
	return taken
}

// peakOffset returns the distance from sample at, at most half a sample, to the maximum of the correlation of
// pattern and signal, by the parabola through its neighbours.
func peakOffset(signal, pattern []float64, at int) float64 {
	if at < 1 || at+1+len(pattern) > len(signal) {
		return 0
	}
	var before, here, after float64
	for j, x := range pattern {
		before += x * signal[at+j-1]
		here += x * signal[at+j]
		after += x * signal[at+j+1]
	}
	bend := before - 2*here + after
	if bend >= 0 {
		return 0
	}
	return max(-0.5, min(0.5, (before-after)/(2*bend)))
}

// bestMatch slides pattern over signal and returns the normalised correlation and the place of the best match in [from,
// to]. Among equal matches it prefers the one nearest to home, so that steady sound follows the map.
func bestMatch(signal, pattern []float64, from, to, home, radius int) (best float64, at int) {
	n := len(pattern)
	var energy float64
	for _, x := range signal[from : from+n] {
		energy += x * x
	}
	at = -1
	for i := from; i <= to && i+n <= len(signal); i++ {
		if i > from {
			energy += signal[i+n-1]*signal[i+n-1] - signal[i-1]*signal[i-1]
		}
		if energy < 1e-9 {
			continue
		}
		var dot float64
		window := signal[i : i+n]
		for j, x := range pattern {
			dot += x * window[j]
		}
		// A slight preference for home: one hundredth at the largest distance.
		score := dot / math.Sqrt(energy) * (1 - 0.01*math.Abs(float64(i-home))/float64(radius))
		if at < 0 || score > best {
			best, at = score, i
		}
	}
	return best, at
}
