package stems

import (
	"context"
	"errors"
	"math"
	"slices"
)

// speakersByTime divides the voice among n speakers (SpeakersFound: as many as
// it hears) by who speaks when, and writes their tracks.
func speakersByTime(ctx context.Context, voice *pcm, dir string, n int) ([]string, error) {
	if n == 0 {
		return nil, nil
	}
	track, err := listen(ctx, voice)
	if err != nil {
		return nil, err
	}
	turns := track.turns()
	labels := cluster(turns, n)
	if n == SpeakersFound {
		n = 1
		for _, label := range labels {
			n = max(n, label+1)
		}
	}
	paths := speakerPaths(dir, n)
	return paths, writeTurns(ctx, voice, paths, plan(turns, labels, voice.frames))
}

// What a speaker is told apart by is measured at listenRate, every listenHop.
const (
	listenRate   = 8000
	listenHop    = listenRate / 100 // 10 ms
	listenWindow = 512              // 64 ms
	decimation   = SampleRate / listenRate
	envelopeSize = 14 // bands of the spectral envelope
)

// track is the voice as heard every 10 ms.
type track struct {
	level    []float64 // dB
	pitch    []float64 // log2 of Hz, NaN where there is none
	envelope [][]float64
}

// listen measures the whole voice, block by block.
func listen(ctx context.Context, voice *pcm) (*track, error) {
	t := &track{}
	transform, shape := newFFT(listenWindow), hann(listenWindow)
	total := voice.frames/(decimation*listenHop) + 1
	const block = 3000
	for first := int64(0); first < total; first += block {
		count := min(block, total-first)
		samples, err := voice.read((first*listenHop-listenWindow/2)*decimation, (count*listenHop+listenWindow)*decimation)
		if err != nil {
			return nil, err
		}
		mono := decimate(samples)
		for f := range count {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			t.hear(mono[f*listenHop:][:listenWindow], transform, shape)
		}
	}
	return t, nil
}

// decimate mixes to mono and averages down; the mean is filter enough for
// telling voices apart.
func decimate(samples []int16) []float64 {
	out := make([]float64, len(samples)/Channels/decimation)
	for i := range out {
		var sum float64
		for _, v := range samples[i*decimation*Channels : (i+1)*decimation*Channels] {
			sum += float64(v)
		}
		out[i] = sum / (decimation * Channels)
	}
	return out
}

func (t *track) hear(frame []float64, transform *fft, shape []float64) {
	spectrum := make([]complex128, listenWindow)
	var power float64
	for i, v := range frame {
		power += v * v
		spectrum[i] = complex(v*shape[i], 0)
	}
	t.level = append(t.level, 10*math.Log10(power/listenWindow+1e-3))
	t.pitch = append(t.pitch, pitchOf(frame, power))
	transform.forward(spectrum)
	envelope := make([]float64, envelopeSize)
	const low, high = 150.0, 3800.0
	ratio := math.Log(high/low) / envelopeSize
	for b := range envelope {
		from := int(low * math.Exp(ratio*float64(b)) * listenWindow / listenRate)
		to := max(int(low*math.Exp(ratio*float64(b+1))*listenWindow/listenRate), from+1)
		var sum float64
		for _, c := range spectrum[from:to] {
			sum += real(c)*real(c) + imag(c)*imag(c)
		}
		envelope[b] = 10 * math.Log10(sum/float64(to-from)+1)
	}
	t.envelope = append(t.envelope, envelope)
}

const closeToBest = 0.92

// pitchOf finds the pitch by autocorrelation between 65 and 400 Hz.
func pitchOf(frame []float64, power float64) float64 {
	const shortest, longest = listenRate / 400, listenRate / 65
	if power < listenWindow*100 { // quieter than -70 dB of full scale
		return math.NaN()
	}
	scores := make([]float64, longest+2)
	best := 0.0
	for lag := shortest - 1; lag <= longest+1; lag++ {
		var cross, a, b float64
		for i, v := range frame[:listenWindow-lag] {
			w := frame[i+lag]
			cross += v * w
			a += v * v
			b += w * w
		}
		scores[lag] = cross / math.Sqrt(a*b+1)
		best = max(best, scores[lag])
	}
	// Multiples of the period score about as well: the shortest lag that comes
	// close to the best is the period.
	bestLag := 0
	for lag := shortest; lag <= longest && bestLag == 0; lag++ {
		if s := scores[lag]; s > scores[lag-1] && s >= scores[lag+1] && s > best*closeToBest {
			bestLag = lag
		}
	}
	if best < 0.6 || bestLag == 0 {
		return math.NaN()
	}
	return math.Log2(listenRate / float64(bestLag))
}

// turn is a stretch of speech without a pause, in steps of 10 ms.
type turn struct {
	from, to int
	voiced   int       // steps with a pitch
	features []float64 // what voices are told apart by
}

