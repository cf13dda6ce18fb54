//go:build amd64 || arm64

package confine

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

const seccompSupported = true

// refusedCalls are useless to a decoder and useful to an attacker who has taken it
// over. They answer EPERM, so that a library that tries one goes on without it.
var refusedCalls = []uint32{
	// Sockets.
	unix.SYS_SOCKET, unix.SYS_SOCKETPAIR, unix.SYS_CONNECT, unix.SYS_BIND, unix.SYS_LISTEN,
	// Other processes, and what a process inherits from its session or group.
	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_KCMP,
	unix.SYS_KILL, unix.SYS_TKILL, unix.SYS_RT_SIGQUEUEINFO, unix.SYS_RT_TGSIGQUEUEINFO,
	unix.SYS_SETPRIORITY, unix.SYS_IOPRIO_SET, unix.SYS_SCHED_SETSCHEDULER, unix.SYS_SCHED_SETPARAM,
	unix.SYS_SCHED_SETATTR, unix.SYS_SCHED_SETAFFINITY, unix.SYS_MIGRATE_PAGES, unix.SYS_MOVE_PAGES,
	unix.SYS_SETSID, unix.SYS_SETPGID, unix.SYS_EXECVEAT, unix.SYS_PERSONALITY,
	// Identities, for a program that runs without a user namespace.
	unix.SYS_SETUID, unix.SYS_SETGID, unix.SYS_SETREUID, unix.SYS_SETREGID, unix.SYS_SETRESUID, unix.SYS_SETRESGID,
	unix.SYS_SETFSUID, unix.SYS_SETFSGID, unix.SYS_SETGROUPS, unix.SYS_CAPSET,
	// Memory that no limit counts.
	unix.SYS_MEMFD_CREATE, unix.SYS_SHMGET, unix.SYS_SHMAT, unix.SYS_SEMGET, unix.SYS_MSGGET, unix.SYS_MQ_OPEN,
	// Metadata of files, which Landlock has no rules for, and truncation by path,
	// which it knows from version 3 on.
	unix.SYS_FCHMOD, unix.SYS_FCHMODAT, unix.SYS_FCHOWN, unix.SYS_FCHOWNAT, unix.SYS_UTIMENSAT,
	unix.SYS_SETXATTR, unix.SYS_LSETXATTR, unix.SYS_FSETXATTR,
	unix.SYS_REMOVEXATTR, unix.SYS_LREMOVEXATTR, unix.SYS_FREMOVEXATTR, unix.SYS_TRUNCATE,
	unix.SYS_INOTIFY_INIT1, unix.SYS_INOTIFY_ADD_WATCH, unix.SYS_FANOTIFY_INIT, unix.SYS_FANOTIFY_MARK,
	unix.SYS_NAME_TO_HANDLE_AT, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_SYNC, unix.SYS_SYNCFS, unix.SYS_QUOTACTL,
	// Parts of the kernel with a record of holes.
	unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY,
	unix.SYS_IO_SETUP, unix.SYS_SPLICE, unix.SYS_TEE, unix.SYS_VMSPLICE, unix.SYS_REMAP_FILE_PAGES, unix.SYS_LOOKUP_DCOOKIE,
	// The system.
	unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT,
	unix.SYS_KEXEC_LOAD, unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE, unix.SYS_REBOOT,
	unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_ACCT, unix.SYS_SYSLOG, unix.SYS_VHANGUP, unix.SYS_MKNODAT,
	unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME, unix.SYS_SETTIMEOFDAY, unix.SYS_ADJTIMEX, unix.SYS_CLOCK_SETTIME, unix.SYS_CLOCK_ADJTIME,
}

// newCalls are the only ones allowed of the calls from firstNewCall on, where all
// processors share their numbers. The others answer ENOSYS, as on an older kernel,
// among them pidfd_open, io_uring_setup, clone3 (whose arguments a filter cannot
// see: the C library goes back to clone), openat2, fchmodat2, setxattrat and those
// that future kernels bring.
var newCalls = []uint32{
	unix.SYS_CLOSE_RANGE, unix.SYS_FACCESSAT2, unix.SYS_EPOLL_PWAIT2, unix.SYS_FUTEX_WAITV,
	453, 454, 455, 456, // map_shadow_stack, futex_wake, futex_wait, futex_requeue
	462, // mseal
}

