package render

import (
	"sync"
	"testing"

	"cutroom/internal/testkit/jobtest"
)

// The status contains the film's length while the film is being made.
func TestLengthIsKnownBeforeTheFilm(t *testing.T) {
	eachDatabase(t, func(t *testing.T, r *harness) {
		seen, owner := make(chan struct{}), r.User(0)
		s := r.service(&jobtest.Engine{Fails: func() error { <-seen; return nil }}, r.DB)
		ids := r.enqueue(1, owner, nil)
		r.run(s)
		goOn := sync.OnceFunc(func() { close(seen) })
		t.Cleanup(goOn)
		told := func(state string) bool {
			return r.Number(`SELECT COUNT(*) FROM jobs JOIN renders ON job_id = id WHERE id = $1 AND state = $2 AND output_duration_ms = $3`,
				ids[0], state, jobtest.FilmLength.Milliseconds()) == 1
		}
		r.Eventually("length told", func() bool { return told(StateProcessing) })
		goOn()
		r.Eventually("film made", func() bool { return told(StateCompleted) })
	})
}
