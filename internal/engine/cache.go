package engine

import (
	"context"
	"strings"
)

// PartCache keeps intermediate results between renders. The content of a key never changes. Implementations are safe
// for concurrent use. A failing cache only costs time: the engine logs the error and makes the part itself.
type PartCache interface {
	// Get makes the part appear at dst, which does not exist yet, and reports whether the cache had it. The cache may
	// share the file at dst: the caller may read and remove it, but must not write to it.
	Get(ctx context.Context, scope, key, dst string) (bool, error)
	// Put keeps a copy of the finished file src. It may link the file, because nobody modifies it afterwards.
	Put(ctx context.Context, scope, key, src string) error
}

// The kinds of parts that machines share. A key begins with its kind.
const (
	kindVideo   = "video"
	kindInfo    = "info"
	kindThreads = "threads"
)

// Shared reports whether machines share the part under a key: those that are expensive to make and cheap to transfer,
// and the thread plan, which assistants need.
func Shared(key string) bool {
	kind, _, _ := strings.Cut(key, "-")
	return kind == kindVideo || kind == kindInfo || kind == kindThreads
}
