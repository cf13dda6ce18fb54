// The system call filter of a confined process: the calls that ffmpeg needs, rules on their arguments, and the BPF
// program made from both.

package confine

import (
	"os"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// allowedCalls are the calls that ffmpeg needs: the calls it made in traces on Debian 12 and 13 (about 45 of these),
// and calls that the C library and codec libraries may also make. Rules on arguments, Landlock and limits restrict what
// an allowed call may do. Other calls return EPERM, so that a library that tries one continues without it: sockets,
// other processes, shared memory, file metadata, watches, truncation by path, io_uring and so on. The program can
// create no folders, reserve no space, and neither remove nor replace a file, so the server sees, in one folder,
// everything that the program has written.
var allowedCalls = []uint32{
	// Memory.
	unix.SYS_BRK, unix.SYS_MUNMAP, unix.SYS_MPROTECT, unix.SYS_MREMAP, unix.SYS_MADVISE, unix.SYS_MSYNC, unix.SYS_MINCORE,
	unix.SYS_MLOCK, unix.SYS_MLOCK2, unix.SYS_MUNLOCK, unix.SYS_MBIND, unix.SYS_GET_MEMPOLICY, unix.SYS_SET_MEMPOLICY,
	// Files and folders, as far as Landlock permits.
	unix.SYS_READ, unix.SYS_WRITE, unix.SYS_READV, unix.SYS_WRITEV, unix.SYS_PREAD64, unix.SYS_PWRITE64,
	unix.SYS_PREADV, unix.SYS_PWRITEV, unix.SYS_PREADV2, unix.SYS_PWRITEV2, unix.SYS_CLOSE, unix.SYS_LSEEK,
	unix.SYS_FSTAT, unix.SYS_STATX, unix.SYS_STATFS, unix.SYS_FSTATFS, unix.SYS_FACCESSAT, unix.SYS_READLINKAT,
	unix.SYS_GETDENTS64, unix.SYS_GETCWD, unix.SYS_CHDIR, unix.SYS_FCHDIR, unix.SYS_UMASK,
	unix.SYS_FTRUNCATE, unix.SYS_FADVISE64, unix.SYS_READAHEAD, unix.SYS_FSYNC, unix.SYS_FDATASYNC, unix.SYS_FLOCK,
	unix.SYS_DUP, unix.SYS_DUP3, unix.SYS_PIPE2, unix.SYS_EVENTFD2,
	unix.SYS_PPOLL, unix.SYS_PSELECT6, unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CTL, unix.SYS_EPOLL_PWAIT,
	// Its own threads and signals.
	unix.SYS_FUTEX, unix.SYS_SET_ROBUST_LIST, unix.SYS_GET_ROBUST_LIST, unix.SYS_SET_TID_ADDRESS, unix.SYS_RSEQ, unix.SYS_MEMBARRIER,
	unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_RT_SIGPENDING, unix.SYS_RT_SIGTIMEDWAIT,
	unix.SYS_RT_SIGSUSPEND, unix.SYS_SIGALTSTACK, unix.SYS_RESTART_SYSCALL, unix.SYS_EXECVE, unix.SYS_EXIT, unix.SYS_EXIT_GROUP,
	unix.SYS_SCHED_YIELD, unix.SYS_SCHED_GETAFFINITY, unix.SYS_SCHED_GETPARAM, unix.SYS_SCHED_GETSCHEDULER,
	unix.SYS_SCHED_GET_PRIORITY_MAX, unix.SYS_SCHED_GET_PRIORITY_MIN, unix.SYS_GETPRIORITY, unix.SYS_GETCPU,
	// Time.
	unix.SYS_CLOCK_GETTIME, unix.SYS_CLOCK_GETRES, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_NANOSLEEP, unix.SYS_GETTIMEOFDAY, unix.SYS_TIMES,
	unix.SYS_TIMER_CREATE, unix.SYS_TIMER_SETTIME, unix.SYS_TIMER_GETTIME, unix.SYS_TIMER_GETOVERRUN, unix.SYS_TIMER_DELETE,
	unix.SYS_SETITIMER, unix.SYS_GETITIMER,
	// Its identity and its limits.
	unix.SYS_GETPID, unix.SYS_GETTID, unix.SYS_GETPPID, unix.SYS_GETUID, unix.SYS_GETEUID, unix.SYS_GETGID, unix.SYS_GETEGID,
	unix.SYS_GETPGID, unix.SYS_GETSID, unix.SYS_GETGROUPS, unix.SYS_CAPGET, unix.SYS_GETRUSAGE, unix.SYS_GETRLIMIT, unix.SYS_SETRLIMIT,
	unix.SYS_SYSINFO, unix.SYS_UNAME, unix.SYS_GETRANDOM,
}

// newCalls are allowed as well. From firstNewCall on, calls have the same numbers on all processors. Those that are not
// listed return ENOSYS, as on an older kernel. They include clone3 and openat2, whose arguments a filter cannot see
// (the C library falls back to clone and openat), and the calls of future kernels.
var newCalls = []uint32{
	unix.SYS_CLOSE_RANGE, unix.SYS_FACCESSAT2, unix.SYS_EPOLL_PWAIT2, unix.SYS_FUTEX_WAITV,
	453, 454, 455, 456, // map_shadow_stack, futex_wake, futex_wait, futex_requeue
	462, // mseal
}

const firstNewCall = 424

const (
	x32Bit = 0x40000000 // second numbering of the same calls on amd64

	// Offsets in struct seccomp_data. Arguments are 64 bits wide, and both processors store the lower half first. The
	// kernel uses only that half of the arguments checked here.
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

// applySeccomp installs the filter on this thread; it survives exec. The caller has set no_new_privs.
func applySeccomp() error {
	filter := filterProgram()
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&prog)), 0, 0)
}

