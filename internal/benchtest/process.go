package benchtest

import (
	"time"

	"github.com/prometheus/procfs"
)

// stat is what the kernel knows of a process, nothing when it has ended.
func stat(pid int) procfs.ProcStat {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return procfs.ProcStat{}
	}
	s, _ := p.Stat() // it may have ended
	return s
}

// Parent is the process that started a process, 0 when it has ended.
func Parent(pid int) int { return stat(pid).PPID }

// Family is a process and all its living descendants.
func Family(pid int) []int {
	children := map[int][]int{}
	living, _ := procfs.AllProcs() // fails where there is no /proc
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

// Running counts the processes of a family with a name.
func Running(pid int, name string) (n int) {
	for _, member := range Family(pid) {
		if stat(member).Comm == name {
			n++
		}
	}
	return n
}

// FamilyCPU is the processor time of a living family, to the nanosecond if the kernel
// counts them.
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

// TreeCPU is the processor time of a process and of its children that have
// ended, which includes theirs.
func TreeCPU(pid int) time.Duration {
	s := stat(pid)
	ticks := int(s.UTime+s.STime) + s.CUTime + s.CSTime
	return time.Duration(ticks) * 10 * time.Millisecond // Linux counts hundredths of a second on every machine
}

// Resident is the resident memory of a process in bytes, 0 when it has ended.
func Resident(pid int) int64 { return int64(stat(pid).ResidentMemory()) }
