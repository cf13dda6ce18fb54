// Which package may name which table in its SQL.

package app_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"cutroom/internal/base/db"
	"cutroom/internal/testkit/dbtest"
)

// owners says which package owns a table: its SQL, to read or to write, stands there and nowhere else, and others ask
// that package. Reports are made of many tables by their nature: admin may read all of them, and write its own alone.
var owners = map[string]string{
	"asset_holders":      "asset",
	"asset_uploads":      "asset",
	"assets":             "asset",
	"audit":              "audit",
	"bonus_identities":   "credit",
	"sale_notices":       "credit",
	"credit_balances":    "credit",
	"credit_ledger":      "credit",
	"devices":            "events",
	"event_deliveries":   "events",
	"events":             "events",
	"goose_db_version":   "db",
	"held_objects":       "job",
	"idempotency_keys":   "idempotency",
	"installation":       "installation",
	"job_days":           "job",
	"jobs":               "job",
	"leases":             "job",
	"pauses":             "job",
	"provider_call_days": "admin",
	"purchases":          "credit",
	"receipt_refusals":   "credit",
	"render_inputs":      "render",
	"render_parts":       "render",
	"render_turns":       "render",
	"renders":            "render",
	"replicas":           "job",
	"request_times":      "ratelimit",
	"separation_pause":   "separation",
	"separation_stems":   "separation",
	"separations":        "separation",
	"users":              "user",
}

// kinds are the packages of the kinds of jobs. They read jobs together with their own tables, and leave every write of
// it to job.
var kinds = []string{"render", "separation"}

// names finds the tables that a text names. One of several words cannot be anything else; one of a single word is a
// table where SQL has one.
var (
	severalWords = regexp.MustCompile(`\b[a-z]+(?:_[a-z]+)+\b`)
	afterKeyword = regexp.MustCompile(`\b(FROM|JOIN|INTO|UPDATE|TABLE)\s+([a-z_]+)\b`)
	written      = regexp.MustCompile(`\b(?:INTO|UPDATE|DELETE\s+FROM)\s+([a-z_]+)\b`)
)

func TestATableHasOnePackage(t *testing.T) {
	used := map[string]bool{}
	for _, text := range append(stringsOf(t, ".."), stringsOf(t, "../../cmd")...) {
		named := severalWords.FindAllString(text.value, -1)
		for _, m := range afterKeyword.FindAllStringSubmatch(text.value, -1) {
			named = append(named, m[2])
		}
		writes := map[string]bool{}
		for _, m := range written.FindAllStringSubmatch(text.value, -1) {
			writes[m[1]] = true
		}
		slices.Sort(named)
		for _, table := range slices.Compact(named) {
			owner, is := owners[table]
			switch {
			case !is:
			case owner == text.pkg:
				used[table] = true
			case text.pkg != "admin" && !(table == "jobs" && slices.Contains(kinds, text.pkg)):
				t.Errorf("%s: %s names the table %s, which is %s's", text.at, text.pkg, table, owner)
			case writes[table]:
				t.Errorf("%s: %s writes to the table %s", text.at, text.pkg, table)
			}
		}
	}
	for table, owner := range owners {
		if owner != "" && owner != "db" && !used[table] {
			t.Errorf("%s, said to own the table %s, does not name it", owner, table)
		}
	}
	if listed, there := slices.Sorted(maps.Keys(owners)), tables(t); !slices.Equal(listed, there) {
		t.Errorf("tables with an owner:\n%s\ntables of the schema:\n%s", strings.Join(listed, " "), strings.Join(there, " "))
	}
}

// tables are those of a database that is migrated.
func tables(t *testing.T) []string {
	t.Helper()
	out, err := db.Texts(dbtest.SQLite(t).Query(t.Context(), `SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name`))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// literal is a string in the program's source.
type literal struct {
	at    token.Position
	pkg   string
	value string
}

// stringsOf reads the string literals of all packages under a folder that are part of the service.
func stringsOf(t *testing.T, root string) []literal {
	t.Helper()
	var out []literal
	files := token.NewFileSet()
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() && (strings.HasSuffix(e.Name(), "test") || e.Name() == "sandbox") {
			return filepath.SkipDir
		}
		if e.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		pkg, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		if _, inner, found := strings.Cut(filepath.ToSlash(pkg), "/"); found {
			pkg = inner // without its floor
		}
		f, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				value, uerr := strconv.Unquote(lit.Value)
				if uerr != nil {
					t.Errorf("%s: %v", files.Position(lit.Pos()), uerr)
				}
				out = append(out, literal{files.Position(lit.Pos()), filepath.ToSlash(pkg), value})
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) < 100 {
		t.Fatalf("only %d strings were found in %s", len(out), root)
	}
	return out
}
