// A prisoner tries everything that a decoder must not be able to do, under each combination of layers. The same
// attempts must work without confinement.

package confine_test

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
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

	"cutroom/internal/film/media/confine"
)

func TestMain(m *testing.M) {
	confine.Main()
	if len(os.Args) > 1 && os.Args[1] == "prisoner" {
		os.Exit(prisoner(os.Args[2:]))
	}
	os.Exit(m.Run())
}

// all are the layers that the tests need; they fail on a kernel that lacks one.
var all = confine.Layers{Namespaces: true, Landlock: true, Seccomp: true}

func binary(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// imprison runs this test program confined, like a decoder that was taken over, and returns the results of its
// attempts.
func imprison(t *testing.T, layers confine.Layers, dir string, v victim, args ...string) string {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd, err := confine.Command(t.Context(), confine.Program{
		Binary: binary(t), Args: append([]string{"prisoner", strconv.Itoa(v.server), v.file, v.input}, args...), Dir: dir, Reads: []string{v.input},
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

// victim is the target of the attempts: the server, a file of its user outside the sandbox, and a file that the
// prisoner may read.
type victim struct {
	server      int
	file, input string
}

// newVictim returns this process with two files.
func newVictim(t *testing.T) victim {
	t.Helper()
	dir := t.TempDir()
	v := victim{os.Getpid(), filepath.Join(dir, "file"), filepath.Join(dir, "input")}
	for _, name := range []string{v.file, v.input} {
		if err := os.WriteFile(name, []byte("kept"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return v
}

// attempts are things that a decoder must not be able to do; each returns nil if it worked.
var attempts = map[string]func(v victim) error{
	"limit another's processor time": func(v victim) error {
		return unix.Prlimit(v.server, unix.RLIMIT_NOFILE, nil, &unix.Rlimit{})
	},
	"slow another": func(v victim) error { return unix.Setpriority(unix.PRIO_PROCESS, v.server, 5) },
	"bind another to a processor": func(v victim) error {
		return unix.SchedSetaffinity(v.server, &unix.CPUSet{1})
	},
	"schedule another as idle": func(v victim) error {
		return call(unix.SYS_SCHED_SETSCHEDULER, uintptr(v.server), 5, uintptr(unsafe.Pointer(&struct{ priority int32 }{})))
	},
	"lower another's disk priority": func(v victim) error { return call(unix.SYS_IOPRIO_SET, 1, uintptr(v.server), 3<<13) },
	"hold another":                  func(v victim) error { return second(unix.PidfdOpen(v.server, 0)) },
	"signal another":                func(v victim) error { return unix.Kill(v.server, 0) },
	"signal another's thread":       func(v victim) error { return unix.Tgkill(v.server, v.server, 0) },
	"trace another":                 func(v victim) error { return unix.PtraceAttach(v.server) },
	"read another's environment":    func(v victim) error { return open(fmt.Sprintf("/proc/%d/environ", v.server), os.O_RDONLY) },
	"write another's memory":        func(v victim) error { return open(fmt.Sprintf("/proc/%d/mem", v.server), os.O_RDWR) },
	"inherit the environment": func(victim) error {
		if os.Getenv("AUTH_JWT_SECRET") == "" {
			return unix.ENOENT
		}
		return nil
	},
	"gain privileges by executing": func(victim) error {
		if bound, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); bound != 0 || err != nil {
			return cmp.Or(err, error(unix.EPERM))
		}
		return nil
	},
	"reach the network": func(victim) error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
		if err != nil {
			return err
		}
		return unix.Connect(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}, Port: 9})
	},
	"read accounts":          func(victim) error { return open("/etc/passwd", os.O_RDONLY) },
	"open a socket":          func(victim) error { return second(unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)) },
	"open an io_uring":       func(victim) error { return call(unix.SYS_IO_URING_SETUP, 1, 0, 0) },
	"start a process":        func(victim) error { return exec.Command("/proc/self/exe", "prisoner", "-version").Run() },
	"clone a process":        func(victim) error { return call(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0) },
	"clone a user namespace": func(victim) error { return call(unix.SYS_CLONE, unix.CLONE_NEWUSER|uintptr(unix.SIGCHLD), 0, 0) },
	"clone by structure": func(victim) error {
		if err := call(unix.SYS_CLONE3, 0, 0, 0); !errors.Is(err, unix.ENOSYS) {
			return fmt.Errorf("%w, so the C library would not go back to clone", err)
		}
		return unix.ENOSYS
	},
	"leave its namespaces": func(victim) error { return unix.Unshare(unix.CLONE_NEWNS) },
	"leave its session":    func(victim) error { return second(unix.Setsid()) },
	"share memory without a file": func(victim) error {
		return second(unix.Mmap(-1, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANON))
	},
	"make a file in memory":  func(victim) error { return second(unix.MemfdCreate("x", 0)) },
	"share memory by number": func(victim) error { return second(unix.SysvShmGet(0, 1<<20, 0o1600)) },
	"use more memory than allowed": func(victim) error {
		return second(unix.Mmap(-1, 0, 2<<30, unix.PROT_WRITE|unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANON))
	},
	"execute what it wrote": func(victim) error {
		if err := os.WriteFile("tool", []byte("#!/bin/sh\n"), 0o700); err != nil {
			panic(err) // the folder belongs to the test
		}
		return unix.Exec("./tool", []string{"tool"}, nil)
	},
	"execute a program of the system": func(victim) error { return unix.Exec("/usr/bin/env", []string{"env"}, nil) },
	"change a mode":                   func(v victim) error { return unix.Fchmodat(unix.AT_FDCWD, v.file, 0o666, 0) },
	"change a mode by a descriptor":   func(v victim) error { return opened(v.input, func(fd int) error { return unix.Fchmod(fd, 0o666) }) },
	"change a mode by fchmodat2":      func(v victim) error { return path(fchmodat2, at, v.file, 0o666, 0) },
	"change an owner":                 func(v victim) error { return unix.Fchownat(unix.AT_FDCWD, v.file, os.Getuid(), os.Getgid(), 0) },
	"change an owner by a descriptor": func(v victim) error {
		return opened(v.input, func(fd int) error { return unix.Fchown(fd, os.Getuid(), os.Getgid()) })
	},
	"change times":               func(v victim) error { return unix.UtimesNanoAt(unix.AT_FDCWD, v.file, make([]unix.Timespec, 2), 0) },
	"set an attribute":           func(v victim) error { return unix.Setxattr(v.file, "user.x", []byte("x"), 0) },
	"set an attribute by a link": func(v victim) error { return unix.Lsetxattr(v.file, "user.x", []byte("x"), 0) },
	"set an attribute by a descriptor": func(v victim) error {
		return opened(v.input, func(fd int) error { return unix.Fsetxattr(fd, "user.x", []byte("x"), 0) })
	},
	"set an access control list": func(v victim) error {
		return unix.Setxattr(v.file, "system.posix_acl_access", []byte("\x02\x00\x00\x00"), 0)
	},
	"remove an attribute":            func(v victim) error { return unix.Removexattr(v.file, "user.y") },
	"set an attribute by setxattrat": func(v victim) error { return path(setxattrat, at, v.file, 0, 0) },
	"change a file's flags": func(v victim) error {
		return opened(v.input, func(fd int) error {
			flags := uint64(0x40) // FS_NODUMP_FL
			return call(unix.SYS_IOCTL, uintptr(fd), unix.FS_IOC_SETFLAGS, uintptr(unsafe.Pointer(&flags)))
		})
	},
	"watch files":     func(victim) error { return second(unix.InotifyInit1(0)) },
	"watch all files": func(victim) error { return second(unix.FanotifyInit(unix.FAN_REPORT_FID, 0)) },
	"watch a folder": func(victim) error {
		return opened(".", func(fd int) error { return second(unix.FcntlInt(uintptr(fd), unix.F_NOTIFY, 2)) })
	},
	"be asked before others open": func(v victim) error {
		return opened(v.input, func(fd int) error { return second(unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_RDLCK)) })
	},
	"truncate a file":            func(v victim) error { return unix.Truncate(v.file, 0) },
	"empty a file by opening it": func(v victim) error { return open(v.file, os.O_RDONLY|unix.O_TRUNC) },
	"empty an input":             func(v victim) error { return open(v.input, os.O_RDONLY|unix.O_TRUNC) },
	"empty a file by the mode 3": func(v victim) error { return open(v.file, unix.O_ACCMODE|unix.O_TRUNC) },
	"empty a file by openat2": func(v victim) error {
		how := unix.OpenHow{Flags: unix.O_ACCMODE | unix.O_TRUNC}
		return path(unix.SYS_OPENAT2, at, v.file, uintptr(unsafe.Pointer(&how)), unsafe.Sizeof(how))
	},
	"read a file":         func(v victim) error { return open(v.file, os.O_RDONLY) },
	"write an input":      func(v victim) error { return open(v.input, os.O_WRONLY) },
	"make a file outside": func(v victim) error { return open(v.file+".new", os.O_WRONLY|os.O_CREATE) },
	"remove a file":       func(v victim) error { return unix.Unlink(v.file) },
	"take a file along":   func(v victim) error { return unix.Link(v.file, "taken") },
	"move a file":         func(v victim) error { return unix.Rename(v.file, "taken") },
	"handle a file":       func(v victim) error { _, _, err := unix.NameToHandleAt(unix.AT_FDCWD, v.file, 0); return err },
	"own a pipe's signals": func(v victim) error {
		return piped(func(fd uintptr) error { return second(unix.FcntlInt(fd, unix.F_SETOWN, v.server)) })
	},
	"own a pipe's signals by structure": func(v victim) error {
		return piped(func(fd uintptr) error {
			owner := [2]int32{1, int32(v.server)}
			return call(unix.SYS_FCNTL, fd, unix.F_SETOWN_EX, uintptr(unsafe.Pointer(&owner)))
		})
	},
	"choose a pipe's signal": func(victim) error {
		return piped(func(fd uintptr) error { return second(unix.FcntlInt(fd, unix.F_SETSIG, int(unix.SIGKILL))) })
	},
	"outlive the server":       func(victim) error { return unix.Prctl(unix.PR_SET_PDEATHSIG, 0, 0, 0, 0) },
	"leave its group":          func(victim) error { return unix.Setpgid(0, 0) },
	"write all disks' caches":  func(victim) error { return call(unix.SYS_SYNC, 0, 0, 0) },
	"become another user":      func(victim) error { return call(unix.SYS_SETUID, uintptr(os.Getuid()), 0, 0) },
	"change its personality":   func(victim) error { return call(unix.SYS_PERSONALITY, 0xffffffff, 0, 0) },
	"splice":                   func(victim) error { return call(unix.SYS_TEE, 0, 0, 0) },
	"queue requests to a disk": func(victim) error { var id uintptr; return call(unix.SYS_IO_SETUP, 1, uintptr(unsafe.Pointer(&id)), 0) },
	"load into the kernel":     func(victim) error { return call(unix.SYS_BPF, 0, 0, 0) },
	"read keys":                func(victim) error { return second(unix.KeyctlGetKeyringID(unix.KEY_SPEC_SESSION_KEYRING, true)) },
	"see memory faults":        func(victim) error { return call(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|1, 0, 0) },
	"mount":                    func(victim) error { return unix.Mount("none", "/tmp", "tmpfs", 0, "") },
	"open a mount":             func(victim) error { return path(unix.SYS_OPEN_TREE, at, "/", 0, 0) },
	"change its root":          func(victim) error { return unix.Chroot(".") },
	"a call of the future":     func(victim) error { return call(1000, 0, 0, 0) },
	"make a folder":            func(victim) error { return unix.Mkdir("folder", 0o700) },
	"make a folder by openat":  func(victim) error { return unix.Mkdirat(unix.AT_FDCWD, "folder2", 0o700) },
	"reserve space":            func(victim) error { return written(func(fd int) error { return unix.Fallocate(fd, 0, 0, 64<<20) }) },
	"reserve space unseen": func(victim) error {
		return written(func(fd int) error { return unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, 0, 64<<20) })
	},
	"write a file and remove it":  func(victim) error { return written(func(int) error { return unix.Unlink("own") }) },
	"write a file and replace it": func(victim) error { return written(func(int) error { return unix.Rename("own", "other") }) },
	"write a file without a name": func(victim) error { return open(".", unix.O_TMPFILE|unix.O_RDWR) },
	"empty a file without a name": func(victim) error { return open(".", unix.O_TMPFILE|unix.O_WRONLY|unix.O_TRUNC) },
}

