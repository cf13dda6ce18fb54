package separation

import (
	"errors"
	"testing"
	"time"

	"cutroom/internal/base/db"
	"cutroom/internal/testkit/dbtest"
	"cutroom/internal/work/job"
)

// Abandoned stems stay if a client collects them, or a render begins to read them, while a sweep is about to remove
// them. A submission that comes after the sweep is refused.
func TestSweepMeetsReaders(t *testing.T) {
	t.Parallel()
	d := dbtest.Postgres(t)
	for name, read := range map[string]func(r *harness, s *Service, tx *db.Tx, id string) error{
		"a download": func(r *harness, s *Service, tx *db.Tx, id string) error {
			if ok, err := keepStems(t.Context(), tx, id); err != nil || !ok {
				return errors.Join(errors.New("not kept"), err)
			}
			return s.jobs.Set(t.Context(), tx, id, job.SQL(`collected_at = now_ms()`))
		},
		"a render": func(r *harness, s *Service, tx *db.Tx, id string) error {
			if err := Keep(t.Context(), tx, StemRef{JobID: id}); err != nil {
				return err
			}
			return job.Hold(t.Context(), tx, "rnd-1", stemKey(id, stemVoice, "flac"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newHarness(t, d)
			s, owner := r.service(), r.User(1)
			id := r.reach(s, owner, StateReady).ID
			r.age(id, 2*time.Hour)
			r.readByRender(owner, "another object")
			swept := make(chan error)
			err := d.InTx(t.Context(), func(tx *db.Tx) error {
				err := read(r, s, tx, id)
				go func() { swept <- s.SweepJobs(t.Context()) }()
				r.Eventually("the sweep waits", func() bool {
					return r.Number(`SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) > 0
				})
				return err
			})
			if err := errors.Join(err, <-swept); err != nil {
				t.Fatal(err)
			}
			if x := r.row(id); x.State != StateReady || len(r.Keys("separation/")) != 2 {
				t.Errorf("%+v, stems %v", x, r.Keys("separation/"))
			}
			r.Exec(`DELETE FROM held_objects`)
			r.age(id, 2*time.Hour)
			if err := s.SweepJobs(t.Context()); err != nil {
				t.Fatal(err)
			}
			err = d.InTx(t.Context(), func(tx *db.Tx) error { return Keep(t.Context(), tx, StemRef{JobID: id}) })
			if x := r.row(id); x.State != StateDisposed || !errors.Is(err, errInvalidStemURL) {
				t.Errorf("%+v, a submission after the sweep: %v", x, err)
			}
			r.Exec(`DELETE FROM users`)
		})
	}
}
