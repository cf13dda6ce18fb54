// Package confine runs one program on untrusted files so that an attacker who takes over the program gains nothing.
// From the outside in:
//
//	server ── clone(new user, network, IPC and PID namespaces; parent-death signal) ──▶ the same binary
//	the same binary, in Main: Landlock → resource limits → seccomp → exec the program
//
// The user namespace maps the server's user to nobody, so even a server that runs as root starts a program without any
// capability. The program's files must be accessible to the server's user by ownership or mode, even if that is root.
// The network namespace is empty. The program is the first process of its PID namespace: it cannot name processes
// outside, and the processes that it starts end with it. Landlock lets it write to one folder, read its inputs and the
// shared libraries, and execute no other program. The seccomp filter allows only the system calls that a decoder needs:
// no sockets, no processes, no shared memory without a file, no limits or priorities of other processes, no metadata of
// files, for which Landlock has no rules. If namespaces are refused, as in most container engines, the filter alone
// provides their protection. It also covers what an old Landlock cannot restrict.
//
// The package is independent of media.
package confine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	arg0 = "cutroom-confined"
	// ExitStatus is the exit status of a process that could not confine itself; its standard error contains the
	// reason. ffmpeg never exits with it.
	ExitStatus = 121
	nobody     = 65534
)

// armed is set once this program has called Main, so that Command may start it again.
var armed atomic.Bool

// Armed reports whether Main was called. If not, Command would start the whole program again.
func Armed() bool { return armed.Load() }

// Layers are the parts of the confinement, each of which a kernel may refuse.
type Layers struct {
	Namespaces bool
	Landlock   bool
	Seccomp    bool
	// LandlockABI makes Landlock behave like this older version; 0 means the kernel's own.
	LandlockABI int `json:",omitempty"`
}

// Program defines what to run and what it may use.
type Program struct {
	Binary string   // absolute, links resolved
	Args   []string `json:"-"` // without the name of the program
	Dir    string   // working directory, and the only writable place; "" means none
	Reads  []string // files and folders it may read

	MemoryBytes uint64        // private memory
	FileBytes   uint64        // size of the largest file it may write
	CPU         time.Duration // processor time, rounded up to seconds; 0 means no limit
}

// order is the configuration of the new process, passed as JSON in the argument list before the program's own
// arguments. It contains file names and numbers, but no secret.
type order struct {
	Program
	Layers Layers
}

// aliveFD is the descriptor of the pipe that aliveness returns. The new process has it in addition to the three
// standard ones; the program does not inherit it.
const aliveFD = 3

// Command returns the process that confines itself and becomes p. The caller starts it with Start. When it is
// killed, by ending ctx or otherwise, all its processes end.
func Command(ctx context.Context, p Program, layers Layers) (*exec.Cmd, error) {
	alive, err := aliveness()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(order{p, layers})
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Args = append([]string{arg0, string(text)}, p.Args...)
	if cmd.Dir = p.Dir; cmd.Dir == "" {
		cmd.Dir = "/"
	}
	// The Go runtime of the new process lives for milliseconds: one thread is enough.
	cmd.Env = append(environment(), "GOMAXPROCS=1", "GOGC=off")
	cmd.ExtraFiles = []*os.File{alive}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	// Kill the group, for kernels without namespaces; a namespace ends with its first process.
	cmd.Cancel = func() error {
		err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		if errors.Is(err, syscall.ESRCH) { // it had already ended, which must not look like a failure
			return os.ErrProcessDone
		}
		return err
	}
	if layers.Namespaces {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC | syscall.CLONE_NEWPID
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: nobody, HostID: os.Geteuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: nobody, HostID: os.Getegid(), Size: 1}}
	}
	return cmd, nil
}

// environment returns the program's complete environment. The server's own contains secrets.
func environment() []string {
	return []string{"PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8", "HOME=/nonexistent"}
}

// aliveness returns the read end of a pipe whose write end this process holds until it dies. If a new process finds the
// pipe closed, its server has died. It cannot check the parent's process id, which is always 0 in a PID namespace.
var aliveness = sync.OnceValues(func() (*os.File, error) {
	r, w, err := os.Pipe()
	writingEnds <- w
	return r, err
})

// writingEnds keeps the write end reachable, because the garbage collector closes unreachable files.
var writingEnds = make(chan *os.File, 1)

// hidden records whether Hide was called. Its lock is held while Start makes the server visible for a moment.
var hidden struct {
	sync.Mutex
	on bool
}

// Hide protects the memory and the environment of this process from every other process of its user. It can be
// neither traced nor dumped, and its files under /proc belong to root.
func Hide() error {
	hidden.Lock()
	defer hidden.Unlock()
	hidden.on = true
	return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
}

// Start starts a Command. The calling goroutine must stay on its thread until the process has ended, because the kernel
// sends the parent-death signal when the thread that forked ends.
//
// An ordinary user may write the id maps of a new user namespace only while its creator is not hidden, so Start
// makes the server visible for that moment. Programs in other namespaces cannot exploit it. Without namespaces
// Start keeps the server hidden.
func Start(cmd *exec.Cmd) error {
	if cmd.SysProcAttr.Cloneflags&syscall.CLONE_NEWUSER == 0 || os.Geteuid() == 0 {
		return cmd.Start()
	}
	hidden.Lock()
	defer hidden.Unlock()
	if !hidden.on {
		return cmd.Start()
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0); err != nil {
		return err
	}
	return errors.Join(cmd.Start(), unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0))
}

// Main must be the first statement of main, and of TestMain in tests that run ffmpeg. In a process started by Command
// it confines the process, becomes the program and never returns. In any other process it returns at once.
func Main() {
	armed.Store(true)
	if len(os.Args) < 2 || os.Args[0] != arg0 {
		return
	}
	runtime.LockOSThread() // Landlock and seccomp bind the thread that calls exec
	err := enter(os.Args[1], os.Args[2:])
	fmt.Fprintln(os.Stderr, strings.TrimSpace(err.Error()))
	os.Exit(ExitStatus)
}