// Calls that the package unix does not name on each processor.
const (
	fchmodat2  = 452
	setxattrat = 463
)

// at is AT_FDCWD as an argument.
var at = ^uintptr(99)

// path makes a system call whose second argument is a path.
func path(nr, dir uintptr, name string, c, d uintptr) error {
	p, err := unix.BytePtrFromString(name)
	if err != nil {
		return err
	}
	if _, _, errno := unix.RawSyscall6(nr, dir, uintptr(unsafe.Pointer(p)), c, d, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

// opened makes an attempt on a file that may be read.
func opened(name string, try func(fd int) error) error {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		panic(err)
	}
	defer unix.Close(fd)
	return try(fd)
}

// written makes an attempt on a file that the prisoner wrote.
func written(try func(fd int) error) error {
	fd, err := unix.Open("own", unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
	if err != nil {
		panic(err) // the folder belongs to the test
	}
	defer unix.Close(fd)
	return try(fd)
}

// piped makes an attempt on a pipe.
func piped(try func(fd uintptr) error) error {
	var fds [2]int
	if err := unix.Pipe2(fds[:], 0); err != nil {
		panic(err)
	}
	return try(uintptr(fds[0]))
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

// refusals are the errors of a refused call. ENOENT, ESRCH and ENETUNREACH come from a namespace.
var refusals = []error{unix.EPERM, unix.EACCES, unix.ENOSYS, unix.EXDEV, unix.ENOENT, unix.ESRCH, unix.ENETUNREACH, unix.ENOMEM}

// prisoner makes the named attempts and prints those that worked. Then it must still be able to start a thread and
// write.
func prisoner(args []string) int {
	server, err := strconv.Atoi(args[0])
	if err != nil {
		return 2
	}
	v := victim{server, args[1], args[2]}
	for _, name := range args[3:] {
		switch err := attempts[name](v); {
		case err == nil:
			fmt.Println("worked:", name)
		case !slices.ContainsFunc(refusals, func(r error) bool { return errors.Is(err, r) }):
			fmt.Printf("failed, and nothing refused it: %s: %v\n", name, err)
		}
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // on a thread of its own
		done <- os.WriteFile("out", []byte("written"), 0o600)
	}()
	if err := <-done; err != nil {
		fmt.Println("could not write:", err)
	}
	return 0
}

// TestPrisonerCanDoNothing makes every attempt with namespaces and without, as in most container engines, on the
// Landlock versions of kernels since Debian 12's.
func TestPrisonerCanDoNothing(t *testing.T) {
	t.Setenv("AUTH_JWT_SECRET", "a secret of the server")
	for _, namespaces := range []bool{true, false} {
		for _, abi := range []int{1, 2, 5, 7} {
			t.Run(fmt.Sprintf("namespaces %v, Landlock %d", namespaces, abi), func(t *testing.T) {
				layers, dir, v := all, t.TempDir(), newVictim(t)
				layers.Namespaces, layers.LandlockABI = namespaces, abi
				if said := imprison(t, layers, dir, v, slices.Sorted(maps.Keys(attempts))...); said != "" {
					t.Error(said)
				}
				if b, err := os.ReadFile(filepath.Join(dir, "out")); string(b) != "written" {
					t.Errorf("its own folder: %q, %v", b, err)
				}
				for _, name := range []string{v.file, v.input} {
					if b, err := os.ReadFile(name); err != nil || string(b) != "kept" {
						t.Errorf("%s: %q, %v", filepath.Base(name), b, err)
					}
				}
			})
		}
	}
}

// TestAttemptsAreReal makes the attempts that need no privilege and do no harm without any confinement: an attempt that
// fails by itself would prove nothing.
func TestAttemptsAreReal(t *testing.T) {
	real := []string{"change a mode", "change a mode by a descriptor", "change an owner", "change times", "watch files", "watch a folder",
		"be asked before others open", "empty an input", "empty a file by the mode 3", "empty a file by openat2", "truncate a file",
		"handle a file", "own a pipe's signals", "own a pipe's signals by structure", "choose a pipe's signal", "outlive the server",
		"change its personality", "write all disks' caches", "make a file in memory", "open a socket", "reach the network", "remove a file",
		"make a folder", "make a folder by openat", "reserve space", "reserve space unseen", "write a file without a name",
		"write a file and replace it"}
	said := imprison(t, confine.Layers{}, t.TempDir(), newVictim(t), real...)
	for _, name := range real {
		if !strings.Contains(said, "worked: "+name+"\n") {
			t.Errorf("%s did not work", name)
		}
	}
}

// TestPrisonerWithoutFilter shows that namespaces and Landlock alone protect other processes and the network.
func TestPrisonerWithoutFilter(t *testing.T) {
	layers := all
	layers.Seccomp = false
	said := imprison(t, layers, t.TempDir(), newVictim(t), "hold another", "signal another", "signal another's thread",
		"trace another", "limit another's processor time", "slow another", "read another's environment", "execute what it wrote",
		"reach the network", "gain privileges by executing")
	if said != "" {
		t.Error(said)
	}
}

// TestNothingOutlivesTheProgram starts a process in its own session that keeps the output open; no filter forbids it.
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
	// The pipe ends only when no process holds it any more.
	said, err := io.ReadAll(out)
	if err != nil || strings.TrimSpace(string(said)) != "started" {
		t.Errorf("%q, %v", said, err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

func TestOrphanDoesNotStart(t *testing.T) {
	// Close the server's end of the pipe before the process checks it.
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

// TestHiddenServerStillConfines runs as an ordinary user. To write the id maps of a namespace, a hidden server must
// show itself for a moment.
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
	// Copy the program so that an ordinary user may execute it.
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

// Only the refused layers are missing, each with the reason.
func TestDetectKeepsWhatTheKernelGrants(t *testing.T) {
	for _, refused := range []confine.Layers{
		{}, {Namespaces: true}, {Seccomp: true}, {Landlock: true}, {Namespaces: true, Landlock: true},
	} {
		got, report, err := confine.Detect(func(l confine.Layers) error {
			if l.Namespaces && refused.Namespaces || l.Landlock && refused.Landlock || l.Seccomp && refused.Seccomp {
				return errors.New("refused")
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		granted := []bool{got.Namespaces, got.Landlock, got.Seccomp}
		for i, missing := range []bool{refused.Namespaces, refused.Landlock, refused.Seccomp} {
			if l := report[i]; granted[i] == missing || l.InForce == missing || missing != (l.Detail == "refused") {
				t.Errorf("%+v refused: granted %v, %+v", refused, granted, l)
			}
		}
	}
}

func TestProgramThatDoesNotStart(t *testing.T) {
	refused := errors.New("refused")
	if _, _, err := confine.Detect(func(confine.Layers) error { return refused }); !errors.Is(err, refused) {
		t.Error(err)
	}
}
