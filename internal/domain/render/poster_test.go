package render

import (
	"context"
	"errors"
	"testing"

	"cutroom/internal/storage/objectstore"
	"cutroom/internal/testkit/jobtest"
)

// noPosters is an engine that returns an error for posters while the error is not nil.
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

// If a film has no poster after a failure, a request makes it. If the film is deleted meanwhile, no poster is left.
func TestPosterIsMadeLater(t *testing.T) {
	eachDatabase(t, func(t *testing.T, r *harness) {
		engine := &noPosters{&jobtest.Engine{}, errors.New("no JPEG today")}
		s := r.service(engine, r.DB)
		owner := r.User(0)
		id := r.enqueue(1, owner, r.source(owner))[0]
		stop := r.run(s)
		r.waitFor(1, StateCompleted)
		stop()
		storedKeys := func() int64 {
			return r.Number(`SELECT COUNT(*) FROM renders WHERE poster_key = $1`, posterKey(id))
		}
		if _, _, err := s.Poster(t.Context(), owner, id); !errors.Is(err, engine.cannot) || storedKeys() != 0 {
			t.Errorf("an engine without posters: %v, %d stored keys", err, storedKeys())
		}
		engine.cannot = nil
		obj, name, err := s.Poster(t.Context(), owner, id)
		if err != nil || name != id+".jpg" || obj.Info().SizeBytes == 0 || storedKeys() != 1 {
			t.Fatalf("%q, %d stored keys: %v", name, storedKeys(), err)
		}
		obj.Close()

		r.Exec(`UPDATE renders SET poster_key = NULL`)
		if err := r.Store.Delete(t.Context(), posterKey(id)); err != nil {
			t.Fatal(err)
		}
		s.Store = jobtest.Store{Store: s.Store, OnPut: func() { r.Exec(`UPDATE renders SET output_key = NULL`) }}
		if _, _, err := s.Poster(t.Context(), owner, id); !errors.Is(err, errExpired) {
			t.Errorf("the poster of a film deleted meanwhile: %v", err)
		}
		if _, err := r.Store.Stat(t.Context(), posterKey(id)); !errors.Is(err, objectstore.ErrNotFound) || storedKeys() != 0 {
			t.Errorf("left: %v, %d stored keys", err, storedKeys())
		}
	})
}
