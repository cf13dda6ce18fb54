package engine

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
)

// mixBlock is how many frames are mixed at a time. Memory does not grow with
// the number of pieces or their length.
const mixBlock = 4096

// mixer is the sum of all pieces, limited, as a stream of float32 frames. It is
// an io.Reader for the final pass. Not safe for concurrent use.
type mixer struct {
	pieces  []*Region // by Start; those before next have begun
	next    int
	playing []*Region
	open    func(*Region) (*pcmFile, error)
	total   int64

	at      int64 // frames mixed
	written int64 // frames returned
	limiter *limiter
	sum     []frame
	block   []frame
	bytes   []byte
	unread  []byte

	onFrames func(done int64) // may be nil
	err      error
}

func newMixer(pieces []*Region, total int64, open func(*Region) (*pcmFile, error), l *limiter) *mixer {
	sorted := slices.Clone(pieces)
	slices.SortStableFunc(sorted, func(a, b *Region) int { return cmp.Compare(a.Start, b.Start) })
	return &mixer{
		pieces: sorted, open: open, total: total, limiter: l,
		sum: make([]frame, mixBlock), block: make([]frame, mixBlock), bytes: make([]byte, mixBlock*frameBytes),
	}
}

// Read returns the next bytes of the mix, and io.EOF after exactly total frames.
func (m *mixer) Read(p []byte) (int, error) {
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
		if m.onFrames != nil {
			m.onFrames(m.written)
		}
	}
	n := copy(p, m.unread)
	m.unread = m.unread[n:]
	return n, nil
}

// fill mixes a block and passes it through the limiter. The limiter is a few
// milliseconds behind: at the end it is fed silence until all has come out.
func (m *mixer) fill() error {
	if err := m.mix(m.sum); err != nil {
		return err
	}
	n := 0
	for i, f := range m.sum {
		out := m.limiter.push(f)
		if m.at+int64(i) < lookAhead || m.written == m.total {
			continue
		}
		putFrame(m.bytes[n*frameBytes:], out)
		n++
		m.written++
	}
	m.at += int64(len(m.sum))
	m.unread = m.bytes[:n*frameBytes]
	return nil
}

// mix adds up what plays in the block at m.at.
func (m *mixer) mix(sum []frame) error {
	clear(sum)
	end := m.at + int64(len(sum))
	for m.next < len(m.pieces) && m.pieces[m.next].Start < end {
		m.playing = append(m.playing, m.pieces[m.next])
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

// add adds the piece's share of the block.
func (m *mixer) add(p *Region, sum []frame) error {
	from, to := max(p.Start, m.at), min(p.End, m.at+int64(len(sum)))
	if from >= to || p.Volume == 0 {
		return nil
	}
	in, err := m.open(p)
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

// gain is the piece's envelope at output sample n, without its volume.
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

// soundFiles opens the files behind the pieces, each once.
type soundFiles struct {
	path func(file string) string
	open map[string]*pcmFile
}

func newSoundFiles(path func(file string) string) *soundFiles {
	return &soundFiles{path: path, open: map[string]*pcmFile{}}
}

// of returns the file a piece reads.
func (s *soundFiles) of(p *Region) (*pcmFile, error) {
	name, first := "", int64(0)
	switch {
	case p.Sound != nil:
		name, first = p.Sound.File, p.Sound.From
	case p.Stretch != nil:
		name = p.Stretch.File
	default:
		return nil, errors.New("a piece without a sound")
	}
	if f := s.open[name]; f != nil {
		return f, nil
	}
	f, err := openPCM(s.path(name), first)
	if err != nil {
		return nil, err
	}
	s.open[name] = f
	return f, nil
}

func (s *soundFiles) close() {
	for _, f := range s.open {
		f.close()
	}
}
