package confine

import "golang.org/x/sys/unix"

const auditArch = 0xc00000b7 // AUDIT_ARCH_AARCH64

// openCall is the call that openat replaces; this processor has none, so no call has this number.
const openCall = 0xffffffff

// oldCalls are allowed calls that have this name only on this processor.
var oldCalls = []uint32{unix.SYS_FSTATAT}
