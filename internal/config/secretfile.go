package config

import (
	"io"
	"os"
	"strings"
)

// fileSuffix turns the name of a secret key into the key for a file with its value.
const fileSuffix = "_FILE"

// maxSecretBytes is far more than a secret needs: a key file has a few KiB.
const maxSecretBytes = 64 << 10

// secretFile reads the file that <KEY>_FILE names. If <KEY>_FILE is blank, there is no value. A line break at
// the end of the file is not part of the value.
func (r *reader) secretFile(k Key) (value string, found bool) {
	path := r.given(k.Name + fileSuffix)
	switch {
	case path == "":
		return "", false
	case r.given(k.Name) != "":
		r.problem(k.Name, "must not be set together with "+k.Name+fileSuffix)
		return "", true
	}
	value, rule := readSecret(path)
	if rule != "" {
		r.problem(k.Name+fileSuffix, rule)
	}
	return value, true
}

func readSecret(path string) (value, rule string) {
	text, err := readFile(path, maxSecretBytes)
	if err != nil {
		return "", unreadable
	}
	value = strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r")
	switch {
	case len(text) > maxSecretBytes:
		return "", "must name a file of at most 64 KiB"
	case strings.TrimSpace(value) == "":
		return "", "must name a file that is not empty"
	}
	return value, ""
}

// unreadable is the rule for a file name that cannot be read.
const unreadable = "must name a file that can be read"

// readFile reads a file, but at most one byte more than limit.
func readFile(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit+1))
}

// readSecretFiles makes lookup return the content of secret files under the names of their keys. If a file has
// a problem, its key counts as given but stays unset.
func (r *reader) readSecretFiles() {
	fromFile := map[string]string{}
	for _, k := range Keys {
		if !k.Secret {
			continue
		}
		if value, found := r.secretFile(k); found {
			fromFile[k.Name] = value
		}
	}
	environment := r.lookup
	r.lookup = func(key string) (string, bool) {
		if value, found := fromFile[key]; found {
			return value, true
		}
		return environment(key)
	}
	r.broken = map[string]bool{}
	for name, value := range fromFile {
		r.broken[name] = value == ""
	}
}
