package render

import (
	"context"
	"errors"
	"testing"
	"time"

	"cutroom/internal/objectstore"
)

// noPosters renders, and makes no posters until it can.
type noPosters struct {
	*simulated
	cannot error
}

func (e *noPosters) Poster(ctx context.Context, film, jpeg string) error {
	if e.cannot != nil {
		return e.cannot
	}
	return e.simulated.Poster(ctx, film, jpeg)
}

// A film without a poster, after a failure or from an earlier release, gets one on
// request. If the film is deleted in the meantime, no poster stays.
func TestPosterIsMadeLater(t *testing.T) {
	eachDatabase(t, func(t *testing.T, r *harness) {
		engine := &noPosters{&simulated{}, errors.New("no JPEG today")}
		s := r.service(engine, r.db)
		owner := r.user()
		ids, _ := r.enqueue(1, owner, r.source(owner))
		id := ids[0]
		stop := r.run(s)
		r.eventually("the film", time.Minute, func() bool {
			return r.number(`SELECT COUNT(*) FROM render_jobs WHERE state = 'COMPLETED'`) == 1
		})
		stop()
		noted := func() int64 {
			return r.number(`SELECT COUNT(*) FROM render_jobs WHERE poster_key = $1`, posterKey(id))
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

		r.exec(`UPDATE render_jobs SET poster_key = NULL`)
		if err := r.store.Delete(t.Context(), posterKey(id)); err != nil {
			t.Fatal(err)
		}
		s.Store = storeThatSees{s.Store, func() { r.exec(`UPDATE render_jobs SET output_key = NULL`) }}
		if _, _, err := s.Poster(t.Context(), owner, id); !errors.Is(err, errExpired) {
			t.Errorf("poster of a film deleted in the meantime: %v", err)
		}
		if _, err := r.store.Stat(t.Context(), posterKey(id)); !errors.Is(err, objectstore.ErrNotFound) || noted() != 0 {
			t.Errorf("left: %v, noted %d", err, noted())
		}
	})
}

// storeThatSees calls back before it stores.
type storeThatSees struct {
	objectstore.Store
	put func()
}

func (s storeThatSees) Put(ctx context.Context, key, path, contentType string) error {
	s.put()
	return s.Store.Put(ctx, key, path, contentType)
}
