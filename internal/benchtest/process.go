package benchtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Stat is the fields of /proc/PID/stat from the third on, the state: the name
// before may hold anything. It is nil when the process has ended.
func Stat(pid int) []string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	text := string(stat)
	return strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
}

// Parent is who started a process, 0 when it has ended.
func Parent(pid int) int {
	if stat := Stat(pid); len(stat) > 1 {
		parent, _ := strconv.Atoi(stat[1]) // the kernel writes a number
		return parent
	}
	return 0
}

// Family is a process and every living one below it.
func Family(pid int) []int {
	children := map[int][]int{}
	folders, _ := filepath.Glob("/proc/[0-9]*") // the pattern is well formed
	for _, folder := range folders {
		if child, err := strconv.Atoi(filepath.Base(folder)); err == nil {
			parent := Parent(child)
			children[parent] = append(children[parent], child)
		}
	}
	all := []int{pid}
	for i := 0; i < len(all); i++ {
		all = append(all, children[all[i]]...)
	}
	return all
}

// FamilyCPU is the processor time of a living family, to the nanosecond where
// the kernel tells it.
func FamilyCPU(pid int) (sum time.Duration) {
	for _, p := range Family(pid) {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", p))
		if err != nil {
			continue // it ended
		}
		ns, _, _ := strings.Cut(string(raw), " ")
		if n, err := strconv.ParseInt(ns, 10, 64); err == nil {
			sum += time.Duration(n)
		}
	}
	return sum
}

// TreeCPU is the processor time of a process and of its children that have
// ended, which includes theirs.
func TreeCPU(pid int) (sum time.Duration) {
	stat := Stat(pid)
	if len(stat) < 15 {
		return 0
	}
	for _, field := range stat[11:15] { // utime, stime, cutime, cstime
		ticks, _ := strconv.ParseInt(field, 10, 64) // the kernel writes a number
		sum += time.Duration(ticks) * 10 * time.Millisecond
	}
	return sum // Linux tells it in hundredths of a second on every machine
}

// Resident is the resident memory of a process in bytes, 0 when it has ended.
func Resident(pid int) int64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	var kb int64
	if _, err := fmt.Sscanf(rest, "%d kB", &kb); err != nil {
		return 0
	}
	return kb << 10
}
