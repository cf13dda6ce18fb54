package admin

import (
	"regexp"
	"strings"
	"testing"

	"cutroom/internal/base/db"
	"cutroom/internal/testkit/dbtest"
)

// Queries over all rows of tables that grow for years read only small indexes, because reports and the scrapes of every
// replica run them.
func TestTotalsReadSmallIndexes(t *testing.T) {
	whole := regexp.MustCompile(`(Seq Scan on|SCAN) (jobs|separations|credit_ledger|purchases|users)( [^U]|$)`)
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		for query, indexes := range map[string][]string{
			`SELECT SUM(jobs), state FROM ` + allJobs + ` GROUP BY state`: {"jobs_(queue|waiting)", "jobs_at_work"},
			underpaidSQL: {"separations_underpaid"},
			`SELECT SUM(amount) FROM credit_ledger WHERE kind = 'admin'`: {"credit_ledger_minted"},
			buyersSQL: {"purchases_paid"},
			`SELECT ` + failedColumns + strings.NewReplacer(`$1`, `0`, `$2`, `5`).Replace(failedJobs): {"jobs_failed"},
			`SELECT id FROM users WHERE erasing_at IS NULL ORDER BY last_active_at DESC, id LIMIT 5`:  {"users_listed"},
		} {
			// The tables are empty, so reading them whole would be cheapest.
			plan := strings.Join(dbtest.Plan(t, d, `SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off`, query), "\n")
			for _, index := range indexes {
				if !regexp.MustCompile(index).MatchString(plan) || whole.MatchString(plan) {
					t.Errorf("%s\ndoes not read %s alone:\n%s", query, index, plan)
				}
			}
		}
	})
}
