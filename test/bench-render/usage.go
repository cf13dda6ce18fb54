package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"cutroom/internal/testkit/benchtest"
)

// usage is what a piece of work took.
type usage struct {
	wall, cpu time.Duration
	memory    int64 // bytes: highest sum of resident memory of this process and all below it
}

// better keeps the best of each figure, but the worst of memory.
func (u usage) better(v usage) usage {
	if u.wall == 0 {
		return v
	}
	return usage{min(u.wall, v.wall), min(u.cpu, v.cpu), max(u.memory, v.memory)}
}

// measured runs f and watches the memory of this process and its children. The CPU time of the watching does not count:
// it grows with the number of processes on the machine.
func measured(f func() error) (usage, error) {
	runtime.GC()
	stop, watched := make(chan struct{}), make(chan usage)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine; its CPU time is that of the watching
		var highest int64
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			highest = max(highest, familyMemory())
			select {
			case <-stop:
				watched <- usage{cpu: processorTime(syscall.RUSAGE_THREAD), memory: highest}
				return
			case <-tick.C:
			}
		}
	}()
	cpu, begin := processorTime(syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN), time.Now()
	err := f()
	wall := time.Since(begin)
	close(stop)
	watching := <-watched
	cpu = processorTime(syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN) - cpu - watching.cpu
	return usage{wall, cpu, watching.memory}, err
}

// processorTime is the CPU time that this process, its finished children or this thread have used.
func processorTime(of ...int) (sum time.Duration) {
	for _, who := range of {
		var r syscall.Rusage
		if err := syscall.Getrusage(who, &r); err == nil {
			sum += time.Duration(r.Utime.Nano() + r.Stime.Nano())
		}
	}
	return sum
}

// familyMemory adds up the resident memory of this process and everything it started, directly or not.
func familyMemory() (sum int64) {
	for _, pid := range benchtest.Family(os.Getpid()) {
		sum += benchtest.Resident(pid)
	}
	return sum
}

// report is the section of the page that is being written.
type report struct{ *benchtest.Section }

func newReport(runs int) *report {
	r := &report{benchtest.New("bench-render", "A render beside one ffmpeg command")}
	r.Say(`%s. The single graph is one ffmpeg command that decodes, fits, joins and mixes everything in one filter graph and
encodes it once with the same settings: the practical lower bound of a render from nothing. Wall and CPU are the
best of runs taken in turn, of which there were %d; memory is the highest sum over all processes.

Every field of the sound costs more than a plain mix: loudness mixes the film twice, measures it twice and decodes the result
once, because AAC changes levels (about half of the difference). Ducking first mixes and measures the voices, and curves have a
gain for each sample.`, ffmpegVersion(), runs)
	r.Table("measurement", "wall s", "of the single graph", "CPU s", "of the single graph", "memory MB")
	return r
}

// add appends a row; ratios are given where there is something to compare with.
func (r *report) add(name string, u, against usage) {
	wall, cpu := "", ""
	if against.wall > 0 {
		wall = fmt.Sprintf("%.3f", u.wall.Seconds()/against.wall.Seconds())
		cpu = fmt.Sprintf("%.3f", u.cpu.Seconds()/against.cpu.Seconds())
	}
	r.Row("%s | %.2f | %s | %.2f | %s | %d", name, u.wall.Seconds(), wall, u.cpu.Seconds(), cpu, u.memory>>20)
}

func ffmpegVersion() string {
	out, err := exec.Command("ffmpeg", "-version").Output()
	words := strings.Fields(string(out))
	if err != nil || len(words) < 3 {
		return "unknown ffmpeg"
	}
	return strings.Join(words[:3], " ")
}
