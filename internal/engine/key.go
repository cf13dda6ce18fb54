package engine

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"strconv"
)

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

// decimal formats a number with fixed decimals, because ffmpeg does not accept exponents
// everywhere.
func decimal(f float64) string { return strconv.FormatFloat(f, 'f', 9, 64) }

// printed returns the number that a reader of decimal(f) gets.
func printed(f float64) float64 {
	f, _ = strconv.ParseFloat(decimal(f), 64) // decimal always prints a number
	return f
}
