package job

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Fragment is a piece of a statement with its arguments: a condition, assignments, or a query for the id of a job. Its
// parameters count from $1, whatever precedes it in the statement.
type Fragment struct {
	text string
	args []any
}

// SQL returns a Fragment. The text is a constant of the program, never input.
func SQL(text string, args ...any) Fragment { return Fragment{text, args} }

// And returns the condition that both hold. The zero value always holds.
func (f Fragment) And(g Fragment) Fragment {
	switch {
	case f.text == "":
		return g
	case g.text == "":
		return f
	}
	text, args := statement(f.args, `(`+f.text+`) AND (`, g, `)`)
	return Fragment{text, args}
}

var parameter = regexp.MustCompile(`\$\d+`)

// statement joins texts and fragments into one statement. The parameters of the texts are the given arguments; those of
// each fragment get the numbers after them.
func statement(args []any, parts ...any) (query string, all []any) {
	var b strings.Builder
	all = slices.Clone(args)
	for _, part := range parts {
		f, ok := part.(Fragment)
		if !ok {
			b.WriteString(part.(string))
			continue
		}
		before := len(all)
		b.WriteString(parameter.ReplaceAllStringFunc(f.text, func(p string) string {
			n, _ := strconv.Atoi(p[1:])
			return "$" + strconv.Itoa(before+n)
		}))
		all = append(all, f.args...)
	}
	return b.String(), all
}
