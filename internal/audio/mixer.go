package audio

import (
	"cmp"
	"fmt"
	"io"
	"path/filepath"
	"slices"
)

// mixBlock is how many frames are mixed at a time. Memory does not grow with
// the number of regions or their length.
const mixBlock = 4096

// Region is a stretch of a file on the output's time line. All positions and
// lengths count samples.
type Region struct {
	Name string // for messages
	File string // in the mixer's folder
	// Offset is the sample of the file that plays at Start. Before the file's
	// first sample and behind its last one there is silence.
	Offset int64

	Start, End int64 // in the output, half-open
	Volume     float64

	// FadeIn and FadeOut ramp the region linearly over this many samples inside
	// [Start, End).
	FadeIn, FadeOut int64
	// Mutes are the spans of the output in which the region is silent, ordered,
	// not overlapping.
	Mutes []Mute
}

// Mute is a half-open range of output samples with ramps inside it: the muted
// region falls from full to silent over FadeIn samples from Start on, and rises
// again over the FadeOut samples before End.
type Mute struct{ Start, End, FadeIn, FadeOut int64 }

// Mixer is the sum of all regions, limited, as a stream of float32 frames: an
// io.Reader. Not safe for concurrent use.
type Mixer struct {
	// OnProgress is told how many frames have been mixed. It may be nil.
	OnProgress func(frames int64)

	dir     string
	files   map[string]*pcmFile
	regions []*Region // by Start; those before next have begun
	next    int
	playing []*Region
	total   int64

	at      int64 // frames mixed
	written int64 // frames returned
	limiter *limiter
	sum     []frame
	block   []frame
	bytes   []byte
	unread  []byte
	err     error
}

// NewMixer mixes regions of files in dir into total samples. A peak above
// threshold, 1 being full scale, ends up at ceiling.
func NewMixer(dir string, regions []*Region, total int64, threshold, ceiling float64) *Mixer {
	sorted := slices.Clone(regions)
	slices.SortStableFunc(sorted, func(a, b *Region) int { return cmp.Compare(a.Start, b.Start) })
	return &Mixer{
		dir: dir, files: map[string]*pcmFile{}, regions: sorted, total: total, limiter: newLimiter(threshold, ceiling),
		sum: make([]frame, mixBlock), block: make([]frame, mixBlock), bytes: make([]byte, mixBlock*FrameBytes),
	}
}

// Peak is the highest sample of the mix so far, before limiting.
func (m *Mixer) Peak() float64 { return m.limiter.peak }

// Limited reports whether the limiter has acted.
func (m *Mixer) Limited() bool { return m.limiter.acted }

// Err is what ended reading early, nil at the regular end.
func (m *Mixer) Err() error { return m.err }

// Close closes the files.
func (m *Mixer) Close() {
	for _, f := range m.files {
		f.close()
	}
}

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

// fill mixes a block and passes it through the limiter. The limiter is a few
// milliseconds behind: at the end it is fed silence until all has come out.
func (m *Mixer) fill() error {
	if err := m.mix(m.sum); err != nil {
		return err
	}
	n := 0
	for i, f := range m.sum {
		out := m.limiter.push(f)
		if m.at+int64(i) < lookAhead || m.written == m.total {
			continue
		}
		putFrame(m.bytes[n*FrameBytes:], out)
		n++
		m.written++
	}
	m.at += int64(len(m.sum))
	m.unread = m.bytes[:n*FrameBytes]
	return nil
}

// mix adds up what plays in the block at m.at.
func (m *Mixer) mix(sum []frame) error {
	clear(sum)
	end := m.at + int64(len(sum))
	for m.next < len(m.regions) && m.regions[m.next].Start < end {
		m.playing = append(m.playing, m.regions[m.next])
		m.next++
	}
	for _, p := range m.playing {
		if err := m.add(p, sum); err != nil {
			return fmt.Errorf("mix %s: %w", p.Name, err)
		}
	}
	m.playing = slices.DeleteFunc(m.playing, func(p *Region) bool { return p.End <= end })
	return nil
}

// add adds the region's share of the block.
func (m *Mixer) add(p *Region, sum []frame) error {
	from, to := max(p.Start, m.at), min(p.End, m.at+int64(len(sum)))
	if from >= to || p.Volume == 0 {
		return nil
	}
	in, err := m.open(p.File)
	if err != nil {
		return err
	}
	block := m.block[:to-from]
	if err := in.read(block, p.Offset+from-p.Start); err != nil {
		return err
	}
	dst := sum[from-m.at : to-m.at]
	if p.steady(from, to) {
		for i, f := range block {
			dst[i][0] += f[0] * p.Volume
			dst[i][1] += f[1] * p.Volume
		}
		return nil
	}
	for i, f := range block {
		g := p.Volume * p.gain(from+int64(i))
		dst[i][0] += f[0] * g
		dst[i][1] += f[1] * g
	}
	return nil
}

// open returns a file, opened once.
func (m *Mixer) open(name string) (*pcmFile, error) {
	if f := m.files[name]; f != nil {
		return f, nil
	}
	f, err := openPCM(filepath.Join(m.dir, name), 0)
	if err == nil {
		m.files[name] = f
	}
	return f, err
}

// steady reports whether no ramp and no mute touches [from, to).
func (p *Region) steady(from, to int64) bool {
	if from < p.Start+p.FadeIn || to > p.End-p.FadeOut {
		return false
	}
	for _, s := range p.Mutes {
		if s.Start < to && s.End > from {
			return false
		}
	}
	return true
}

// gain is the region's envelope at output sample n, without its volume.
func (p *Region) gain(n int64) float64 {
	g := ramp(n-p.Start, p.FadeIn) * ramp(p.End-1-n, p.FadeOut)
	for _, s := range p.Mutes {
		if n >= s.Start && n < s.End {
			g *= 1 - ramp(n-s.Start, s.FadeIn)*ramp(s.End-1-n, s.FadeOut)
		}
	}
	return g
}

// ramp rises from 0 to 1 over length samples; n counts from its start.
func ramp(n, length int64) float64 {
	if n >= length {
		return 1
	}
	return (float64(n) + 0.5) / float64(length)
}
