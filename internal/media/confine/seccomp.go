//go:build amd64 || arm64

package confine

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

const seccompSupported = true

// refusedCalls are of no use to a decoder and of use to whoever took it over.
// They answer EPERM, so that a library probing for one goes on without.
var refusedCalls = []uint32{
	unix.SYS_SOCKET, unix.SYS_SOCKETPAIR, unix.SYS_CONNECT, unix.SYS_BIND, unix.SYS_LISTEN,
	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PROCESS_MADVISE, unix.SYS_KCMP,
	unix.SYS_PIDFD_OPEN, unix.SYS_PIDFD_GETFD, unix.SYS_PIDFD_SEND_SIGNAL,
	unix.SYS_KILL, unix.SYS_TKILL, unix.SYS_RT_SIGQUEUEINFO, unix.SYS_RT_TGSIGQUEUEINFO,
	unix.SYS_SETPRIORITY, unix.SYS_IOPRIO_SET, unix.SYS_SCHED_SETSCHEDULER, unix.SYS_SCHED_SETPARAM,
	unix.SYS_SCHED_SETATTR, unix.SYS_SCHED_SETAFFINITY, unix.SYS_SETSID,
	unix.SYS_EXECVEAT, unix.SYS_MEMFD_CREATE, unix.SYS_MEMFD_SECRET,
	unix.SYS_SHMGET, unix.SYS_SHMAT, unix.SYS_SEMGET, unix.SYS_MSGGET, unix.SYS_MQ_OPEN,
	unix.SYS_IO_URING_SETUP, unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD,
	unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY,
	unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT,
	unix.SYS_OPEN_TREE, unix.SYS_MOVE_MOUNT, unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK,
	unix.SYS_MOUNT_SETATTR, unix.SYS_OPEN_BY_HANDLE_AT,
	unix.SYS_KEXEC_LOAD, unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE,
}

const (
	x32Bit = 0x40000000 // second numbering of the same calls on amd64

	// Offsets in struct seccomp_data. Arguments are 64 bits wide, and both
	// processors keep the lower half first.
	dataNr, dataArch, dataArg0, dataArg3 = 0, 4, 16, 40

	load  = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
	mask  = unix.BPF_ALU | unix.BPF_AND | unix.BPF_K
	equal = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
	atMin = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
	ret   = unix.BPF_RET | unix.BPF_K

	allow       = 0x7fff0000
	refuse      = 0x00050000 | uint32(unix.EPERM)
	unsupported = 0x00050000 | uint32(unix.ENOSYS)
)

// applySeccomp installs the filter on this thread; it survives exec. The caller
// has set no_new_privs.
func applySeccomp() error {
	filter := filterProgram(uint32(os.Getpid()))
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&prog)), 0, 0)
}

// filterProgram is the filter of the process self. Everything made through
// another call table than the native one is refused.
func filterProgram(self uint32) []unix.SockFilter {
	const sharedWithoutFile = unix.MAP_SHARED | unix.MAP_ANONYMOUS
	program := []unix.SockFilter{
		{Code: load, K: dataArch},
		{Code: equal, K: auditArch, Jt: 1},
		{Code: ret, K: refuse},
		{Code: load, K: dataNr},
		{Code: atMin, K: x32Bit, Jf: 1},
		{Code: ret, K: refuse},
	}
	for _, call := range append(oldCalls, refusedCalls...) {
		program = append(program, unix.SockFilter{Code: equal, K: call, Jf: 1}, unix.SockFilter{Code: ret, K: refuse})
	}
	// Its arguments lie in memory, where a filter cannot look: the C library
	// goes back to clone.
	program = append(program, unix.SockFilter{Code: equal, K: unix.SYS_CLONE3, Jf: 1}, unix.SockFilter{Code: ret, K: unsupported})
	// judged allows a call whose argument, as far as it is masked, has the value,
	// or has it not.
	judged := func(call, arg, bits, value uint32, allowed bool) {
		is, isNot := uint32(allow), refuse
		if !allowed {
			is, isNot = isNot, is
		}
		program = append(program,
			unix.SockFilter{Code: equal, K: call, Jf: 5},
			unix.SockFilter{Code: load, K: arg},
			unix.SockFilter{Code: mask, K: bits},
			unix.SockFilter{Code: equal, K: value, Jf: 1},
			unix.SockFilter{Code: ret, K: is},
			unix.SockFilter{Code: ret, K: isNot})
	}
	const all = 0xffffffff
	judged(unix.SYS_CLONE, dataArg0, unix.CLONE_THREAD, unix.CLONE_THREAD, true) // threads, no processes
	judged(unix.SYS_PRLIMIT64, dataArg0, all, 0, true)                           // its own limits
	judged(unix.SYS_TGKILL, dataArg0, all, self, true)                           // abort
	judged(unix.SYS_MMAP, dataArg3, sharedWithoutFile, sharedWithoutFile, false) // memory that no limit counts
	return append(program, unix.SockFilter{Code: ret, K: allow})
}
