// Where values come from: the environment, an .env file, and the files that <KEY>_FILE names. Unknown and misspelt keys
// become warnings.

package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
	"github.com/joho/godotenv"
)

// envFile is read from the working directory if it exists.
const envFile = ".env"

// LoadEnvironment loads the configuration of this process from the environment and from the file at path. If path is
// "", it uses .env in the working directory, if that exists. A variable in the environment, even a blank one, overrides
// the file. An unreadable or malformed file is reported as a problem.
func LoadEnvironment(path string) (Config, error) {
	cfg, err := loadWithFile(path, os.LookupEnv)
	if err == nil {
		cfg.Warnings = append(cfg.Warnings, misspelt(os.Environ())...)
	}
	return cfg, err
}

// shortestGuess is the length of the shortest key whose misspellings are reported. Too many ordinary variables resemble
// shorter ones.
const shortestGuess = 6

// misspelt returns warnings for variables whose names differ from a key by one or two letters. The environment has the
// form name=value.
func misspelt(environment []string) (warnings []string) {
	for _, variable := range slices.Sorted(slices.Values(environment)) {
		name, _, _ := strings.Cut(variable, "=")
		if !keyName.MatchString(name) || isKey(name) {
			continue
		}
		for _, known := range names {
			if len(known) >= shortestGuess && levenshtein.ComputeDistance(name, known) <= 2 {
				warnings = append(warnings, fmt.Sprintf("%s is not a key of this service; did you mean %s?", name, known))
				break
			}
		}
	}
	return warnings
}

func loadWithFile(path string, environment func(string) (string, bool)) (Config, error) {
	optional := path == ""
	path = cmp.Or(path, envFile)
	values, fileErr := readEnvFile(path, optional)
	cfg, err := loadFrom(reader{incomplete: fileErr != nil, lookup: func(key string) (string, bool) {
		if value, ok := environment(key); ok {
			return value, true
		}
		value, ok := values[key]
		return value, ok
	}})
	if err = errors.Join(fileErr, err); err != nil {
		return Config{Log: cfg.Log}, err
	}
	cfg.Warnings = append(cfg.Warnings, unknownKeys(path, values)...)
	for key, value := range values {
		if _, set := environment(key); isTracingKey(key) && !set {
			err = errors.Join(err, os.Setenv(key, value)) // for the OpenTelemetry SDK
		}
	}
	return cfg, err
}

// keyName matches names of variables. Anything else in the file may be part of an unquoted value, so warnings do not
// repeat it.
var keyName = regexp.MustCompile(`^[A-Z][A-Z0-9_]{0,63}$`)

// names lists all variables that are read: the keys, and <KEY>_FILE of every secret.
var names = func() (names []string) {
	for _, k := range Keys {
		names = append(names, k.Name)
		if k.Secret {
			names = append(names, k.Name+fileSuffix)
		}
	}
	return names
}()

func isKey(name string) bool {
	return slices.Contains(names, name)
}

// isTracingKey reports whether the OpenTelemetry SDK may read a key.
func isTracingKey(name string) bool { return strings.HasPrefix(name, "OTEL_") }

// unknownKeys returns warnings for keys in the file that are not read, because most of them are misspelt.
func unknownKeys(path string, values map[string]string) (warnings []string) {
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if isKey(key) || isTracingKey(key) {
			continue
		}
		if !keyName.MatchString(key) {
			key = "a name"
		}
		warnings = append(warnings, fmt.Sprintf("%s sets %s, which is not a key of this service", path, key))
	}
	return warnings
}

// maxEnvFileBytes is far more than all keys together need.
const maxEnvFileBytes = 1 << 20

func readEnvFile(path string, optional bool) (map[string]string, error) {
	text, err := readFile(path, maxEnvFileBytes)
	missing := errors.Is(err, fs.ErrNotExist)
	switch {
	case missing && optional:
		return nil, nil
	case missing:
		return nil, &Problem{Key: path, Rule: "does not exist"}
	case err != nil:
		return nil, &Problem{Key: path, Rule: "cannot be read"}
	case len(text) > maxEnvFileBytes:
		return nil, &Problem{Key: path, Rule: "must not be larger than 1 MiB"}
	}
	text = bytes.TrimPrefix(text, []byte("\ufeff")) // editors on Windows write a byte order mark
	values, err := godotenv.Unmarshal(strings.ReplaceAll(string(text), "\r\n", "\n"))
	if _, nameless := values[""]; err != nil || nameless {
		// The library's error quotes the file, including secrets.
		return nil, &Problem{Key: path, Rule: "must contain only KEY=value lines, with every quote closed"}
	}
	return values, nil
}

// fileSuffix turns the name of a secret key into the key for a file with its value.
const fileSuffix = "_FILE"

// maxSecretBytes is far more than a secret needs: a key file has a few KiB.
const maxSecretBytes = 64 << 10

// readSecretFiles makes lookup return the content of the files that <KEY>_FILE names, under the names of their keys. A
// line break at the end of a file is not part of the value. If a file cannot be used, or if its key is set as well, the
// key gets a problem and no value.
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
