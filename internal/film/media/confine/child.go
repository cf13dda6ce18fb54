package confine

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// enter applies the order to this process and executes the program. It returns only on failure.
func enter(orderText string, args []string) error {
	var o order
	if err := json.Unmarshal([]byte(orderText), &o); err != nil {
		return fmt.Errorf("order: %w", err)
	}
	// If memory runs out, the kernel should kill the program, not the server. Some containers forbid this setting.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("500"), 0)
	// Close files that the server itself inherited without close-on-exec.
	_ = unix.CloseRange(aliveFD, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)

	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	if o.Layers.Landlock {
		if err := applyLandlock(o); err != nil {
			return fmt.Errorf("landlock: %w", err)
		}
	}
	if err := applyLimits(o); err != nil {
		return err
	}
	// Entering a namespace may have cleared the signal set at the fork, and the server may have died since then.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("parent-death signal: %w", err)
	}
	alive := []unix.PollFd{{Fd: aliveFD, Events: unix.POLLIN}}
	if _, err := unix.Poll(alive, 0); err != nil && !errors.Is(err, unix.EINTR) {
		return fmt.Errorf("check whether the server lives: %w", err)
	}
	if alive[0].Revents&unix.POLLHUP != 0 {
		return errors.New("the server is gone")
	}
	if o.Layers.Seccomp {
		if err := applySeccomp(); err != nil {
			return fmt.Errorf("seccomp: %w", err)
		}
	}
	err := unix.Exec(o.Binary, append([]string{o.Binary}, args...), environment())
	return fmt.Errorf("exec %s: %w", o.Binary, err)
}

// maxThreads is far above what any encoder uses. It is not set without a user namespace, because there it would count
// all threads of the server's user.
const maxThreads = 2048

// applyLimits lowers the resource limits of the process. It keeps hard limits that are already lower.
func applyLimits(o order) error {
	limits := []struct {
		name     string
		resource int
		value    uint64
	}{
		{"core", unix.RLIMIT_CORE, 0},
		{"files", unix.RLIMIT_NOFILE, 1024},
		{"threads", unix.RLIMIT_NPROC, maxThreads},
		{"file size", unix.RLIMIT_FSIZE, o.FileBytes},
		{"cpu", unix.RLIMIT_CPU, uint64((o.CPU + time.Second - 1) / time.Second)},
		// RLIMIT_DATA counts private writable memory. RLIMIT_AS would also count address space that is only reserved:
		// 64 MiB for each thread's arena, and every mapped library. The seccomp filter refuses shared memory.
		{"memory", unix.RLIMIT_DATA, o.MemoryBytes},
	}
	for _, l := range limits {
		if l.value == 0 && l.resource != unix.RLIMIT_CORE || l.resource == unix.RLIMIT_NPROC && !o.Layers.Namespaces {
			continue
		}
		var now unix.Rlimit
		if err := unix.Getrlimit(l.resource, &now); err != nil {
			return fmt.Errorf("limit %s: %w", l.name, err)
		}
		lim := unix.Rlimit{Cur: min(l.value, now.Max), Max: min(l.value, now.Max)}
		if l.resource == unix.RLIMIT_CPU {
			// At the soft limit ffmpeg ends by itself and logs the reason; the hard limit is a bare SIGKILL.
			lim.Max = min(l.value+5, now.Max)
		}
		if err := unix.Setrlimit(l.resource, &lim); err != nil {
			return fmt.Errorf("limit %s: %w", l.name, err)
		}
	}
	return nil
}
