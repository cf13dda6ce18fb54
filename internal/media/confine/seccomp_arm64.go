package confine

const auditArch = 0xc00000b7 // AUDIT_ARCH_AARCH64

// openCall is the call that openat replaces: no call has this number.
const openCall = 0xffffffff

// oldCalls are refused calls that only this processor has.
var oldCalls []uint32
