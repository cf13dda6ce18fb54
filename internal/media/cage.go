package media

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
)

// The cage, from outside in:
//
//	server ── clone(new user + network + ipc namespace, parent-death signal) ──▶ same binary
//	same binary, in CageMain: rlimits → Landlock → seccomp → exec ffmpeg
//
// The user namespace maps the server's user to nobody, so that even a server
// run as root starts an ffmpeg without any capability; what ffmpeg opens must
// therefore be open to the server's user by ownership or mode, root or not. The network namespace is
// empty. Landlock leaves ffmpeg the job's folder to write, its inputs and the
// shared libraries to read. The seccomp filter refuses sockets and the calls an
// attacker needs and ffmpeg does not, which also keeps the network shut where
// namespaces are refused (most container engines).

const (
	cageArg0       = "cutroom-media-cage"
	cageExitStatus = 121 // the cage itself failed; ffmpeg never ends with it
)

// cageArmed says that this program calls CageMain, so starting it again is safe.
var cageArmed atomic.Bool

// features are the walls of the cage that a kernel may refuse.
type features struct {
	Namespaces bool
	Landlock   bool
	Seccomp    bool
}

// cageOrder is what a cage process is told, as JSON in its argument list.
// Nothing in it is secret: it names files and numbers.
type cageOrder struct {
	Features features
	Binary   string
	Parent   int // pid that must still be our parent
	Write    string
	Read     []string
	Memory   uint64 // bytes of private memory
	FileSize uint64 // bytes of one file
	CPU      uint64 // seconds; 0 is no limit
	KeepFD   int    // highest descriptor ffmpeg inherits
	Env      []string
}

// cageState is what was found out about the kernel.
type cageState struct {
	features features
	report   []CageFeature
}

// CageFeature is one wall of the cage and whether it stands.
type CageFeature struct {
	Name    string
	InForce bool
	Detail  string // how far it reaches, or why it is missing
}

// cagedCommand builds the process that restricts itself and becomes c.
func (r *Runner) cagedCommand(ctx context.Context, c command, f features) (*exec.Cmd, error) {
	order := cageOrder{
		Features: f, Binary: c.binary, Parent: os.Getpid(), Write: c.dir, Read: c.reads,
		Memory: uint64(r.cfg.MaxMemoryBytes), FileSize: uint64(r.cfg.MaxFileBytes),
		KeepFD: 2, Env: cageEnv(),
	}
	if c.extra != nil {
		order.KeepFD = 3
	}
	if c.timeout > 0 {
		// A process using every core for its whole time-out is the honest maximum.
		order.CPU = uint64(c.timeout/time.Second+1) * uint64(runtime.NumCPU())
	}
	text, err := json.Marshal(order)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Args = append([]string{cageArg0, string(text)}, c.args...)
	cmd.Dir = orDefault(c.dir, "/")
	// The Go runtime of the cage lives for milliseconds: one thread is enough.
	cmd.Env = append(cageEnv(), "GOMAXPROCS=1", "GOGC=off")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if f.Namespaces {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: nobody, HostID: os.Geteuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: nobody, HostID: os.Getegid(), Size: 1}}
	}
	return cmd, nil
}

const nobody = 65534

// cageEnv is the whole environment of ffmpeg: none of the server's secrets.
func cageEnv() []string {
	return []string{"PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8", "HOME=/nonexistent"}
}

// prepareCage finds out, once, which walls this kernel grants.
func (r *Runner) prepareCage(ctx context.Context) error {
	r.cageOnce.Do(func() {
		// The first caller's cancellation must not decide for all later ones.
		r.cage, r.cageErr = r.detectCage(context.WithoutCancel(ctx))
		for _, f := range r.cage.report {
			if !f.InForce {
				r.cfg.CageLog(fmt.Sprintf("media cage: %s not in force: %s", f.Name, f.Detail))
			}
		}
	})
	return r.cageErr
}

// detectCage starts ffmpeg within all walls and, if that fails, within each of
// them alone, so that a refused one is known by name and the others stay.
func (r *Runner) detectCage(ctx context.Context) (cageState, error) {
	want := features{Namespaces: true, Landlock: true, Seccomp: seccompSupported}
	abi, abiErr := ll.LandlockGetABIVersion()
	want.Landlock = abiErr == nil && abi > 0

	why := map[string]string{}
	if !want.Landlock {
		why["landlock"] = "the kernel does not offer it"
	}
	if !want.Seccomp {
		why["seccomp"] = "no filter for this processor"
	}
	if err := r.tryCage(ctx, want); err != nil {
		if bare := r.tryCage(ctx, features{}); bare != nil {
			return cageState{}, fmt.Errorf("media: ffmpeg does not start: %w", bare)
		}
		narrow := func(name string, wall *bool, alone features) {
			if !*wall {
				return
			}
			if err := r.tryCage(ctx, alone); err != nil {
				*wall, why[name] = false, err.Error()
			}
		}
		narrow("namespaces", &want.Namespaces, features{Namespaces: true})
		narrow("landlock", &want.Landlock, features{Landlock: true})
		narrow("seccomp", &want.Seccomp, features{Seccomp: true})
		if err := r.tryCage(ctx, want); err != nil {
			return cageState{}, fmt.Errorf("media: ffmpeg does not start in the cage: %w", err)
		}
	}
	detail := func(name, inForce string) string { return orDefault(why[name], inForce) }
	return cageState{features: want, report: []CageFeature{
		{"namespaces", want.Namespaces, detail("namespaces", "no network, no capabilities")},
		{"landlock", want.Landlock, detail("landlock", fmt.Sprintf("ABI %d: files%s", abi, landlockReach(abi)))},
		{"seccomp", want.Seccomp, detail("seccomp", "no sockets, no tracing, no new namespaces")},
		{"limits", true, fmt.Sprintf("memory %d MiB, file %d MiB, processor time by time-out, no core dumps",
			r.cfg.MaxMemoryBytes>>20, r.cfg.MaxFileBytes>>20)},
	}}, nil
}

func landlockReach(abi int) string {
	s := ""
	if abi >= 4 {
		s += ", TCP"
	}
	if abi >= 6 {
		s += ", signals"
	}
	return s
}

func (r *Runner) tryCage(ctx context.Context, f features) error {
	_, err := r.runWith(ctx, command{
		name: "cage test", binary: r.ffmpeg, args: []string{"-version"}, stdout: io.Discard, timeout: r.cfg.ProbeTimeout,
	}, f)
	if start, ok := errors.AsType[*startError](err); ok {
		return start.err
	}
	return err
}

// CageMain must be the first statement of main, and of TestMain in tests that
// run ffmpeg. In a process started as the cage it restricts the process,
// becomes ffmpeg and never returns; in any other it returns at once.
func CageMain() {
	cageArmed.Store(true)
	if len(os.Args) < 2 || os.Args[0] != cageArg0 {
		return
	}
	runtime.LockOSThread() // Landlock and seccomp bind the thread that execs
	err := enterCage(os.Args[1], os.Args[2:])
	fmt.Fprintln(os.Stderr, strings.TrimSpace(err.Error()))
	os.Exit(cageExitStatus)
}
