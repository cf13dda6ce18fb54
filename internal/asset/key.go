package asset

import (
	"errors"
	"slices"
	"strings"
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

// extensions are those that an asset may have, in the order shown to clients.
var extensions = []string{"mp4", "mov", "m4v", "webm", "m4a", "mp3", "wav", "aac"}

// ParseKey parses a key that a client sent.
func ParseKey(s string) (Key, error) {
	name, ok := strings.CutPrefix(s, keyPrefix)
	if !ok {
		return Key{}, errors.New("asset key: not under assets/")
	}
	return parseFileName(name)
}

// parseFileName parses "<sha256>.<ext>".
func parseFileName(name string) (Key, error) {
	hash, ext, ok := strings.Cut(name, ".")
	if !ok || !isHash(hash) || !slices.Contains(extensions, ext) {
		return Key{}, errors.New("asset key: not <sha256>.<ext>")
	}
	return Key{hash, ext}, nil
}

// ParseName parses the name of an asset, its key without the folder.
func ParseName(name string) (Key, error) { return parseFileName(name) }

// String is the key's form in the bucket.
func (k Key) String() string { return keyPrefix + k.fileName() }

// fileName is the key without its folder.
func (k Key) fileName() string { return k.SHA256 + "." + k.Ext }

// isHash reports whether s is 64 lower-case hex characters.
func isHash(s string) bool {
	if len(s) != hashChars {
		return false
	}
	for _, c := range []byte(s) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// Derived is where an object made from the asset's bytes is stored, for all extensions of
// these bytes.
func (k Key) Derived(name string) string { return "analysis/" + k.SHA256 + "/" + name }
