package media

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"

	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// enterCage applies the order to this process and execs ffmpeg. It returns only
// on failure.
func enterCage(orderText string, args []string) error {
	var o cageOrder
	if err := json.Unmarshal([]byte(orderText), &o); err != nil {
		return fmt.Errorf("order: %w", err)
	}
	// Where memory runs out the kernel should take ffmpeg, not the server. Not
	// every container lets us say so.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("500"), 0)
	// Files the server itself inherited without close-on-exec.
	_ = unix.CloseRange(uint(o.KeepFD)+1, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)

	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	if o.Features.Landlock {
		if err := applyLandlock(o); err != nil {
			return fmt.Errorf("landlock: %w", err)
		}
	}
	if err := applyLimits(o); err != nil {
		return err
	}
	// Entering a namespace may have cleared the signal set at the fork, and the
	// server may have died since.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("parent-death signal: %w", err)
	}
	if os.Getppid() != o.Parent {
		return errors.New("the server is gone")
	}
	if o.Features.Seccomp {
		if err := applySeccomp(); err != nil {
			return fmt.Errorf("seccomp: %w", err)
		}
	}
	err := unix.Exec(o.Binary, append([]string{o.Binary}, args...), o.Env)
	return fmt.Errorf("exec %s: %w", o.Binary, err)
}

// libraryPaths hold what the dynamic loader needs. Programs live elsewhere
// (/usr/bin), so that the cage holds no other program to exec.
var libraryPaths = []string{
	"/lib", "/lib32", "/lib64", "/usr/lib", "/usr/lib32", "/usr/lib64",
	"/usr/local/lib", "/usr/local/lib64",
}

// applyLandlock leaves the process its folder to write, its inputs, itself and
// the libraries to read, and the null device. The network is refused where the
// kernel's Landlock knows it.
func applyLandlock(o cageOrder) error {
	const readOnly = ll.AccessFSReadFile | ll.AccessFSReadDir
	rules := []landlock.Rule{
		landlock.ROFiles(o.Binary),
		landlock.RODirs(libraryPaths...).IgnoreIfMissing(),
		landlock.PathAccess(ll.AccessFSReadFile, "/etc/ld.so.cache", "/dev/urandom", "/dev/zero").IgnoreIfMissing(),
		landlock.RWFiles("/dev/null").IgnoreIfMissing(),
	}
	if o.Write != "" {
		rules = append(rules, landlock.RWDirs(o.Write))
	}
	for _, path := range o.Read {
		info, err := os.Stat(path)
		switch {
		case errors.Is(err, os.ErrNotExist):
			// ffmpeg will say so itself, naming the input.
		case err != nil:
			return err
		case info.IsDir():
			rules = append(rules, landlock.PathAccess(readOnly, path))
		default:
			rules = append(rules, landlock.PathAccess(ll.AccessFSReadFile, path))
		}
	}
	return landlock.V7.BestEffort().Restrict(rules...)
}

// applyLimits lowers what the process may consume. A hard limit that is lower
// already stays.
func applyLimits(o cageOrder) error {
	limits := []struct {
		name     string
		resource int
		value    uint64
	}{
		{"core", unix.RLIMIT_CORE, 0},
		{"files", unix.RLIMIT_NOFILE, 1024},
		{"file size", unix.RLIMIT_FSIZE, o.FileSize},
		{"cpu", unix.RLIMIT_CPU, o.CPU},
		// RLIMIT_DATA counts private writable memory. RLIMIT_AS would also count
		// address space that is only reserved: 64 MiB per thread's arena, and
		// every mapped library.
		{"memory", unix.RLIMIT_DATA, o.Memory},
	}
	for _, l := range limits {
		if l.value == 0 && l.resource != unix.RLIMIT_CORE {
			continue
		}
		var now unix.Rlimit
		if err := unix.Getrlimit(l.resource, &now); err != nil {
			return fmt.Errorf("limit %s: %w", l.name, err)
		}
		lim := unix.Rlimit{Cur: min(l.value, now.Max), Max: min(l.value, now.Max)}
		if l.resource == unix.RLIMIT_CPU {
			// The soft limit ends the process with SIGXCPU, which names the
			// reason; the hard one would be a bare SIGKILL.
			lim.Max = min(l.value+5, now.Max)
		}
		if err := unix.Setrlimit(l.resource, &lim); err != nil {
			return fmt.Errorf("limit %s: %w", l.name, err)
		}
	}
	return nil
}
