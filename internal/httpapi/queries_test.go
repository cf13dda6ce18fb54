package httpapi_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"

	"cutroom/internal/dbtest"
	"cutroom/internal/job"
	"cutroom/internal/user"
)

// polled are the functions behind what a phone asks for all day: the balance and
// the two statuses. Each may ask the database once.
var polled = []struct {
	file, function string
	args           []any
}{
	{"../credit/credit.go", "Balance", []any{"u"}},
	{"../render/status.go", "Status", []any{"j", "u"}},
	{"../separation/status.go", "Status", []any{"j", "u"}},
	{"../separation/status.go", "place", []any{1, "j"}}, // and once more while it is in the queue
}

// The handlers in front of them must not ask at all: a bearer token is checked
// without the database.
var gates = []struct{ file, function string }{
	{"../account/account.go", "Authenticate"}, {"../account/token.go", "Check"}, {"../credit/credit.go", "Quote"},
	{"request.go", "principal"}, {"request.go", "signedIn"}, {"credit.go", "balance"}, {"credit.go", "cost"}, {"render.go", "renderStatus"},
	{"separation.go", "separationStatus"}, {"observe.go", "observed"}, {"observe.go", "finish"}, {"server.go", "dispatch"},
}

// queriesOf returns the texts of the queries that a function sends to the
// database. Its SQL is in literals, or in constants and variables of the same file.
func queriesOf(t *testing.T, file, function string) []string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	constants := map[string]string{}
	var body *ast.BlockStmt
	ast.Inspect(parsed, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ValueSpec:
			for i, name := range n.Names {
				if i < len(n.Values) {
					constants[name.Name] = literal(n.Values[i], constants)
				}
			}
		case *ast.FuncDecl:
			if n.Name.Name == function {
				body = n.Body
			}
		}
		return true
	})
	if body == nil {
		t.Fatalf("%s has no function %s", file, function)
	}
	var queries []string
	ast.Inspect(body, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		if sel, ok := call.Fun.(*ast.SelectorExpr); ok && slices.Contains([]string{"Query", "QueryRow", "Lookup", "Exec", "InTx"}, sel.Sel.Name) && len(call.Args) > 1 {
			queries = append(queries, literal(call.Args[1], constants))
		}
		return true
	})
	return queries
}

func literal(e ast.Expr, constants map[string]string) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		s, _ := strconv.Unquote(e.Value) // a number is no query
		return s
	case *ast.Ident:
		return constants[e.Name]
	case *ast.BinaryExpr:
		return literal(e.X, constants) + literal(e.Y, constants)
	case *ast.SelectorExpr: // conditions of other packages
		if e.Sel.Name == "Known" {
			return job.Known
		}
	case *ast.CallExpr:
		if sel, ok := e.Fun.(*ast.SelectorExpr); ok && sel.Sel.Name == "Exists" {
			return user.Exists(literal(e.Args[0], constants))
		}
	}
	return ""
}

func TestPollsCostOneIndexedQuery(t *testing.T) {
	for _, g := range gates {
		if q := queriesOf(t, g.file, g.function); len(q) > 0 {
			t.Errorf("%s in %s asks the database: %q", g.function, g.file, q)
		}
	}
	eachDatabase(t, harnessOptions{file: true}, func(t *testing.T, r *harness) {
		for _, p := range polled {
			queries := queriesOf(t, p.file, p.function)
			if len(queries) != 1 || !strings.HasPrefix(queries[0], "SELECT") {
				t.Fatalf("%s in %s asks the database %d times: %q", p.function, p.file, len(queries), queries)
			}
			plan := dbtest.Plan(t, r.db, noSeqScan, queries[0], p.args...)
			if len(plan) == 0 {
				t.Fatal("no plan")
			}
			for _, step := range plan {
				if scansTable(step) {
					t.Errorf("%s in %s reads a whole table:\n%s", p.function, p.file, strings.Join(plan, "\n"))
				}
			}
		}
		// The check itself must be able to fail.
		if plan := dbtest.Plan(t, r.db, noSeqScan, `SELECT id FROM users WHERE name = $1`, "x"); !slices.ContainsFunc(plan, scansTable) {
			t.Errorf("a search without an index passes: %q", plan)
		}
	})
}

// noSeqScan keeps PostgreSQL from reading a table that is small enough to be read whole.
const noSeqScan = `SET LOCAL enable_seqscan = off`

// scansTable recognises a step that no index serves, in the words of either
// database.
func scansTable(step string) bool {
	step = strings.TrimSpace(step)
	return strings.Contains(step, "Seq Scan") || strings.HasPrefix(step, "SCAN ") && !strings.Contains(step, "USING") && step != "SCAN h"
}