const firstNewCall = 424

const (
	x32Bit = 0x40000000 // second numbering of the same calls on amd64

	// Offsets in struct seccomp_data. Arguments are 64 bits wide, and both
	// processors keep the lower half first; the kernel uses no more of those that
	// are judged here.
	dataNr, dataArch, dataArg0 = 0, 4, 16

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
	filter := filterProgram()
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&prog)), 0, 0)
}

// filterProgram is the filter of this process. It refuses every call made through
// another call table than the native one.
func filterProgram() []unix.SockFilter {
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
	for _, r := range argumentRules() {
		program = append(program, r.compile()...)
	}
	program = append(program, unix.SockFilter{Code: atMin, K: firstNewCall, Jt: 1}, unix.SockFilter{Code: ret, K: allow})
	for _, call := range newCalls {
		program = append(program, unix.SockFilter{Code: equal, K: call, Jf: 1}, unix.SockFilter{Code: ret, K: allow})
	}
	return append(program, unix.SockFilter{Code: ret, K: unsupported})
}

// argumentRule judges a call by the bits of one argument.
type argumentRule struct {
	call     uint32
	argument uint32 // 0 is the first
	bits     uint32
	values   []uint32
	allowed  bool // the values are allowed and all others refused, or the other way round
}

// Calls whose arguments decide.
func argumentRules() []argumentRule {
	const (
		all               = 0xffffffff
		sharedWithoutFile = unix.MAP_SHARED | unix.MAP_ANONYMOUS
		getTermios2       = 0x802c542a // TCGETS2
		nameMemory        = 0x53564d41 // PR_SET_VMA
	)
	// With the access mode 3 an open file can be neither read nor written, so
	// Landlock asks for no right, and O_TRUNC empties it all the same. Reading
	// and O_TRUNC need no right to truncate before its version 3.
	access, truncate := uint32(unix.O_ACCMODE), uint32(unix.O_TRUNC)
	emptying := []uint32{access, access | truncate, truncate}
	return []argumentRule{
		{unix.SYS_CLONE, 0, unix.CLONE_THREAD, []uint32{unix.CLONE_THREAD}, true}, // threads, no processes
		{unix.SYS_PRLIMIT64, 0, all, []uint32{0}, true},                           // its own limits
		{unix.SYS_MMAP, 3, sharedWithoutFile, []uint32{sharedWithoutFile}, false}, // memory that no limit counts
		{unix.SYS_OPENAT, 2, access | truncate, emptying, false},
		{openCall, 1, access | truncate, emptying, false},
		// Signals to others by way of a file, and being told, or asked, about files.
		{unix.SYS_FCNTL, 1, all, []uint32{unix.F_SETOWN, unix.F_SETOWN_EX, unix.F_SETSIG, unix.F_NOTIFY, unix.F_SETLEASE}, false},
		{unix.SYS_IOCTL, 1, all, []uint32{unix.TCGETS, getTermios2, unix.TIOCGWINSZ, unix.TIOCINQ}, true},
		// Not to outlive the server, above all.
		{unix.SYS_PRCTL, 0, all, []uint32{unix.PR_SET_NAME, unix.PR_GET_NAME, unix.PR_GET_DUMPABLE, unix.PR_GET_PDEATHSIG,
			unix.PR_GET_SECCOMP, unix.PR_CAPBSET_READ, nameMemory}, true},
		{unix.SYS_TGKILL, 0, all, []uint32{uint32(os.Getpid())}, true}, // abort
	}
}

// compile writes the rule for a filter that holds the number of the call.
func (r argumentRule) compile() []unix.SockFilter {
	listed, other := uint32(allow), refuse
	if !r.allowed {
		listed, other = other, listed
	}
	program := []unix.SockFilter{
		{Code: equal, K: r.call, Jf: uint8(3 + 2*len(r.values))},
		{Code: load, K: dataArg0 + 8*r.argument},
		{Code: mask, K: r.bits},
	}
	for _, v := range r.values {
		program = append(program, unix.SockFilter{Code: equal, K: v, Jf: 1}, unix.SockFilter{Code: ret, K: listed})
	}
	return append(program, unix.SockFilter{Code: ret, K: other})
}
