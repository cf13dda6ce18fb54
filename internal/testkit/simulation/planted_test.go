package simulation

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var plant = flag.Bool("planted", false, "run TestPlantedBugsAreFound, which compiles the service with each")

// edit replaces one text of a file of the service by another.
type edit struct{ file, from, to string }

// planted are bugs that the simulation must find. They exist only in copies of source files, which a compiler overlay
// puts in place of the originals.
var planted = []struct {
	name  string
	edits []edit
}{
	{"the result of a former holder counts", []edit{
		{"work/job/move.go", `WHERE id = $1 AND fence = $2 AND state = 'PROCESSING' RETURNING `, `WHERE id = $1 AND $2 > 0 AND state = 'PROCESSING' RETURNING `},
		{"work/job/move.go", `WHERE id = $1 AND fence = $2 AND state = $3` + "`+tx.ForUpdate()", `WHERE id = $1 AND $2 > 0 AND state = $3` + "`+tx.ForUpdate()"}}},
	{"a refund outside of the transaction of its failure", []edit{
		{"domain/separation/decide.go", `if !e.Deleted || !e.Asked {`, `if e.Deleted && !e.Asked {`},
		{"domain/separation/stems.go", "	ctx = context.WithoutCancel(ctx)\n	var source string\n", `	ctx = context.WithoutCancel(ctx)
	_ = s.DB.InTx(ctx, func(tx *db.Tx) error { _, err := credit.Refund(ctx, tx, c.UserID, c.ID); return err })
	var source string
`},
		{"domain/separation/stems.go", `	"cutroom/internal/base/db"
`, `	"cutroom/internal/domain/credit"
	"cutroom/internal/base/db"
`}}},
	{"a job is taken over without a look at its lease", []edit{{"domain/separation/queue.go",
		`(j.lease_until IS NULL OR j.lease_until < now_ms()) AND `, ``}}},
	{"the provider is asked again after an intent", []edit{
		{"domain/separation/sweep.go", `case asked:`, `case asked && c.Attempts > 2:`},
		{"domain/separation/sweep.go", `r.Lost, r.Still = true, ` + "job.SQL(`j.asked_at IS NULL`)", "r.Lost = true"}}},
	{"recovery takes jobs from living workers", []edit{{"domain/separation/sweep.go",
		`s.recoverJobs(ctx, job.SQL(job.Expired))`, "s.recoverJobs(ctx, job.SQL(`j.fence > 0`))"}}},
	{"an idempotency key is saved after the commit", []edit{{"work/idempotency/idempotency.go",
		"		return save(ctx, tx, k, answer)\n	})\n", `		return nil
	})
	if err == nil {
		err = d.InTx(ctx, func(tx *db.Tx) error { return save(ctx, tx, k, answer) })
	}
`}}},
}

// within is the number of schedules within which the simulation must find a planted bug.
const within = 10_000

var failedSeed = regexp.MustCompile(`seed \d+: .*`)

func TestPlantedBugsAreFound(t *testing.T) {
	for _, p := range planted {
		t.Run(strings.ReplaceAll(p.name, " ", "_"), func(t *testing.T) {
			overlay := writeOverlay(t, p.edits)
			if !*plant {
				t.Skip("the bug can be planted; -planted compiles the service with it")
			}
			bin := filepath.Join(t.TempDir(), "simulation.test")
			if out, err := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", bin, ".").CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			out, err := exec.CommandContext(t.Context(), bin, "-test.run=^TestSchedules$", fmt.Sprintf("-schedules=%d", within)).CombinedOutput()
			found := failedSeed.Find(out)
			if err == nil || found == nil {
				t.Fatalf("not found within %d schedules (%v)\n%.2000s", within, err, out)
			}
			t.Logf("%s", found)
		})
	}
}

// writeOverlay writes a compiler overlay with changed files of the service.
func writeOverlay(t *testing.T, edits []edit) (overlay string) {
	t.Helper()
	dir := t.TempDir()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	changed := map[string]string{}
	for n, e := range edits {
		file := filepath.Join(root, e.file)
		from := file
		if changed[file] != "" {
			from = changed[file]
		}
		content, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(content), e.from); n != 1 {
			t.Fatalf("%s has %d times: %s", e.file, n, e.from)
		}
		changed[file] = filepath.Join(dir, fmt.Sprintf("%d.go", n))
		if err := os.WriteFile(changed[file], []byte(strings.Replace(string(content), e.from, e.to, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	list, err := json.Marshal(map[string]any{"Replace": changed})
	if err != nil {
		t.Fatal(err)
	}
	overlay = filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlay, list, 0o600); err != nil {
		t.Fatal(err)
	}
	return overlay
}
