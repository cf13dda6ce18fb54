package media_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"cutroom/internal/film/media"
)

// refuseEnv names what the test's kernel refuses: "namespaces" or "landlock".
const refuseEnv = "CUTROOM_MEDIA_TEST_REFUSE"

// TestConfinementDegrades runs passes while the kernel refuses a layer. The refusal is reported, the other layers hold,
// and the pass succeeds.
func TestConfinementDegrades(t *testing.T) {
	t.Parallel()
	r := newRunner(t)
	inForce(t, r, "namespaces")
	inForce(t, r, "landlock")
	inForce(t, r, "seccomp")
	for refused, want := range map[string]string{
		"namespaces": "missing: namespaces\nencode ok\nread outside failed\n", // Landlock stands
		"landlock":   "missing: landlock\nencode ok\nread outside ok\n",
	} {
		t.Run(refused, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
			cmd.Env = append(os.Environ(), roleEnv+"=poor kernel", refuseEnv+"="+refused)
			if refused == "namespaces" {
				// Use a namespace in which the process may forbid further ones.
				cmd.SysProcAttr = &syscall.SysProcAttr{
					Cloneflags:  syscall.CLONE_NEWUSER,
					UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
					GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
				}
			}
			if out, err := cmd.CombinedOutput(); err != nil || string(out) != want {
				t.Errorf("%v, got\n%swant\n%s", err, out, want)
			}
		})
	}
}

// poorKernelMain makes the kernel refuse one layer and reports the results of passes.
func poorKernelMain() {
	switch os.Getenv(refuseEnv) {
	case "namespaces":
		must(os.WriteFile("/proc/sys/user/max_user_namespaces", []byte("0"), 0))
	case "landlock":
		// Filters bind the thread that calls exec: install the filter, then exec this program.
		runtime.LockOSThread()
		must(unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		must(refuseCall(unix.SYS_LANDLOCK_CREATE_RULESET))
		must(os.Setenv(refuseEnv, "already"))
		must(unix.Exec("/proc/self/exe", os.Args, os.Environ()))
	}
	r, err := media.New(media.Config{})
	must(err)
	layers, err := r.Confinement(context.Background())
	must(err)
	for _, l := range layers {
		if !l.InForce {
			fmt.Println("missing:", l.Name)
		}
	}
	dir, err := os.MkdirTemp("", "degrade")
	must(err)
	try := func(what string, args ...string) {
		result := "ok"
		if _, err := r.Encode(context.Background(), media.Pass{Name: what, Dir: dir, Args: args, Timeout: time.Minute}); err != nil {
			result = "failed"
		}
		fmt.Println(what, result)
	}
	try("encode", tone(time.Second, "out.wav")...)
	try("read outside", "-f", "u8", "-ar", "8000", "-i", "file:/etc/passwd", "passwd.wav")
	must(os.RemoveAll(dir))
	os.Exit(0)
}

func must(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// refuseCall makes one system call fail with EOPNOTSUPP from now on.
func refuseCall(call uint32) error {
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: call, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0x00050000 | uint32(unix.EOPNOTSUPP)},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0x7fff0000},
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&prog)), 0, 0)
}
