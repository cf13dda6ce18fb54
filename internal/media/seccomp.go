//go:build amd64 || arm64

package media

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

const seccompSupported = true

// refusedCalls are of no use to ffmpeg and of use to whoever took it over.
// Refused calls answer EPERM, so that a library probing for one goes on without.
var refusedCalls = []uint32{
	unix.SYS_SOCKET, unix.SYS_SOCKETPAIR, unix.SYS_CONNECT, unix.SYS_BIND, unix.SYS_LISTEN,
	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PIDFD_GETFD,
	unix.SYS_IO_URING_SETUP, unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD,
	unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY,
	unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT,
	unix.SYS_OPEN_TREE, unix.SYS_MOVE_MOUNT, unix.SYS_FSOPEN, unix.SYS_FSMOUNT,
	unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_KEXEC_LOAD, unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE,
}

const (
	auditArchAMD64 = 0xc000003e
	auditArchARM64 = 0xc00000b7
	x32Bit         = 0x40000000 // second numbering of the same calls on amd64

	seccompDataNr   = 0 // offsets in struct seccomp_data
	seccompDataArch = 4
)

// applySeccomp installs the filter on this thread; it survives exec. The caller
// has set no_new_privs.
func applySeccomp() error {
	filter := seccompProgram()
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&prog)), 0, 0)
}

// seccompProgram refuses refusedCalls, and everything made through another
// call table than the native one.
func seccompProgram() []unix.SockFilter {
	const (
		load  = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		atMin = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
		ret   = unix.BPF_RET | unix.BPF_K

		allow  = 0x7fff0000
		refuse = 0x00050000 | uint32(unix.EPERM)
	)
	arch := uint32(auditArchAMD64)
	if runtime.GOARCH == "arm64" {
		arch = auditArchARM64
	}
	program := []unix.SockFilter{
		{Code: load, K: seccompDataArch},
		{Code: equal, K: arch, Jt: 1},
		{Code: ret, K: refuse},
		{Code: load, K: seccompDataNr},
		{Code: atMin, K: x32Bit, Jt: uint8(len(refusedCalls)) + 1},
	}
	for i, call := range refusedCalls {
		program = append(program, unix.SockFilter{Code: equal, K: call, Jt: uint8(len(refusedCalls) - i)})
	}
	return append(program,
		unix.SockFilter{Code: ret, K: allow},
		unix.SockFilter{Code: ret, K: refuse})
}
