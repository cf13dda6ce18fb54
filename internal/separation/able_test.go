package separation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"cutroom/internal/db"
	"cutroom/internal/logtest"
)

// A replica that cannot work claims no jobs. The log contains what happened to the jobs that another replica
// claimed.
func TestJobsGoToTheReplicaThatCanWork(t *testing.T) {
	oneDatabase(t, func(t *testing.T, d *db.DB) {
		r := newHarness(t, d).withProvider()
		owner := r.User(3)
		full := r.service(func(o *Options) {
			o.CanWork = func(context.Context) (int64, error) { return 0, errors.New("disk: full") }
		})
		var log logtest.Buffer
		good := r.service(func(o *Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
		id := r.enqueueAudio(good, owner)
		if j, ok, err := full.next(t.Context()); ok || err != nil {
			t.Fatalf("the full replica claimed %s, %v", j.ID, err)
		}
		stopFull := r.run(full)
		stop := r.run(good)
		r.waitState(id, StateReady)
		next := r.enqueueAudio(good, owner)
		r.waitState(next, StateReady)
		stop()
		stopFull()
		for _, job := range []string{id, next} {
			for _, message := range []string{"separation claimed", "separation ended"} {
				want := fmt.Sprintf("msg=%q job=%s owner=%s replica=%s attempt=1", message, job, owner, good.Renewer.Owner())
				if n := strings.Count(log.String(), want); n != 1 {
					t.Errorf("%d lines %s in\n%s", n, want, log.String())
				}
			}
		}
	})
}
