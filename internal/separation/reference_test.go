package separation

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"cutroom/internal/db"
)

// A job of the same sound is reused while it has its stems or will have them. Until it ends, it holds the asset.
func TestSameSound(t *testing.T) {
	eachDatabase(t, func(t *testing.T, d *db.DB) {
		r := newHarness(t, d)
		s := r.service()
		owner := r.User(10)
		ref := Reference{AssetKey: "assets/x.mp4", To: time.Second, Language: "auto"}
		id := "sep-" + uuid.Must(uuid.NewV7()).String()
		err := d.InTx(t.Context(), func(tx *db.Tx) error {
			return s.enqueue(t.Context(), tx, newJob{id: id, owner: owner, language: "auto", reference: &ref,
				cut: &cut{AssetKey: ref.AssetKey}, audio: classified{ext: "wav", durationMs: 1000}})
		})
		if err != nil {
			t.Fatal(err)
		}
		holds := `SELECT COUNT(*) FROM separation_sources WHERE object_key = 'assets/x.mp4'`
		if r.Number(holds) != 1 {
			t.Error("the queued job does not hold the asset")
		}
		for _, c := range []struct {
			change string
			reused bool
		}{
			{`state = 'SUBMITTING'`, true},
			{`state = 'PROCESSING'`, true},
			{`state = 'READY', ready_at = now_ms() - 3599000`, true},
			{`state = 'READY', ready_at = now_ms() - 3601000`, false}, // the harness keeps stems for an hour
			{`state = 'READY', collected_at = now_ms()`, true},
			{`state = 'DISPOSED'`, false},
			{`state = 'FAILED'`, false},
			{`state = 'QUEUED', deleted_at = now_ms()`, false},
		} {
			r.Exec(`UPDATE separation_jobs SET ` + c.change)
			found, err := s.sameSound(t.Context(), d, owner, ref)
			if err != nil || (found == id) != c.reused {
				t.Errorf("%s: %q, %v", c.change, found, err)
			}
		}
		r.Exec(`UPDATE separation_jobs SET state = 'QUEUED', deleted_at = NULL`)
		if err := s.Delete(t.Context(), owner, id); err != nil {
			t.Fatal(err)
		}
		if r.Number(holds) != 0 {
			t.Error("the ended job still holds the asset")
		}
	})
}
