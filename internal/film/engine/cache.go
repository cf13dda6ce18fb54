package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"strconv"
	"strings"
)

// PartCache keeps intermediate results between renders. The content stored under a key never changes. Implementations
// are safe for concurrent use. A failing cache only costs time: the engine logs the error and makes the part itself.
type PartCache interface {
	// Get makes the part appear at dst, which does not exist yet, and reports whether the cache had it. The cache may
	// share the file at dst: the caller may read and remove it, but must not write to it.
	Get(ctx context.Context, scope, key, dst string) (bool, error)
	// Put keeps a copy of the finished file src. It may link the file, because nobody modifies it afterwards.
	Put(ctx context.Context, scope, key, src string) error
}

// The kinds of parts that machines share. A key begins with its kind.
const (
	kindVideo = "video"
	kindInfo  = "info"
)

// Shared reports whether machines share the part under a key: those that are expensive to make and cheap to transfer.
func Shared(key string) bool {
	kind, _, _ := strings.Cut(key, "-")
	return kind == kindVideo || kind == kindInfo
}

// key builds a cache key: the hash of named values in a fixed order.
type key struct {
	kind string
	hash hash.Hash
}

func newKey(kind string) key { return key{kind, sha256.New()} }

func (k key) add(name string, value any) key {
	fmt.Fprintf(k.hash, "%s=%v\n", name, value)
	return k
}

// String is the kind and 40 hex digits of the hash.
func (k key) String() string {
	return k.kind + "-" + hex.EncodeToString(k.hash.Sum(nil)[:20])
}

// decimal formats a number with fixed decimals, because ffmpeg does not accept exponents everywhere.
func decimal(f float64) string { return strconv.FormatFloat(f, 'f', 9, 64) }

// printed returns the number that a reader of decimal(f) gets.
func printed(f float64) float64 {
	f, _ = strconv.ParseFloat(decimal(f), 64) // decimal always prints a number
	return f
}
