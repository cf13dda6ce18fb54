package confine

const auditArch = 0xc00000b7 // AUDIT_ARCH_AARCH64

// oldCalls are what this processor has beside the calls of all.
var oldCalls []uint32
