package engine

import (
	"fmt"
	"sync"

	"cutroom/internal/base/fault"
	"cutroom/internal/film/audio"
	"cutroom/internal/film/media"
	"cutroom/internal/storage/disk"
)

// scratch reserves disk space for the renders of this process. Checking only the free space would admit two renders
// although only one of them fits.
type scratch struct {
	free func(dir string) (int64, error) // disk.Free

	mu      sync.Mutex
	renders map[string]int64 // total bytes that a render writes, by its working folder
}

func newScratch(free func(dir string) (int64, error)) *scratch {
	return &scratch{free: free, renders: map[string]int64{}}
}

// reserve checks that dir, the working folder of a render, can grow to that many bytes and leave leaveFree bytes while
// other renders use their reservations. A render may reserve again; bytes that it has already written are not counted
// twice.
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

// written returns the size of the files in a working folder.
func written(dir string) int64 {
	sizeBytes, _ := disk.Usage(dir)
	return sizeBytes
}

// reserveSpace makes sure that the rest of the render fits on the disk.
func (r *run) reserveSpace() error {
	return r.scratch.reserve(r.work, r.plan.scratchBytes(), r.cfg.Limits.MinFreeBytes)
}

// watch bounds what the passes of the render write. A film may take more than expected while the disk has room for it,
// but never more than its raw pictures.
func (r *run) watch(sizeBytes int64, files int) error {
	expected := r.plan.scratchBytes()
	switch {
	case sizeBytes > r.plan.maxScratchBytes() || files > r.plan.maxFiles():
		return fault.Failedf(fault.SourceTooLarge, "the render takes more disk space than a film of its size may").WithCause(
			fmt.Errorf("%w: %d bytes in %d files, %d bytes were expected", media.ErrTooMuchOutput, sizeBytes, files, expected))
	case sizeBytes > expected:
		return r.scratch.reserve(r.work, sizeBytes+sizeBytes/8, r.cfg.Limits.MinFreeBytes)
	}
	return nil
}

// diskFull reports whether the disk has no more than the reserve left.
func (r *run) diskFull() bool {
	free, err := disk.Free(r.work)
	return err == nil && free < r.cfg.Limits.MinFreeBytes
}

// scratchBytes returns how much the render is expected to write into its working folder. An eighth of a bit per pixel
// is well above CRF 20 on busy pictures.
func (p *Plan) scratchBytes() int64 { return p.spaceFor(1. / 8) }

// maxScratchBytes is the most that the render may write: as much as raw pictures take, and a margin for lists and logs.
func (p *Plan) maxScratchBytes() int64 { return p.spaceFor(12) + 64<<20 }

// maxFiles is the most files that the working folder may hold. A part has a log for each shot, a sound one log.
func (p *Plan) maxFiles() int { return 100 + 8*(len(p.Parts)+len(p.Audio)+len(p.Stretches)) }

// spaceFor returns how much the render writes if its pictures take that many bits per pixel.
func (p *Plan) spaceFor(bitsPerPixel float64) int64 {
	var need int64
	for _, s := range p.Audio {
		need += (s.To - s.From) * audio.FrameBytes
	}
	for _, s := range p.Stretches {
		need += s.Length * audio.FrameBytes
	}
	// The film is written three times: as parts, as output, and as a copy with the index moved to the front.
	film := int64(float64(p.Canvas.Width*p.Canvas.Height) * float64(p.Frames) * bitsPerPixel / 8)
	film += int64(p.Samples / sampleRate * 24000)
	return need + 3*film
}
