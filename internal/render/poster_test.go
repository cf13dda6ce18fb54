package render

import (
	"context"
	"errors"
	"testing"

	"cutroom/internal/jobtest"
	"cutroom/internal/objectstore"
)

// noPosters renders, and makes no posters until it can.
type noPosters struct {
	*jobtest.Engine
	cannot error
}

func (e *noPosters) Poster(ctx context.Context, film, jpeg string) error {
	if e.cannot != nil {
		return e.cannot
	}
	return e.Engine.Poster(ctx, film, jpeg)
}

// A film without a poster, after a failure or from an earlier release, gets one on
// request. If the film is deleted in the meantime, no poster stays.
func TestPosterIsMadeLater(t *testing.T) {
	eachDatabase(t, func(t *testing.T, r *harness) {
		engine := &noPosters{&jobtest.Engine{}, errors.New("no JPEG today")}
		s := r.service(engine, r.DB)
		owner := r.User(0)
		ids := r.enqueue(1, owner, r.source(owner))
		id := ids[0]
		stop := r.run(s)
		r.waitFor(1, StateCompleted)
		stop()
		noted := func() int64 {
			return r.Number(`SELECT COUNT(*) FROM render_jobs WHERE poster_key = $1`, posterKey(id))
		}
		if _, _, err := s.Poster(t.Context(), owner, id); !errors.Is(err, engine.cannot) || noted() != 0 {
			t.Errorf("where none can be made: %v, noted %d", err, noted())
		}
		engine.cannot = nil
		obj, name, err := s.Poster(t.Context(), owner, id)
		if err != nil || name != id+".jpg" || obj.Info().SizeBytes == 0 || noted() != 1 {
			t.Fatalf("%q, noted %d: %v", name, noted(), err)
		}
		obj.Close()

		r.Exec(`UPDATE render_jobs SET poster_key = NULL`)
		if err := r.Store.Delete(t.Context(), posterKey(id)); err != nil {
			t.Fatal(err)
		}
		s.Store = jobtest.Store{Store: s.Store, OnPut: func() { r.Exec(`UPDATE render_jobs SET output_key = NULL`) }}
		if _, _, err := s.Poster(t.Context(), owner, id); !errors.Is(err, errExpired) {
			t.Errorf("poster of a film deleted in the meantime: %v", err)
		}
		if _, err := r.Store.Stat(t.Context(), posterKey(id)); !errors.Is(err, objectstore.ErrNotFound) || noted() != 0 {
			t.Errorf("left: %v, noted %d", err, noted())
		}
	})
}
