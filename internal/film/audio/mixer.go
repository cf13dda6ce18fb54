// Adds up the regions of a film's sound, block by block, and passes the sum through the limiter.

package audio

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
)

// mixBlock is the number of frames mixed at a time. Memory does not grow with the number or length of regions.
const mixBlock = 4096

// Region is a stretch of a file on the output's time line. All positions and lengths count samples.
type Region struct {
	Name string // for messages
	File string // in the mixer's folder
	// Offset is the sample of the file that plays at Start. The region is silent before the file's first sample and
	// after its last one.
	Offset int64
	// Period, unless 0, makes the region repeat the file's samples [Offset, Offset+Period).
	Period int64

	Start, End int64 // in the output, half-open
	Envelope
}

// playing is a region that has begun.
type playing struct {
	*Region
	loop *loop // nil until its first sample, and if it does not repeat
}

// Mixer is an io.Reader of the sum of all regions, limited, as float32 frames. It is not safe for concurrent use.
type Mixer struct {
	// OnProgress is called with the number of frames mixed so far. It may be nil.
	OnProgress func(frames int64)
	// Gain multiplies the sum of all regions. It is 1 if there are no knots.
	Gain Curve

	dir     string
	regions []*Region // not yet begun, sorted by Start
	playing []*playing
	total   int64

	at      int64 // frames mixed
	written int64 // frames returned
	level   float64
	limiter *limiter
	sum     []frame
	block   []frame
	gains   []float64
	bytes   []byte
	unread  []byte
	err     error
}

// Level is the gain and the limits of a finished mix. Full scale is 1.
type Level struct {
	Gain               float64 // of the whole mix, before the limiter
	Threshold, Ceiling float64 // see limiter
}

// Untouched leaves a mix unchanged, even beyond full scale.
var Untouched = Level{Gain: 1, Threshold: math.Inf(1), Ceiling: 1}

// NewMixer returns a mixer of regions of files in dir. Its output has total samples.
func NewMixer(dir string, regions []*Region, total int64, level Level) *Mixer {
	sorted := slices.SortedStableFunc(slices.Values(regions), func(a, b *Region) int { return cmp.Compare(a.Start, b.Start) })
	return &Mixer{
		dir: dir, regions: sorted, total: total,
		level: level.Gain, limiter: newLimiter(level.Threshold, level.Ceiling), sum: make([]frame, mixBlock), block: make([]frame, mixBlock),
		gains: make([]float64, mixBlock), bytes: make([]byte, mixBlock*FrameBytes),
	}
}

// Peak returns the highest sample of the mix so far, after the gain and before the limiter.
func (m *Mixer) Peak() float64 { return m.limiter.peak }

// Err returns the error that stopped reading, or nil if the mix ended normally.
func (m *Mixer) Err() error { return m.err }

// Read returns the next bytes of the mix, and io.EOF after exactly total frames.
func (m *Mixer) Read(p []byte) (int, error) {
	for len(m.unread) == 0 {
		if m.err != nil {
			return 0, m.err
		}
		if m.written == m.total {
			return 0, io.EOF
		}
		if m.err = m.fill(); m.err != nil {
			return 0, m.err
		}
		if m.OnProgress != nil {
			m.OnProgress(m.written)
		}
	}
	n := copy(p, m.unread)
	m.unread = m.unread[n:]
	return n, nil
}

// fill mixes a block, and applies the gain of the whole mix and the limiter. The limiter delays its output by a few
// milliseconds: at the end, fill feeds it silence until everything has come out.
func (m *Mixer) fill() error {
	if err := m.mix(); err != nil {
		return err
	}
	for i := range m.gains {
		m.gains[i] = m.level
	}
	m.Gain.multiply(m.gains, m.at)
	for i, f := range m.sum {
		m.sum[i] = m.limiter.push(frame{f[0] * m.gains[i], f[1] * m.gains[i]})
	}
	out := m.sum[max(0, lookAhead-m.at):]
	out = out[:min(int64(len(out)), m.total-m.written)]
	for i, f := range out {
		putFrame(m.bytes[i*FrameBytes:], f)
	}
	m.at += int64(len(m.sum))
	m.written += int64(len(out))
	m.unread = m.bytes[:len(out)*FrameBytes]
	return nil
}

// mix adds up all regions in the block at m.at.
func (m *Mixer) mix() error {
	clear(m.sum)
	end := m.at + mixBlock
	for len(m.regions) > 0 && m.regions[0].Start < end {
		m.playing = append(m.playing, &playing{Region: m.regions[0]})
		m.regions = m.regions[1:]
	}
	for _, p := range m.playing {
		if err := m.add(p); err != nil {
			return fmt.Errorf("mix %s: %w", p.Name, err)
		}
	}
	m.playing = slices.DeleteFunc(m.playing, func(p *playing) bool { return p.End <= end })
	return nil
}

// add adds the region's share of the block.
func (m *Mixer) add(p *playing) error {
	from, to := max(p.Start, m.at), min(p.End, m.at+mixBlock)
	if from >= to || p.Volume == 0 {
		return nil
	}
	block := m.block[:to-from]
	if err := m.read(p, block, from); err != nil {
		return err
	}
	dst, gains := m.sum[from-m.at:], m.gains[:to-from]
	p.gains(gains, from, p.Start, p.End)
	for i, f := range block {
		dst[i][0] += f[0] * gains[i]
		dst[i][1] += f[1] * gains[i]
	}
	return nil
}

// read fills dst with what the region plays from output sample at. It opens the file for each block: that is cheap
// compared with the mixing, and a mix of hundreds of files needs no more file descriptors than a mix of two.
func (m *Mixer) read(p *playing, dst []frame, at int64) error {
	in, err := openPCM(filepath.Join(m.dir, p.File), 0)
	if err != nil {
		return err
	}
	defer in.close()
	if p.Period == 0 {
		return in.read(dst, p.Offset+at-p.Start)
	}
	if p.loop == nil {
		if p.loop, err = newLoop(in, p.Offset, p.Period); err != nil {
			return err
		}
	}
	return p.loop.read(in, dst, at-p.Start, p.End-p.Start)
}
