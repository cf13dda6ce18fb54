package engine

import (
	"context"
	"strings"
)

// PartCache keeps intermediate results between renders. A key stands for one
// content for ever: whoever puts the same key again puts the same bytes.
// Implementations are safe for concurrent use.
//
// A cache that fails costs time and nothing else: the engine logs the error and
// makes the part anew.
type PartCache interface {
	// Get makes the part appear at dst, which does not exist yet, and reports
	// whether it was there. The file at dst may be shared with the cache: it is
	// never written to, only read and removed.
	Get(ctx context.Context, scope, key, dst string) (bool, error)
	// Put keeps a copy of the finished file src, which is not modified
	// afterwards. It may be linked instead of copied.
	Put(ctx context.Context, scope, key, src string) error
}

// The kinds of parts that machines share begin their keys. A thread plan's is older than
// its name, and stays, because cached plans have it.
const (
	kindVideo   = "video"
	kindInfo    = "info"
	kindThreads = "staff"
)

// Shared reports whether machines share the part under a key: what is expensive to make
// and cheap to transfer, and the thread plan, which assistants must know. Decoded sound
// is neither.
func Shared(key string) bool {
	kind, _, _ := strings.Cut(key, "-")
	return kind == kindVideo || kind == kindInfo || kind == kindThreads
}
