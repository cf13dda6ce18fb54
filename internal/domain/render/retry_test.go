package render

import (
	"errors"
	"strings"
	"testing"

	"cutroom/internal/base/db"
	"cutroom/internal/testkit/jobtest"
	"cutroom/internal/work/job"
)

// If a render failed for a reason other than its sources, a retry runs it with its uploads and all its attempts. Any
// other retry is refused with a reason.
func TestRetryRunsAFailedRenderAgain(t *testing.T) {
	eachDatabase(t, func(t *testing.T, r *harness) {
		owner := r.User(0)
		fails := true
		s := r.service(&jobtest.Engine{Fails: func() error {
			if fails {
				return errors.New("a bug")
			}
			return nil
		}}, r.DB)
		sources := r.source(owner)
		id := r.enqueue(1, owner, sources)[0]
		r.Exec(`UPDATE renders SET spec = REPLACE(spec, $1, $2)`, sources["video"].Object, uploadKey(id, 0))
		r.Put(uploadKey(id, 0))
		run := func() {
			t.Helper()
			r.Exec(`UPDATE jobs SET lease_until = NULL WHERE state = 'PENDING'`)
			j := r.claimed(s)
			if s.work(t.Context(), j) {
				s.dropUploads(t.Context(), j.ID, j.Spec.uploads(j.ID)...)
			}
		}
		audited := 0
		retry := func() error {
			return Retry(t.Context(), r.assets(), r.Store, id, func(*db.Tx) error { audited++; return nil })
		}
		refused := func(want string) {
			t.Helper()
			if err := retry(); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
		}
		refused("is PENDING")
		for range job.MaxAttempts {
			run()
		}
		if err := s.Sweeper.Sweep(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		if err := retry(); err != nil {
			t.Fatal(err)
		}
		if n := r.Number(`SELECT COUNT(*) FROM jobs j JOIN held_objects s ON s.job_id = j.id
			WHERE j.state = 'PENDING' AND j.attempts = 0 AND j.error IS NULL AND j.finished_at IS NULL`); n != 1 || audited != 1 {
			t.Fatalf("%d jobs wait, %d audit entries", n, audited)
		}
		fails = false
		run()
		refused("is COMPLETED")
		r.Exec(`UPDATE jobs SET state = 'FAILED'`)
		refused("no longer kept")
		r.Exec(`UPDATE jobs SET deleted_at = now_ms()`)
		refused("deleted it")
		r.Exec(`DELETE FROM jobs`)
		refused("there is no render")
		if audited != 1 {
			t.Errorf("%d audit entries", audited)
		}
	})
}

// A retry reads stems only while they may be read. The object of a stem is still there while the transaction that
// removes the stem is open.
func TestRetryRefusesStemsThatAreRemoved(t *testing.T) {
	eachDatabase(t, func(t *testing.T, r *harness) {
		owner := r.User(0)
		jobtest.Insert(t, r.DB, "sep-1", owner, "READY", 1, 1)
		r.Put("separation/sep-1/voice_all.flac")
		id := r.enqueue(1, owner, map[string]object{stemSource + "sep-1/voice_all": {Object: "separation/sep-1/voice_all.flac"}})[0]
		r.Exec(`UPDATE jobs SET state = CASE WHEN id = $1 THEN 'FAILED' ELSE 'DISPOSED' END`, id)
		retry := func() error {
			return Retry(t.Context(), r.assets(), r.Store, id, func(*db.Tx) error { return nil })
		}
		if err := retry(); err == nil || !strings.Contains(err.Error(), "a source that render "+id+" reads is gone") {
			t.Errorf("the stems are removed: %v", err)
		}
		r.Exec(`UPDATE jobs SET state = 'READY' WHERE id = 'sep-1'`)
		if err := retry(); err != nil {
			t.Errorf("the stems are there: %v", err)
		}
	})
}

// A retry reads cached inputs and assets only while they stay, as a submission does.
func TestRetryRefusesSourcesThatAreRemoved(t *testing.T) {
	eachDatabase(t, func(t *testing.T, r *harness) {
		r.UseBucket()
		owner := r.User(0)
		key := "assets/" + strings.Repeat("a", 64) + ".mp4"
		r.Put(key)
		r.Exec(`INSERT INTO assets (asset_key, size_bytes, content_type, seen_at) VALUES ($1, 5, 'video/mp4', now_ms())`, key)
		r.Exec(`INSERT INTO asset_holders (user_id, asset_key, size_bytes, created_at, last_used_at) VALUES ($1, $2, 5, 1, 1)`, owner, key)
		sources := r.source(owner)
		input := sources["video"].Object
		sources["asset"] = object{Object: key, SHA256: strings.Repeat("a", 64), Asset: true}
		id := r.enqueue(1, owner, sources)[0]
		r.Exec(`UPDATE jobs SET state = 'FAILED'`)
		r.Exec(`DELETE FROM held_objects`)
		retry := func() error {
			return Retry(t.Context(), r.assets(), r.Store, id, func(*db.Tx) error { return nil })
		}
		for _, step := range []struct{ before, want, after string }{
			// The objects are still there in each case.
			{`UPDATE render_inputs SET object_key = 'gone'`, "inputId is unknown or has expired", `UPDATE render_inputs SET object_key = '` + input + `'`},
			{`UPDATE asset_holders SET given_up_at = 1`, "has removed its source", `UPDATE asset_holders SET given_up_at = NULL`},
			{`UPDATE assets SET removing_at = now_ms()`, "try again", `UPDATE assets SET removing_at = NULL`},
		} {
			r.Exec(step.before)
			if err := retry(); err == nil || !strings.Contains(err.Error(), step.want) {
				t.Errorf("after %q: %v", step.before, err)
			}
			r.Exec(step.after)
		}
		r.Exec(`UPDATE render_inputs SET last_used_at = 1`)
		if err := retry(); err != nil {
			t.Fatal(err)
		}
		if n := r.Number(`SELECT COUNT(*) FROM held_objects WHERE object_key IN ($1, $2)`, key, input); n != 2 || r.Number(`SELECT last_used_at FROM render_inputs`) == 1 {
			t.Errorf("%d objects are held", n)
		}
	})
}