// turns finds the stretches between pauses and describes the voice in each.
func (t *track) turns() []turn {
	threshold := t.speechLevel()
	const joinGap, shortest = 12, 15
	var list []turn
	for f := 0; f < len(t.level); f++ {
		if t.level[f] < threshold {
			continue
		}
		if last := len(list) - 1; last >= 0 && f-list[last].to <= joinGap {
			list[last].to = f + 1
		} else {
			list = append(list, turn{from: f, to: f + 1})
		}
	}
	kept := list[:0]
	for _, s := range list {
		if s.to-s.from >= shortest {
			kept = append(kept, t.describe(s, threshold))
		}
	}
	return kept
}

// speechLevel separates speech from pauses: 30 dB below the loud parts.
func (t *track) speechLevel() float64 {
	if len(t.level) == 0 {
		return math.Inf(1)
	}
	sorted := slices.Clone(t.level)
	slices.Sort(sorted)
	return max(sorted[len(sorted)*95/100]-30, 12)
}

func (t *track) describe(s turn, threshold float64) turn {
	var pitches []float64
	mean := make([]float64, envelopeSize)
	var loud float64
	for f := s.from; f < s.to; f++ {
		if !math.IsNaN(t.pitch[f]) {
			pitches = append(pitches, t.pitch[f])
		}
		if t.level[f] >= threshold {
			loud++
			for b, v := range t.envelope[f] {
				mean[b] += v
			}
		}
	}
	s.voiced = len(pitches)
	pitch := math.NaN()
	if s.voiced >= 5 {
		slices.Sort(pitches)
		pitch = pitches[len(pitches)/2]
	}
	// The envelope counts relative to its own mean, so that speaking up does
	// not make another person.
	var level float64
	for b := range mean {
		mean[b] /= max(loud, 1)
		level += mean[b] / envelopeSize
	}
	s.features = []float64{pitch * pitchWeight}
	for _, v := range mean {
		s.features = append(s.features, (v-level)*envelopeWeight)
	}
	return s
}

// Distances are in units in which 2 is about the spread within one voice (half
// an octave of median pitch between lively sentences counts 2.5) and two people
// of unlike voices are 5 apart.
const (
	pitchWeight    = 5.0
	envelopeWeight = 1.0 / 16
)

// plan says who owns each sample: boundaries in sample frames, ascending. The
// owner of a pause is whoever spoke before it, up to its middle.
type boundary struct {
	at    int64 // the first sample frame of the next speaker
	owner int   // from here on
}

func plan(turns []turn, labels []int, frames int64) []boundary {
	const step = decimation * listenHop
	owners := []boundary{{0, 0}}
	for i := range turns {
		at := int64(0)
		if i > 0 {
			at = int64(turns[i-1].to+turns[i].from) * step / 2
		}
		last := &owners[len(owners)-1]
		switch {
		case i == 0:
			last.owner = labels[0]
		case labels[i] != last.owner && at < frames:
			owners = append(owners, boundary{at, labels[i]})
		}
	}
	return owners
}

// fadeFrames is how long a change of speaker takes: 10 ms.
const fadeFrames = SampleRate / 100

// writeTurns writes the tracks. They sum to the voice exactly: in a fade one
// speaker gets a rounded share and the other the rest.
func writeTurns(ctx context.Context, voice *pcm, paths []string, owners []boundary) (err error) {
	out := make([]*wavWriter, len(paths))
	defer func() {
		for _, w := range out {
			if w != nil {
				err = errors.Join(err, w.close())
			}
		}
	}()
	for i, path := range paths {
		if out[i], err = createWAV(path, voice.frames); err != nil {
			return err
		}
	}
	const block = SampleRate
	part := 0
	for first := int64(0); first < voice.frames; first += block {
		if err := ctx.Err(); err != nil {
			return err
		}
		samples, err := voice.read(first, min(block, voice.frames-first))
		if err != nil {
			return err
		}
		tracks := make([][]int16, len(paths))
		for i := range tracks {
			tracks[i] = make([]int16, len(samples))
		}
		for n := range len(samples) / Channels {
			pos := first + int64(n)
			for part+1 < len(owners) && pos >= owners[part+1].at {
				part++
			}
			share(samples[n*Channels:][:Channels], tracks, n*Channels, owners, part, pos)
		}
		for i, w := range out {
			if err := w.write(tracks[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// share gives one sample frame to its owner; right after a change the previous
// owner keeps a falling part of it.
func share(frame []int16, tracks [][]int16, at int, owners []boundary, current int, pos int64) {
	owner := owners[current].owner
	since := pos - owners[current].at
	for c, v := range frame {
		kept := int16(0)
		if current > 0 && since < fadeFrames {
			kept = int16(int64(v) * (fadeFrames - since) / fadeFrames)
			tracks[owners[current-1].owner][at+c] = kept
		}
		tracks[owner][at+c] += v - kept
	}
}
