package confine

import "golang.org/x/sys/unix"

const auditArch = 0xc000003e // AUDIT_ARCH_X86_64

// openCall is the call that openat replaces.
const openCall = unix.SYS_OPEN

// oldCalls are refused calls that only this processor has. truncate64 is not among
// them: no processor with 64 bits has it.
var oldCalls = []uint32{
	unix.SYS_FORK, unix.SYS_VFORK, unix.SYS_CHMOD, unix.SYS_CHOWN, unix.SYS_LCHOWN, unix.SYS_UTIME, unix.SYS_UTIMES, unix.SYS_FUTIMESAT,
	unix.SYS_INOTIFY_INIT, unix.SYS_MKNOD, unix.SYS_IOPL, unix.SYS_IOPERM, unix.SYS_MODIFY_LDT, unix.SYS_USELIB,
}
