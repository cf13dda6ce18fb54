package engine

// Machine is what a render may use of the computer.
type Machine struct {
	Cores       int
	MemoryBytes int64 // for all encoders together
}

// memoryPerCore is how much memory encoders may take for every core: two cores
// hold two encoders of 720p, or one of 1080p.
const memoryPerCore = 300 << 20

// encoders says how many encoders run at once, and with how many threads each.
//
// One encoder leaves cores idle while it starts and while it drains, so several
// at once are faster, and small thread counts waste less; but every encoder
// keeps dozens of pictures in memory. x264's output depends on the number of
// threads, so it must follow from the plan and the machine alone and never from
// what else is going on: a render that continues after a crash has to give the
// same frames.
func (m Machine) encoders(memoryEach int64) (parallel, threads int) {
	cores := max(1, m.Cores)
	if cores == 1 {
		return 1, 1
	}
	threads = 2
	if cores > 5 {
		threads = min(6, cores/2)
	}
	busy := (cores*3 + 1) / 2 // encoders wait for their decoders now and then
	parallel = max(2, (busy+threads-1)/threads)
	if m.MemoryBytes > 0 && memoryEach > 0 {
		parallel = max(1, min(parallel, int(m.MemoryBytes/memoryEach)))
	}
	return parallel, min(16, max(threads, (busy+parallel-1)/parallel))
}

// memory estimates what the part's encoder takes: measured on 720p and 1080p.
func (v *VideoPart) memory() int64 {
	perPixel := int64(150) // 30 pictures of lookahead and a dozen in work
	if v.profile.Preset == "slow" {
		perPixel = 230 // 50 pictures of lookahead
	}
	video := v.source.info.Video
	source := int64(video.Width) * int64(video.Height) * 20
	if video.BitDepth > 8 {
		source *= 2
	}
	if video.HDR() {
		source += int64(v.canvas.Width) * int64(v.canvas.Height) * 36 // a few pictures in float
	}
	return 60<<20 + perPixel*int64(v.canvas.Width)*int64(v.canvas.Height) + source
}
