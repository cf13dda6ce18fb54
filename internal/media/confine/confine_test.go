package confine_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"cutroom/internal/media/confine"
)

func TestMain(m *testing.M) {
	confine.Main()
	if len(os.Args) > 1 && os.Args[1] == "prisoner" {
		os.Exit(prisoner(os.Args[2:]))
	}
	os.Exit(m.Run())
}

// all are the layers that the tests want; a kernel that lacks one fails them.
var all = confine.Layers{Namespaces: true, Landlock: true, Seccomp: true}

func binary(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// imprison runs this test program confined, in the place of a decoder that was
// taken over, and returns what it says of its attempts.
func imprison(t *testing.T, layers confine.Layers, dir string, args ...string) string {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd, err := confine.Command(t.Context(), confine.Program{
		Binary: binary(t), Args: append([]string{"prisoner"}, args...), Dir: dir,
		MemoryBytes: 1 << 30, FileBytes: 64 << 20, CPU: 30 * time.Second,
	}, layers)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := confine.Start(cmd); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	return out.String()
}

// attempts are what a decoder must not be able to do, each nil when it worked.
// Server is the process id of the server.
var attempts = map[string]func(server int) error{
	"limit another's processor time": func(server int) error {
		return unix.Prlimit(server, unix.RLIMIT_NOFILE, nil, &unix.Rlimit{})
	},
	"slow another": func(server int) error { return unix.Setpriority(unix.PRIO_PROCESS, server, 5) },
	"bind another to a processor": func(server int) error {
		return unix.SchedSetaffinity(server, &unix.CPUSet{1})
	},
	"schedule another as idle": func(server int) error {
		return call(unix.SYS_SCHED_SETSCHEDULER, uintptr(server), 5, uintptr(unsafe.Pointer(&struct{ priority int32 }{})))
	},
	"lower another's disk priority": func(server int) error { return call(unix.SYS_IOPRIO_SET, 1, uintptr(server), 3<<13) },
	"hold another":                  func(server int) error { return second(unix.PidfdOpen(server, 0)) },
	"signal another":                func(server int) error { return unix.Kill(server, 0) },
	"signal another's thread":       func(server int) error { return unix.Tgkill(server, server, 0) },
	"trace another":                 func(server int) error { return unix.PtraceAttach(server) },
	"read another's environment":    func(server int) error { return open(fmt.Sprintf("/proc/%d/environ", server), os.O_RDONLY) },
	"write another's memory":        func(server int) error { return open(fmt.Sprintf("/proc/%d/mem", server), os.O_RDWR) },
	"read accounts":                 func(int) error { return open("/etc/passwd", os.O_RDONLY) },
	"open a socket":                 func(int) error { return second(unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)) },
	"open an io_uring":              func(int) error { return call(unix.SYS_IO_URING_SETUP, 1, 0, 0) },
	"start a process":               func(int) error { return exec.Command("/proc/self/exe", "prisoner", "-version").Run() },
	"clone a process":               func(int) error { return call(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0) },
	"clone a user namespace":        func(int) error { return call(unix.SYS_CLONE, unix.CLONE_NEWUSER|uintptr(unix.SIGCHLD), 0, 0) },
	"clone by structure": func(int) error {
		if err := call(unix.SYS_CLONE3, 0, 0, 0); !errors.Is(err, unix.ENOSYS) {
			return fmt.Errorf("%w, so the C library would not go back to clone", err)
		}
		return unix.ENOSYS
	},
	"leave its namespaces": func(int) error { return unix.Unshare(unix.CLONE_NEWNS) },
	"leave its session":    func(int) error { return second(unix.Setsid()) },
	"share memory without a file": func(int) error {
		return second(unix.Mmap(-1, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANON))
	},
	"make a file in memory":  func(int) error { return second(unix.MemfdCreate("x", 0)) },
	"share memory by number": func(int) error { return second(unix.SysvShmGet(0, 1<<20, 0o1600)) },
	"use more memory than allowed": func(int) error {
		return second(unix.Mmap(-1, 0, 2<<30, unix.PROT_WRITE|unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANON))
	},
	"execute what it wrote": func(int) error {
		if err := os.WriteFile("tool", []byte("#!/bin/sh\n"), 0o700); err != nil {
			panic(err) // the folder is its own
		}
		return unix.Exec("./tool", []string{"tool"}, nil)
	},
	"execute a program of the system": func(int) error { return unix.Exec("/usr/bin/env", []string{"env"}, nil) },
}

func second[T any](_ T, err error) error { return err }

func call(nr, a, b, c uintptr) error {
	if _, _, errno := unix.RawSyscall(nr, a, b, c); errno != 0 {
		return errno
	}
	return nil
}

func open(path string, how int) error {
	f, err := os.OpenFile(path, how, 0)
	if err == nil {
		f.Close()
	}
	return err
}

