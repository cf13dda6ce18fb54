package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// usage is what a piece of work took.
type usage struct {
	wall, cpu time.Duration
	memory    int64 // bytes: highest sum of resident memory of this process and all below it
}

// better keeps the best of each figure, and the worst of memory.
func (u usage) better(v usage) usage {
	if u.wall == 0 {
		return v
	}
	return usage{min(u.wall, v.wall), min(u.cpu, v.cpu), max(u.memory, v.memory)}
}

// measured runs f and watches this process and its children.
func measured(f func() error) (usage, error) {
	runtime.GC()
	stop, peak := make(chan struct{}), make(chan int64)
	go func() {
		var highest int64
		tick := time.NewTicker(40 * time.Millisecond)
		defer tick.Stop()
		for {
			highest = max(highest, familyMemory())
			select {
			case <-stop:
				peak <- highest
				return
			case <-tick.C:
			}
		}
	}()
	cpu, begin := processorTime(), time.Now()
	err := f()
	u := usage{wall: time.Since(begin), cpu: processorTime() - cpu}
	close(stop)
	u.memory = <-peak
	return u, err
}

// processorTime is what this process and its finished children have used.
func processorTime() time.Duration {
	var sum time.Duration
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var r syscall.Rusage
		if err := syscall.Getrusage(who, &r); err == nil {
			sum += time.Duration(r.Utime.Nano() + r.Stime.Nano())
		}
	}
	return sum
}

// familyMemory adds up the proportional memory of this process and everything
// it started, directly or not.
func familyMemory() int64 {
	children := map[int][]int{}
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0
	}
	for _, path := range stats {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // it ended
		}
		text := string(data)
		pid, err := strconv.Atoi(text[:strings.IndexByte(text, ' ')])
		fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
		if err != nil || len(fields) < 2 {
			continue
		}
		if parent, err := strconv.Atoi(fields[1]); err == nil {
			children[parent] = append(children[parent], pid)
		}
	}
	var sum int64
	for queue := []int{os.Getpid()}; len(queue) > 0; queue = queue[1:] {
		sum += residentMemory(queue[0])
		queue = append(queue, children[queue[0]]...)
	}
	return sum
}

func residentMemory(pid int) int64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			if err != nil {
				return 0
			}
			return kb << 10
		}
	}
	return 0
}

// report is the table.
type report struct {
	title string
	rows  []string
}

// add appends a row; ratios are given where there is something to compare with.
func (r *report) add(format string, u, against usage, args ...any) {
	wall, cpu := "", ""
	if against.wall > 0 {
		wall = fmt.Sprintf("%.3f", u.wall.Seconds()/against.wall.Seconds())
		cpu = fmt.Sprintf("%.3f", u.cpu.Seconds()/against.cpu.Seconds())
	}
	row := fmt.Sprintf("| %s | %.2f | %s | %.2f | %s | %d |", fmt.Sprintf(format, args...), u.wall.Seconds(), wall, u.cpu.Seconds(), cpu, u.memory>>20)
	fmt.Fprintln(os.Stderr, row)
	r.rows = append(r.rows, row)
}

// String is the page.
func (r *report) String() string {
	return "# Benchmarks\n\nMade by `make bench-render`. " + r.title + `

The single graph is one ffmpeg command that decodes, fits, joins and mixes
everything in one filter graph and encodes it once with the same settings: the
practical lower bound of a render from nothing. Wall and CPU are the best of
several runs taken in turn; memory is the highest sum over all processes.

| measurement | wall s | of the single graph | CPU s | of the single graph | memory MB |
|---|---|---|---|---|---|
` + strings.Join(r.rows, "\n") + "\n"
}

// machine describes where the figures come from.
func machine() string {
	model := "unknown processor"
	if data, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(data)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	version := "unknown ffmpeg"
	if out, err := exec.Command("ffmpeg", "-version").Output(); err == nil {
		first, _, _ := strings.Cut(string(out), "\n")
		version = strings.Join(strings.Fields(first)[:min(3, len(strings.Fields(first)))], " ")
	}
	load := ""
	if data, err := os.ReadFile("/proc/loadavg"); err == nil {
		load = ", load before the start " + strings.Fields(string(data))[0]
	}
	return fmt.Sprintf("%s, %d cores, %s, %s%s.", model, runtime.NumCPU(), version, runtime.Version(), load)
}
