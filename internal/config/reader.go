package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Problem is one broken rule of the configuration. The error of Load joins one
// for each. It never holds a value: a secret may have landed in any key.
type Problem struct {
	Key  string // the variable, or the file that could not be read
	Rule string // what would be right, as the rest of a sentence
}

// Error returns one line, "KEY: rule".
func (p *Problem) Error() string { return p.Key + ": " + p.Rule }

// reader takes values out of the environment, and collects problems and
// warnings instead of stopping at the first.
type reader struct {
	lookup func(string) (string, bool)
	broken map[string]bool // secrets whose file is a problem
	// incomplete says that a file of settings could not be read: a key that is
	// missing may be in it, and is no problem.
	incomplete bool
	problems   []error
	warnings   []string
}

func (r *reader) problem(key, rule string) {
	r.problems = append(r.problems, &Problem{Key: key, Rule: rule})
}

// hasProblem reports whether a key, or the file of a secret, has a problem
// already.
func (r *reader) hasProblem(key string) bool {
	return slices.ContainsFunc(r.problems, func(err error) bool {
		p, ok := err.(*Problem)
		return ok && (p.Key == key || p.Key == key+fileSuffix)
	})
}

func (r *reader) warn(format string, args ...any) {
	r.warnings = append(r.warnings, fmt.Sprintf(format, args...))
}

// given is what the environment says, without surrounding white space.
func (r *reader) given(key string) string {
	value, _ := r.lookup(key)
	return strings.TrimSpace(value)
}

// text is what is given, or the default where it is blank. A blank required key
// is a problem.
func (r *reader) text(k Key) string {
	value := r.given(k.Name)
	switch {
	case value != "":
		return value
	case k.Required == Always:
		if !r.incomplete {
			r.problem(k.Name, "is required")
		}
	case !k.Computed:
		return k.Default
	}
	return ""
}

// missing returns those of the keys of a requirement that are blank, and how
// many there are in all.
func (r *reader) missing(of Requirement) (blank []string, all int) {
	for _, k := range Keys {
		if k.Required != of {
			continue
		}
		if all++; r.given(k.Name) == "" && !r.broken[k.Name] {
			blank = append(blank, k.Name)
		}
	}
	return blank, all
}

// setter parses a key's value into its field. A value that it cannot parse is a
// problem. It then leaves the field as it is, as it does for a blank value without a
// default.
type setter func(*reader, Key)

// into sets what parse makes of the text. The rule is what a wrong text breaks,
// "" for a right one; it never quotes the text.
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

// number sets a whole number within the key's range, in a unit in which the
// largest fits.
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

// toggle is on for the text true alone, in any case.
func toggle(to *bool) setter {
	return func(r *reader, k Key) {
		value := strings.ToLower(r.text(k))
		if value != "true" && value != "false" {
			r.warn("%s is neither true nor false and stays off", k.Name)
		}
		*to = value == "true"
	}
}

// password sets a value exactly as it is given: white space at its ends may be
// part of it.
func password(to *Secret) setter {
	return func(r *reader, k Key) {
		if r.text(k) != "" {
			value, _ := r.lookup(k.Name)
			*to = NewSecret(value)
		}
	}
}

// oneOf takes the name of one of the values, in any case. The names stand in
// the order of the values.
func oneOf[T any](names string, values ...T) func(string) (T, string) {
	return func(text string) (value T, rule string) {
		i := slices.Index(strings.Split(names, ", "), strings.ToLower(text))
		if i < 0 {
			return value, "must be one of " + names
		}
		return values[i], ""
	}
}