// prisoner tries the named attempts and prints those that worked; "thread" and
// "write" are what must work.
func prisoner(args []string) int {
	server, err := strconv.Atoi(args[0])
	if err != nil {
		return 2
	}
	for _, name := range args[1:] {
		switch name {
		case "wait":
			fmt.Println("waiting")
			time.Sleep(time.Hour)
		case "abort":
			_ = unix.Tgkill(os.Getpid(), unix.Gettid(), unix.SIGABRT)
		default:
			if err := attempts[name](server); err == nil {
				fmt.Println("worked:", name)
			}
		}
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // a thread of its own
		done <- os.WriteFile("out", []byte("written"), 0o600)
	}()
	if err := <-done; err != nil {
		fmt.Println("could not write:", err)
	}
	return 0
}

func names() []string {
	out := make([]string, 0, len(attempts))
	for name := range attempts {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

func TestPrisonerCanDoNothing(t *testing.T) {
	dir := t.TempDir()
	if said := imprison(t, all, dir, append([]string{strconv.Itoa(os.Getpid())}, names()...)...); said != "" {
		t.Error(said)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "out")); string(b) != "written" {
		t.Errorf("its own folder: %q, %v", b, err)
	}
}

// TestPrisonerWithoutNamespaces is what most containers allow.
func TestPrisonerWithoutNamespaces(t *testing.T) {
	layers := all
	layers.Namespaces = false
	if said := imprison(t, layers, t.TempDir(), append([]string{strconv.Itoa(os.Getpid())}, names()...)...); said != "" {
		t.Error(said)
	}
}

// TestPrisonerWithoutFilter shows that the namespaces hold by themselves what
// concerns other processes.
func TestPrisonerWithoutFilter(t *testing.T) {
	layers := all
	layers.Seccomp = false
	said := imprison(t, layers, t.TempDir(), strconv.Itoa(os.Getpid()), "hold another", "signal another", "signal another's thread",
		"trace another", "limit another's processor time", "slow another", "read another's environment", "execute what it wrote")
	if said != "" {
		t.Error(said)
	}
}

// TestNothingOutlivesTheProgram starts, without a filter to forbid it, a process
// in a session of its own that holds on to the output.
func TestNothingOutlivesTheProgram(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd, err := confine.Command(t.Context(), confine.Program{Binary: "/bin/sh", Args: []string{"-c", "sleep 1000 & echo started"}},
		confine.Layers{Namespaces: true})
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := confine.Start(cmd); err != nil {
		t.Fatal(err)
	}
	// The pipe ends only when nobody holds it any more.
	said, err := io.ReadAll(out)
	if err != nil || strings.TrimSpace(string(said)) != "started" {
		t.Errorf("%q, %v", said, err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

func TestOrphanDoesNotStart(t *testing.T) {
	// The server's end of the pipe is closed before the process looks at it.
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	defer r.Close()
	cmd, err := confine.Command(t.Context(), confine.Program{Binary: "/bin/true"}, confine.Layers{})
	if err != nil {
		t.Fatal(err)
	}
	cmd.ExtraFiles[0] = r
	out, err := cmd.CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != confine.ExitStatus || !strings.Contains(string(out), "the server is gone") {
		t.Errorf("%v: %s", err, out)
	}
}

// hiderEnv makes the test program a server that hides itself.
const hiderEnv = "CUTROOM_CONFINE_TEST_HIDE"

// TestHiddenServerStillConfines runs as an ordinary user: to write the id maps of
// a namespace such a server must show itself for a moment.
func TestHiddenServerStillConfines(t *testing.T) {
	if os.Getenv(hiderEnv) != "" {
		if err := confine.Hide(); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			cmd, err := confine.Command(t.Context(), confine.Program{Binary: "/bin/true"}, all)
			if err != nil {
				t.Fatal(err)
			}
			if err := confine.Start(cmd); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err != nil {
				t.Fatal(err)
			}
		}
		if n, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0); n != 0 || err != nil {
			t.Errorf("dumpable: %d, %v", n, err)
		}
		return
	}
	// A copy that an ordinary user may execute.
	program, err := os.ReadFile(binary(t))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(os.TempDir(), fmt.Sprintf("confine-test-%d", os.Getpid()))
	if err := os.WriteFile(path, program, 0o755); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(path)
	cmd := exec.CommandContext(t.Context(), path, "-test.run=^TestHiddenServerStillConfines$", "-test.v")
	cmd.Env = append(os.Environ(), hiderEnv+"=1")
	cmd.Dir = "/"
	if os.Getuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65533, Gid: 65533}}
	}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestDetect(t *testing.T) {
	refused := errors.New("refused")
	got, report, err := confine.Detect(func(l confine.Layers) error {
		if l.Namespaces {
			return refused
		}
		return nil
	})
	if err != nil || got.Namespaces || !got.Seccomp || report[0].InForce || report[0].Detail != "refused" || !report[2].InForce {
		t.Errorf("%+v, %+v, %v", got, report, err)
	}
	if _, _, err := confine.Detect(func(confine.Layers) error { return refused }); !errors.Is(err, refused) {
		t.Errorf("a program that does not start: %v", err)
	}
}
