package engine

import (
	"bufio"
	"context"
	"fmt"
	"math"
	"os"
)

// Changing the tempo without the pitch: WSOLA. The output is built of windows
// that overlap by half. The window whose middle lies at output sample o is
// taken from around source sample From + o*Tempo, moved by up to searchRadius to
// where it continues the window before it best.
//
// ffmpeg's atempo works alike but drifts: measured against the exact map from
// output to source time it leads by 42 ms at half speed, and chained filters for
// tempos beyond 2 add up. Here every window is placed by the map itself, so the
// sound stays within searchRadius of the picture at every tempo, and the length
// is exact.
const (
	stretchWindow = 2048              // samples; 43 ms holds two periods of the lowest voice
	stretchHop    = stretchWindow / 2 // between windows in the output
	searchRadius  = 600               // samples; 12.5 ms to either side: more than a period at 50 Hz
	coarse        = 6                 // the search first runs on every sixth sample, averaged: 8 kHz
)

// stretcher makes one stretched sound.
type stretcher struct {
	in     *pcmFile
	window [stretchWindow]float64

	// span holds the source around the window being placed, mono its sum of
	// channels, low the same at a sixth of the rate.
	span []frame
	mono []float64
	low  []float64

	// tail is what the last window would go on with: the source's samples behind
	// its first half.
	tail     [stretchWindow]float64
	tailLow  [stretchWindow / coarse]float64
	haveTail bool

	overlap [stretchHop]frame // second half of the last window, faded out
	ready   [stretchHop]frame // finished output
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

// run writes length samples to path.
func (s *stretcher) run(ctx context.Context, from, tempo float64, length int64, path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o640)
	if err != nil {
		return fmt.Errorf("stretch: %w", err)
	}
	defer f.Close()
	w := bufio.NewWriterSize(f, 1<<16)
	// The start of a sound is best continued by the sound itself, so windows
	// around it are moved as far as allowed, all in one direction. Half of that
	// is taken off everywhere: what starts then errs as far to one side as what
	// lasts does to the other.
	bias := max(-searchRadius, min(searchRadius, stretchHop*(1-tempo))) / 2
	var out [stretchHop * frameBytes]byte
	// Window k covers output samples [(k-1)*hop, (k+1)*hop): with it the samples
	// before k*hop are complete.
	for k := int64(0); (k-1)*stretchHop < length; k++ {
		if ctx.Err() != nil {
			return fmt.Errorf("stretch: %w", context.Cause(ctx))
		}
		middle := from + float64(k*stretchHop)*tempo - bias
		if err := s.place(int64(math.Round(middle)) - stretchHop); err != nil {
			return fmt.Errorf("stretch: %w", err)
		}
		if k == 0 {
			continue // all of its finished half lies before the start
		}
		n := min(stretchHop, length-(k-1)*stretchHop)
		if n <= 0 {
			break
		}
		for i := range n {
			putFrame(out[i*frameBytes:], s.ready[i])
		}
		if _, err := w.Write(out[:n*frameBytes]); err != nil {
			return fmt.Errorf("stretch: %w", noSpace(err))
		}
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("stretch: %w", noSpace(err))
	}
	return noSpace(f.Close())
}

// place adds the window that would begin at source sample begin, moved to where
// it fits, and leaves the samples it completes in ready.
func (s *stretcher) place(begin int64) error {
	if err := s.in.read(s.span, begin-searchRadius); err != nil {
		return err
	}
	for i, f := range s.span {
		s.mono[i] = f[0] + f[1]
	}
	shift := searchRadius
	if s.haveTail {
		shift = s.search()
	}
	for i := range stretchHop {
		w, f := s.window[i], s.span[shift+i]
		s.ready[i] = frame{s.overlap[i][0] + w*f[0], s.overlap[i][1] + w*f[1]}
	}
	for i := range stretchHop {
		w, f := s.window[stretchHop+i], s.span[shift+stretchHop+i]
		s.overlap[i] = frame{w * f[0], w * f[1]}
	}
	return s.remember(begin - searchRadius + int64(shift) + stretchHop)
}

// remember keeps the source's own continuation of the window just placed, which
// the next one should resemble.
func (s *stretcher) remember(at int64) error {
	var next [stretchWindow]frame
	if err := s.in.read(next[:], at); err != nil {
		return err
	}
	for i, f := range next {
		s.tail[i] = f[0] + f[1]
	}
	thin(s.tailLow[:], s.tail[:])
	s.haveTail = true
	return nil
}

// thin averages runs of coarse samples.
func thin(dst, src []float64) {
	for i := range dst {
		var sum float64
		for _, x := range src[i*coarse : (i+1)*coarse] {
			sum += x
		}
		dst[i] = sum
	}
}

// search returns where in span the window fits best: by correlation with tail,
// first on the thinned signal over the whole range, then sample by sample around
// the best place.
func (s *stretcher) search() int {
	thin(s.low, s.mono)
	best, at := bestMatch(s.low, s.tailLow[:], 0, 2*searchRadius/coarse, searchRadius/coarse)
	if best <= 0 {
		return searchRadius // silence, or nothing alike: stay on the map
	}
	from, to := max(0, (at-1)*coarse), min(2*searchRadius, (at+1)*coarse)
	if _, at = bestMatch(s.mono, s.tail[:], from, to, at*coarse); at >= 0 {
		return at
	}
	return searchRadius
}

// bestMatch slides pattern over signal and returns the normalised correlation
// and the place of the best match among [from, to]. Between equals the one
// nearest to home wins, so that steady sound stays on the map.
func bestMatch(signal, pattern []float64, from, to, home int) (best float64, at int) {
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
		// A hair of preference for home: a hundredth at the far end.
		score := dot / math.Sqrt(energy) * (1 - 0.01*math.Abs(float64(i-home))/searchRadius)
		if at < 0 || score > best {
			best, at = score, i
		}
	}
	return best, at
}