// filterProgram returns the filter for this process. It refuses calls through any call table but the native one.
func filterProgram() []unix.SockFilter {
	program := []unix.SockFilter{
		{Code: load, K: dataArch},
		{Code: equal, K: auditArch, Jt: 1},
		{Code: ret, K: refuse},
		{Code: load, K: dataNr},
		{Code: atMin, K: x32Bit, Jf: 1},
		{Code: ret, K: refuse},
	}
	for _, r := range argumentRules() {
		program = append(program, r.compile()...)
	}
	for _, call := range slices.Concat(allowedCalls, oldCalls, newCalls) {
		program = append(program, unix.SockFilter{Code: equal, K: call, Jf: 1}, unix.SockFilter{Code: ret, K: allow})
	}
	return append(program,
		unix.SockFilter{Code: atMin, K: firstNewCall, Jf: 1}, unix.SockFilter{Code: ret, K: unsupported},
		unix.SockFilter{Code: ret, K: refuse})
}

// argumentRule allows or refuses a call by the bits of one argument.
type argumentRule struct {
	call     uint32
	argument uint32 // 0 is the first
	bits     uint32
	values   []uint32
	allowed  bool // true: allow only the values; false: refuse only the values
}

// Rules for calls that depend on an argument.
func argumentRules() []argumentRule {
	const (
		all               = 0xffffffff
		sharedWithoutFile = unix.MAP_SHARED | unix.MAP_ANONYMOUS
		getTermios2       = 0x802c542a // TCGETS2
		nameMemory        = 0x53564d41 // PR_SET_VMA
	)
	// With access mode 3 an open file can be neither read nor written, so Landlock requires no right, but O_TRUNC still
	// empties the file. Before version 3, Landlock also allows O_TRUNC together with reading.
	access, truncate := uint32(unix.O_ACCMODE), uint32(unix.O_TRUNC)
	refusedFlags := []uint32{access, access | truncate, truncate}
	// Refuse files without a name, because they could not be counted.
	nameless := uint32(unix.O_TMPFILE &^ unix.O_DIRECTORY)
	for mode := range access + 1 {
		refusedFlags = append(refusedFlags, nameless|mode, nameless|mode|truncate)
	}
	return []argumentRule{
		{unix.SYS_CLONE, 0, unix.CLONE_THREAD, []uint32{unix.CLONE_THREAD}, true}, // threads, no processes
		{unix.SYS_PRLIMIT64, 0, all, []uint32{0}, true},                           // its own limits
		{unix.SYS_MMAP, 3, sharedWithoutFile, []uint32{sharedWithoutFile}, false}, // memory that no limit counts
		{unix.SYS_OPENAT, 2, access | truncate | nameless, refusedFlags, false},
		{openCall, 1, access | truncate | nameless, refusedFlags, false},
		// Refuse signals to other processes through a file, and file notifications and leases.
		{unix.SYS_FCNTL, 1, all, []uint32{unix.F_SETOWN, unix.F_SETOWN_EX, unix.F_SETSIG, unix.F_NOTIFY, unix.F_SETLEASE}, false},
		{unix.SYS_IOCTL, 1, all, []uint32{unix.TCGETS, getTermios2, unix.TIOCGWINSZ, unix.TIOCINQ}, true},
		// In particular, refuse PR_SET_PDEATHSIG: the program must not outlive the server.
		{unix.SYS_PRCTL, 0, all, []uint32{unix.PR_SET_NAME, unix.PR_GET_NAME, unix.PR_GET_DUMPABLE, unix.PR_GET_PDEATHSIG,
			unix.PR_GET_SECCOMP, unix.PR_CAPBSET_READ, nameMemory}, true},
		{unix.SYS_TGKILL, 0, all, []uint32{uint32(os.Getpid())}, true}, // abort
	}
}

// compile returns the rule as instructions of a filter that has loaded the number of the call.
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
