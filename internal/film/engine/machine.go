package engine

import (
	"cmp"
	"fmt"

	"cutroom/internal/base/fault"
)

// Machine describes the resources that a render may use.
type Machine struct {
	Cores       int
	MemoryBytes int64 // for all encoders together; one always runs, however much it needs
	// ProcessBytes is the private memory that one process may use; 0 means no limit.
	ProcessBytes int64
}

// memoryPerCore is how much memory encoders may use per core: enough for a single-threaded one of 1080p with moves.
const memoryPerCore = 390 << 20

// encoders returns how many encoders run at once, and how many threads each has.
//
// A single encoder leaves cores idle while it starts and drains, encoders with few threads waste less, and every
// encoder keeps dozens of pictures in memory. x264's output depends on the number of threads, and a render that
// continues after a crash must give the same frames, so the numbers depend only on the plan and the machine, never on
// the load.
func (m Machine) encoders(memoryEach int64) (parallel, threads int) {
	if m.Cores == 1 {
		return 1, 1
	}
	threads = max(2, min(6, m.Cores/2))
	busy := (m.Cores*3 + 1) / 2 // encoders sometimes wait for their decoders
	parallel = max(2, (busy+threads-1)/threads)
	parallel = max(1, min(parallel, int(m.MemoryBytes/memoryEach)))
	return parallel, min(16, max(threads, (busy+parallel-1)/parallel))
}

// encoderSettings lowers the settings of an encoder's preset if that would need more memory than a process may use.
// Most of the memory holds the lookahead's pictures, and every thread works on its own pictures.
type encoderSettings struct {
	lookahead, references, threads int // 0 is the preset's, or the plan's
}

// leanerSettings are tried in this order.
var leanerSettings = []encoderSettings{
	{},
	{lookahead: 20},
	{lookahead: 10, references: 2, threads: 1},
	{lookahead: 5, references: 1, threads: 1},
}

// args are the encoder's options.
func (e encoderSettings) args() []string {
	var args []string
	if e.lookahead > 0 {
		args = append(args, "-rc-lookahead", fmt.Sprint(e.lookahead))
	}
	if e.references > 0 {
		args = append(args, "-refs", fmt.Sprint(e.references))
	}
	return args
}

// fitMemory sets the first settings with which the part's encoder fits into one process. It leaves an eighth unused,
// because the limit counts reserved memory as well. A dissolve decodes two sources: a shorter lookahead pays for the
// second one.
func (v *videoPart) fitMemory(machine Machine) error {
	for i, settings := range leanerSettings {
		if i == 0 && len(v.shots) > 1 {
			continue
		}
		v.settings = settings
		if machine.ProcessBytes <= 0 || v.memory(2) <= machine.ProcessBytes/8*7 {
			return nil
		}
	}
	return v.tooLarge()
}

// tooLarge returns the fault for a part that fits no encoder.
func (v *videoPart) tooLarge() *fault.Error {
	w, h, segment := v.canvas.Width, v.canvas.Height, v.shots[0].segment
	for _, s := range v.shots {
		if video := s.source.info.Video; video.Width*video.Height > w*h {
			w, h, segment = video.Width, video.Height, s.segment
		}
	}
	return fault.Failedf(fault.SourceTooLarge,
		"segments[%d]: the video has pictures of %dx%d, which need more memory than an encoder may use", segment, w, h)
}

// memory estimates the memory of the part's encoder. The settings' threads take precedence. Measured from 720p to
// 7680x4320.
func (v *videoPart) memory(threads int) int64 {
	lookahead, perPixel := int64(30), int64(60) // about a dozen pictures being encoded
	if v.profile.Preset == "slow" {
		lookahead, perPixel = 50, 80 // and more references
	}
	if cmp.Or(v.settings.threads, threads) == 1 {
		perPixel -= 25
	}
	if v.settings.lookahead > 0 {
		lookahead = int64(v.settings.lookahead)
	}
	perPixel += 3 * lookahead
	total := 60<<20 + perPixel*v.canvas.pixels()
	for _, s := range v.shots {
		total += s.memory()
	}
	return total
}

// memory estimates the memory for decoding and fitting the shot.
func (s *shot) memory() int64 {
	const picture = 20 // bytes per pixel, for a few pictures
	video := s.source.info.Video
	source := video.pixels() * picture
	if video.BitDepth > 8 {
		source *= 2
	}
	if video.HDR() {
		source += s.canvas.pixels() * 36 // a few pictures in float
	}
	if s.framing.blur {
		source += s.canvas.pixels() * 3 / 2 // the bars and the picture between them
	}
	if s.backwards {
		source += s.canvas.pixels() * 3 / 2 * s.frames
	}
	if blends(s.mixes) {
		source += s.canvas.pixels() * 12 // a few pictures and masks
	}
	if s.moves != nil {
		source += s.canvas.pixels() * 20 // a table of two numbers for each sample, and a few pictures
	}
	return source
}
