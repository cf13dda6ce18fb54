package separation

import (
	"cmp"
	"testing"
	"time"

	"github.com/google/uuid"

	"cutroom/internal/base/db"
	"cutroom/internal/domain/asset"
	"cutroom/internal/domain/separation/price"
)

// A job of the same sound is reused while it has its stems or will have them. Until it ends, it holds the asset.
func TestSameSound(t *testing.T) {
	eachDatabase(t, func(t *testing.T, r *harness) {
		s := r.service()
		owner := r.User(10)
		ref := Reference{Source: asset.Key{SHA256: "x", Ext: "mp4"}, To: time.Second, Language: "auto"}
		id := "sep-" + uuid.Must(uuid.NewV7()).String()
		err := r.DB.InTx(t.Context(), func(tx *db.Tx) error {
			return s.jobs.Insert(t.Context(), tx, s.job(newJob{id: id, owner: owner, language: "auto", reference: &ref,
				cut: "{}", audio: price.Sound{Ext: "wav", DurationMs: 1000}}))
		})
		if err != nil {
			t.Fatal(err)
		}
		holds := `SELECT COUNT(*) FROM held_objects WHERE object_key = 'assets/x.mp4'`
		if r.Number(holds) != 1 {
			t.Error("the queued job does not hold the asset")
		}
		for _, c := range []struct {
			change    string // of the job
			collected string // at which time
			reused    bool
		}{
			{change: `state = 'SUBMITTING'`, reused: true},
			{change: `state = 'PROCESSING'`, reused: true},
			{change: `state = 'READY', finished_at = now_ms() - 3599000`, reused: true},
			{change: `state = 'READY', finished_at = now_ms() - 3601000`, reused: false}, // the harness keeps stems for an hour
			{change: `state = 'READY'`, collected: `now_ms()`, reused: true},
			{change: `state = 'DISPOSED'`, reused: false},
			{change: `state = 'FAILED'`, reused: false},
			{change: `state = 'QUEUED', deleted_at = now_ms()`, reused: false},
		} {
			r.Exec(`UPDATE jobs SET ` + c.change)
			r.Exec(`UPDATE separations SET collected_at = ` + cmp.Or(c.collected, "NULL"))
			found, err := s.sameSound(t.Context(), r.DB, owner, ref)
			if err != nil || (found == id) != c.reused {
				t.Errorf("%s: %q, %v", c.change, found, err)
			}
		}
		r.Exec(`UPDATE jobs SET state = 'QUEUED', finished_at = NULL, deleted_at = NULL`)
		if err := s.Delete(t.Context(), owner, id); err != nil {
			t.Fatal(err)
		}
		if r.Number(holds) != 0 {
			t.Error("the ended job still holds the asset")
		}
	})
}
