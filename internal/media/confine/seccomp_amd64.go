package confine

import "golang.org/x/sys/unix"

const auditArch = 0xc000003e // AUDIT_ARCH_X86_64

// oldCalls are what this processor has beside the calls of all.
var oldCalls = []uint32{unix.SYS_FORK, unix.SYS_VFORK}
