package config

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Problem is one broken rule of the configuration. It never contains a value, because any key may hold a secret by
// mistake.
type Problem struct {
	Key  string // the variable, or the file that could not be read
	Rule string // what the value must be, such as "must not be empty"
}

// Error returns one line, "KEY: rule".
func (p *Problem) Error() string { return p.Key + ": " + p.Rule }

// reader reads the environment and collects all problems and warnings.
type reader struct {
	lookup func(string) (string, bool)
	// incomplete is set if the .env file could not be read. Missing keys are then no problem, because the file may
	// contain them.
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

// read sets the field of a key, unless the value is blank or cannot be parsed. A blank required key is a problem.
func (r *reader) read(k Key) {
	rule := ""
	if value := cmp.Or(r.given(k.Name), k.Default); value != "" {
		rule = k.set(r, value)
	} else if k.Required == Always && !r.incomplete {
		rule = "is required"
	}
	if rule != "" {
		r.problem(k.Name, rule)
	}
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

// into declares a key whose text parse converts. The rule that an invalid text breaks never quotes it.
func into[T any](name, standard string, to *T, parse func(text string) (value T, rule string)) Key {
	return Key{Name: name, Default: standard, set: func(_ *reader, text string) string {
		value, rule := parse(text)
		if rule == "" {
			*to = value
		}
		return rule
	}}
}

func text(name, standard string, to *string) Key {
	return into(name, standard, to, func(text string) (string, string) { return text, "" })
}

func secret(name string, to *Secret, parse func(text string) (Secret, string)) Key {
	k := into(name, "", to, parse)
	k.Secret = true
	return k
}

// password declares a secret that is used exactly as given, because surrounding white space may be part of it.
func password(name string, to *Secret) Key {
	return Key{Name: name, Secret: true, set: func(r *reader, _ string) string {
		value, _ := r.lookup(name)
		*to = NewSecret(value)
		return ""
	}}
}

// number declares a whole number within a range, in units.
func number[T int | int64 | time.Duration](name, standard string, least, most int64, to *T, unit T) Key {
	k := Key{Name: name, Default: standard, Min: least, Max: most}
	k.set = func(_ *reader, text string) string {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < least || n > most {
			return "must be a whole number, " + k.Range()
		}
		*to = T(n) * unit
		return ""
	}
	return k
}

// toggle declares a switch that is on only for the text true, in upper or lower case.
func toggle(name string, to *bool) Key {
	return Key{Name: name, Default: "false", set: func(r *reader, text string) string {
		if *to = strings.EqualFold(text, "true"); !*to && !strings.EqualFold(text, "false") {
			r.warn("%s is neither true nor false and stays off", name)
		}
		return ""
	}}
}

// needed returns the key with a requirement.
func (k Key) needed(r Requirement) Key {
	k.Required = r
	return k
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
