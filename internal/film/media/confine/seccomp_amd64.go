package confine

import "golang.org/x/sys/unix"

const auditArch = 0xc000003e // AUDIT_ARCH_X86_64

// openCall is the system call that openat replaces.
const openCall = unix.SYS_OPEN

// oldCalls are allowed calls that only this processor has.
var oldCalls = []uint32{
	unix.SYS_STAT, unix.SYS_LSTAT, unix.SYS_NEWFSTATAT, unix.SYS_ACCESS, unix.SYS_READLINK,
	unix.SYS_DUP2, unix.SYS_PIPE, unix.SYS_EVENTFD, unix.SYS_POLL, unix.SYS_SELECT,
	unix.SYS_EPOLL_CREATE, unix.SYS_EPOLL_WAIT, unix.SYS_GETPGRP, unix.SYS_TIME, unix.SYS_ALARM, unix.SYS_PAUSE, unix.SYS_ARCH_PRCTL,
}
