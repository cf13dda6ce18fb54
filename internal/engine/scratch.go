package engine

import (
	"fmt"
	"os"
	"sync"

	"cutroom/internal/audio"
	"cutroom/internal/disk"
)

// scratch reserves disk space for the renders of this process. Checking only the free
// space would admit two renders although only one of them fits.
type scratch struct {
	free func(dir string) (int64, error) // disk.Free

	mu      sync.Mutex
	renders map[string]int64 // total bytes that a render writes, by its working folder
}

func newScratch(free func(dir string) (int64, error)) *scratch {
	return &scratch{free: free, renders: map[string]int64{}}
}

// reserve checks that dir, the working folder of a render, can grow to that many bytes and leave leaveFree
// bytes while other renders use their reservations. A render may reserve again; bytes that it has already
// written are not counted twice.
func (s *scratch) reserve(dir string, bytes, leaveFree int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	free, err := s.free(dir)
	if err != nil {
		return err
	}
	needed := max(0, bytes-written(dir))
	for other, reserved := range s.renders {
		if other != dir {
			needed += max(0, reserved-written(other))
		}
	}
	if free-needed < leaveFree {
		return ErrNoSpace.WithCause(fmt.Errorf("%d bytes free, %d needed, %d to be left", free, needed, leaveFree))
	}
	s.renders[dir] = bytes
	return nil
}

// release ends the reservation of a render.
func (s *scratch) release(dir string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.renders, dir)
}

// written returns the size of the files in a working folder. It skips files that cannot be read, because they
// have just been removed.
func written(dir string) (bytes int64) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if st, err := e.Info(); err == nil {
			bytes += st.Size()
		}
	}
	return bytes
}

// reserveSpace makes sure that the rest of the render fits on the disk.
func (r *run) reserveSpace() error {
	return r.scratch.reserve(r.work, r.plan.scratchBytes(), r.cfg.Limits.MinFreeBytes)
}

// diskFull reports whether the disk has no more than the reserve left.
func (r *run) diskFull() bool {
	free, err := disk.Free(r.work)
	return err == nil && free < r.cfg.Limits.MinFreeBytes
}

// scratchBytes returns how much the render writes into its working folder.
func (p *Plan) scratchBytes() int64 {
	var need int64
	for _, s := range p.Audio {
		need += (s.To - s.From) * audio.FrameBytes
	}
	for _, s := range p.Stretches {
		need += s.Length * audio.FrameBytes
	}
	// An eighth of a bit per pixel is well above CRF 20 on busy pictures. The film is
	// written three times: as parts, as output, and as a copy with the index moved to the
	// front.
	film := int64(float64(p.Canvas.Width*p.Canvas.Height) * float64(p.Frames) / 64)
	film += int64(p.Samples / sampleRate * 24000)
	overlaps := int64(0)
	for _, v := range p.Parts {
		overlaps += v.overlapBytes()
	}
	return need + 3*film + min(overlaps, overlapSpace)
}
