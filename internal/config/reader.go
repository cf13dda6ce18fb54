package config

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Problem is one broken rule of the configuration. It never contains a value, because any key may hold a secret
// by mistake.
type Problem struct {
	Key  string // the variable, or the file that could not be read
	Rule string // what the value must be, such as "must not be empty"
}

// Error returns one line, "KEY: rule".
func (p *Problem) Error() string { return p.Key + ": " + p.Rule }

// reader reads the environment and collects all problems and warnings.
type reader struct {
	lookup func(string) (string, bool)
	// incomplete is set if the .env file could not be read. Missing keys are then no problem, because the file
	// may contain them.
	incomplete bool
	problems   []error
	warnings   []string
}

func (r *reader) problem(key, rule string) {
	r.problems = append(r.problems, &Problem{Key: key, Rule: rule})
}

// hasProblem reports whether a key, or the file of a secret, already has a problem.
func (r *reader) hasProblem(key string) bool {
	return slices.ContainsFunc(r.problems, func(err error) bool {
		p, ok := err.(*Problem)
		return ok && (p.Key == key || p.Key == key+fileSuffix)
	})
}

func (r *reader) warn(format string, args ...any) {
	r.warnings = append(r.warnings, fmt.Sprintf(format, args...))
}

// given returns the value in the environment, without surrounding white space.
func (r *reader) given(key string) string {
	value, _ := r.lookup(key)
	return strings.TrimSpace(value)
}

// text returns the given value, or the default if that is blank. A blank required key is a problem.
func (r *reader) text(k Key) string {
	value := cmp.Or(r.given(k.Name), k.Default)
	if value == "" && k.Required == Always && !r.incomplete {
		r.problem(k.Name, "is required")
	}
	return value
}

// missing returns the blank keys of a requirement, and how many keys it has.
func (r *reader) missing(of Requirement) (blank []string, all int) {
	for _, k := range Keys {
		if k.Required != of {
			continue
		}
		if all++; r.given(k.Name) == "" && !r.hasProblem(k.Name) {
			blank = append(blank, k.Name)
		}
	}
	return blank, all
}

// setter parses a key's value into its field. It leaves the field unchanged if the value is blank,
// or if it cannot be parsed, which is a problem.
type setter func(*reader, Key)

// into sets the value that parse returns. A rule other than "" becomes the problem of an invalid text; it never
// quotes the text.
func into[T any](to *T, parse func(text string) (value T, rule string)) setter {
	return func(r *reader, k Key) {
		text := r.text(k)
		if text == "" {
			return
		}
		value, rule := parse(text)
		if rule != "" {
			r.problem(k.Name, rule)
			return
		}
		*to = value
	}
}

func text(to *string) setter {
	return into(to, func(text string) (string, string) { return text, "" })
}

// number sets a whole number within the key's range, times unit.
func number[T int | int64 | time.Duration](to *T, unit T) setter {
	return func(r *reader, k Key) {
		into(to, func(text string) (T, string) {
			n, err := strconv.ParseInt(text, 10, 64)
			if err != nil || n < k.Min || n > k.Max {
				return 0, "must be a whole number, " + k.Range()
			}
			return T(n) * unit, ""
		})(r, k)
	}
}

// toggle is on only for the text true, in upper or lower case.
func toggle(to *bool) setter {
	return func(r *reader, k Key) {
		value := strings.ToLower(r.text(k))
		if value != "true" && value != "false" {
			r.warn("%s is neither true nor false and stays off", k.Name)
		}
		*to = value == "true"
	}
}

// password sets the value exactly as given, because surrounding white space may be part of it.
func password(to *Secret) setter {
	return func(r *reader, k Key) {
		if r.text(k) != "" {
			value, _ := r.lookup(k.Name)
			*to = NewSecret(value)
		}
	}
}

// oneOf accepts one of the names, in upper or lower case, and returns the value at its position.
func oneOf[T any](names string, values ...T) func(string) (T, string) {
	return func(text string) (value T, rule string) {
		i := slices.Index(strings.Split(names, ", "), strings.ToLower(text))
		if i < 0 {
			return value, "must be one of " + names
		}
		return values[i], ""
	}
}
