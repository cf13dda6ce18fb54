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

// readSecretFiles makes lookup return the content of the files that <KEY>_FILE names, under the names of their keys. A
// line break at the end of a file is not part of the value. Setting a key of which one of these is wrong is skipped.
func (r *reader) readSecretFiles() {
	fromFile := map[string]string{}
	for _, k := range Keys {
		if !k.Secret {
			continue
		}
		path := r.given(k.Name + fileSuffix)
		if path == "" {
			continue
		}
		value, rule := readSecret(path)
		switch {
		case r.given(k.Name) != "":
			r.problem(k.Name, "must not be set together with "+k.Name+fileSuffix)
		case rule != "":
			r.problem(k.Name+fileSuffix, rule)
		default:
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
