package benchtest

import (
	"time"

	"github.com/prometheus/procfs"
)

// stat returns the kernel's figures for a process, or zeros if it has ended.
func stat(pid int) procfs.ProcStat {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return procfs.ProcStat{}
	}
	s, _ := p.Stat() // it may have ended
	return s
}

// Parent returns the parent of a process, or 0 if the process has ended.
func Parent(pid int) int { return stat(pid).PPID }

// Family returns a process and all its living descendants.
func Family(pid int) []int {
	children := map[int][]int{}
	living, _ := procfs.AllProcs() // fails on systems without /proc
	for _, p := range living {
		parent := Parent(p.PID)
		children[parent] = append(children[parent], p.PID)
	}
	all := []int{pid}
	for i := 0; i < len(all); i++ {
		all = append(all, children[all[i]]...)
	}
	return all
}

// Running counts the processes with the name among pid and its descendants.
func Running(pid int, name string) (n int) {
	for _, member := range Family(pid) {
		if stat(member).Comm == name {
			n++
		}
	}
	return n
}

// FamilyCPU returns the CPU time of a process and its living descendants, in nanoseconds if the kernel counts them.
func FamilyCPU(pid int) (sum time.Duration) {
	for _, member := range Family(pid) {
		p, err := procfs.NewProc(member)
		if err != nil {
			continue // it ended
		}
		if s, err := p.Schedstat(); err == nil {
			sum += time.Duration(s.RunningNanoseconds)
		}
	}
	return sum
}

// TreeCPU returns the CPU time of a process and of all its descendants that have ended.
func TreeCPU(pid int) time.Duration {
	s := stat(pid)
	ticks := int(s.UTime+s.STime) + s.CUTime + s.CSTime
	return time.Duration(ticks) * 10 * time.Millisecond // Linux counts hundredths of a second on every machine
}

// Resident returns the resident memory of a process in bytes, or 0 if it has ended.
func Resident(pid int) int64 { return int64(stat(pid).ResidentMemory()) }
