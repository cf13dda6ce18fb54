package httpapi_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"cutroom/internal/dbtest"
	"cutroom/internal/job"
	"cutroom/internal/user"
)

// polled are the functions behind the endpoints that phones poll: the balance and the two
// statuses. Each may query the database once.
var polled = []struct {
	file, function string
	args           []any
}{
	{"../credit/credit.go", "Balance", []any{"u"}},
	{"../render/status.go", "Status", []any{"j", "u"}},
	{"../separation/status.go", "Status", []any{"j", "u"}},
	{"../separation/status.go", "place", []any{1, "j"}}, // and once more while the job is queued
}

// The handlers in front of them must not query at all: a bearer token is checked without
// the database.
var gates = []struct{ file, function string }{
	{"../account/account.go", "Authenticate"}, {"../account/token.go", "Check"}, {"../credit/credit.go", "Quote"},
	{"request.go", "principal"}, {"request.go", "signedIn"}, {"credit.go", "balance"}, {"credit.go", "cost"}, {"render.go", "renderStatus"},
	{"separation.go", "separationStatus"}, {"observe.go", "observed"}, {"observe.go", "finish"}, {"server.go", "dispatch"},
}

// queriesOf returns the queries that a function sends to the database. Its SQL is in
// literals, or in constants and variables of its package.
func queriesOf(t *testing.T, file, function string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(filepath.Dir(file), "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	constants := map[string]ast.Expr{}
	var body *ast.BlockStmt
	for _, name := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			switch d := d.(type) {
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if v, ok := spec.(*ast.ValueSpec); ok && len(v.Values) == len(v.Names) {
						for i, n := range v.Names {
							constants[n.Name] = v.Values[i]
						}
					}
				}
			case *ast.FuncDecl:
				if d.Name.Name == function && filepath.Base(name) == filepath.Base(file) {
					body = d.Body
				}
			}
		}
	}
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

func literal(e ast.Expr, constants map[string]ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		s, _ := strconv.Unquote(e.Value) // a number is not a query
		return s
	case *ast.Ident:
		return literal(constants[e.Name], constants)
	case *ast.BinaryExpr:
		return literal(e.X, constants) + literal(e.Y, constants)
	case *ast.SelectorExpr: // conditions of other packages
		return map[string]string{"Known": job.Known, "Waiting": job.Waiting, "AtWork": job.AtWork}[e.Sel.Name]
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
	eachDatabase(t, func(t *testing.T, r *harness) {
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
		// Prove that the check itself can fail.
		if plan := dbtest.Plan(t, r.db, noSeqScan, `SELECT id FROM users WHERE name = $1`, "x"); !slices.ContainsFunc(plan, scansTable) {
			t.Errorf("a search without an index passes: %q", plan)
		}
	})
}

// noSeqScan keeps PostgreSQL from reading small tables whole.
const noSeqScan = `SET LOCAL enable_seqscan = off`

// scansTable detects a plan step that uses no index, in the words of either database.
func scansTable(step string) bool {
	step = strings.TrimSpace(step)
	return strings.Contains(step, "Seq Scan") || strings.HasPrefix(step, "SCAN ") && !strings.Contains(step, "USING") && step != "SCAN h"
}
