package asset

import (
	"slices"
	"strings"

	"cutroom/internal/base/fault"
)

// Key is a parsed asset key.
type Key struct {
	SHA256 string // 64 lower-case hex characters
	Ext    string // one of extensions: lower case, without a dot
}

const (
	keyPrefix = "assets/"
	hashChars = 64 // hex characters of a SHA-256
)

// extensions lists the extensions that an asset may have, in the order shown to clients.
var extensions = []string{"mp4", "mov", "m4v", "webm", "m4a", "mp3", "wav", "aac"}

// ErrInvalidKey is the error for a malformed key.
var ErrInvalidKey = fault.New(fault.Invalid, "invalid_asset_key")

// ParseKey parses a key that a client sent.
func ParseKey(s string) (Key, error) {
	name, ok := strings.CutPrefix(s, keyPrefix)
	if !ok {
		return Key{}, ErrInvalidKey
	}
	return ParseName(name)
}

// ParseName parses the name of an asset, <sha256>.<ext>: its key without the folder.
func ParseName(name string) (Key, error) {
	hash, ext, ok := strings.Cut(name, ".")
	if !ok || !isHash(hash) || !slices.Contains(extensions, ext) {
		return Key{}, ErrInvalidKey
	}
	return Key{hash, ext}, nil
}

// String is the key's form in the bucket.
func (k Key) String() string { return keyPrefix + k.fileName() }

// fileName is the key without its folder.
func (k Key) fileName() string { return k.SHA256 + "." + k.Ext }

// isHash reports whether s is 64 lower-case hex characters.
func isHash(s string) bool { return len(s) == hashChars && strings.Trim(s, "0123456789abcdef") == "" }

// Derived returns the key of an object made from the asset's bytes. Assets with the same bytes but different extensions
// share that object.
func (k Key) Derived(name string) string { return "analysis/" + k.SHA256 + "/" + name }
