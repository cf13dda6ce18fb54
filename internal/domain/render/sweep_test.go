package render

import (
	"testing"
	"time"
)

// The sweeps remove expired files, then their rows. They keep files that a job still reads.
func TestExpiry(t *testing.T) {
	eachDatabase(t, func(t *testing.T, r *harness) {
		s := r.service(nil, r.DB)
		s.JobLifetime = 24 * time.Hour
		owner := r.User(0)
		job := func(id, state string, ageMs, outputLeftMs int64) {
			r.Exec(`INSERT INTO jobs (id, kind, user_id, state, source_duration_ms, stored_bytes, created_at, finished_at)
				VALUES ($1, 'render', $2, $3, 0, 1, now_ms() - $4, now_ms() - $4)`, id, owner, state, ageMs)
			r.Exec(`INSERT INTO renders (job_id, spec, output_kind, output_key, poster_key, expires_at)
				VALUES ($1, '', 'video', 'render/' || $1 || '/x.mp4', 'render/' || $1 || '/x.jpg', now_ms() + $2)`, id, outputLeftMs)
			for _, key := range []string{"render/" + id + "/x.mp4", "render/" + id + "/x.jpg", "uploads/" + id + "/video"} {
				r.Put(key)
			}
		}
		const day = 24 * 60 * 60 * 1000
		job("rnd-fresh", "COMPLETED", 1000, day)
		job("rnd-expired", "COMPLETED", 1000, -1)
		job("rnd-old", "COMPLETED", 2*day, -1)
		job("rnd-kept", "COMPLETED", 2*day, day) // downloaded recently
		job("rnd-waits", "PENDING", 2*day, day)
		for _, name := range []string{"unused", "read", "used"} {
			used := int64(2 * day)
			if name == "used" {
				used = 0
			}
			key := "inputs/" + owner + "/" + name
			r.Exec(`INSERT INTO render_inputs (user_id, input_id, sha256, object_key, size_bytes, last_used_at)
				VALUES ($1, $2, '', $3, 1, now_ms() - $4)`, owner, name, key, used)
			r.Put(key)
		}
		r.Exec(`INSERT INTO held_objects (job_id, object_key) VALUES ('rnd-waits', $1)`, "inputs/"+owner+"/read")
		if err := s.Expire(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := s.Sweeper.Sweep(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		for id, rows := range map[string]int64{"rnd-fresh": 1, "rnd-expired": 1, "rnd-old": 0, "rnd-kept": 1, "rnd-waits": 1} {
			if n := r.Number(`SELECT COUNT(*) FROM jobs WHERE id = $1`, id); n != rows {
				t.Errorf("%d rows of %s, want %d", n, id, rows)
			}
		}
		if n := r.Number(`SELECT COUNT(*) FROM jobs JOIN renders ON job_id = id
			WHERE output_key IS NULL AND (poster_key IS NOT NULL OR stored_bytes > 0)`); n > 0 {
			t.Errorf("%d expired films have a poster or count for their owner", n)
		}
		for key, want := range map[string]bool{
			"render/rnd-fresh/x.mp4": true, "render/rnd-expired/x.mp4": false, "render/rnd-fresh/x.jpg": true, "render/rnd-expired/x.jpg": false, "render/rnd-kept/x.mp4": true,
			"uploads/rnd-fresh/video": false, "uploads/rnd-waits/video": true,
			"inputs/" + owner + "/unused": false, "inputs/" + owner + "/read": true, "inputs/" + owner + "/used": true,
		} {
			if _, err := r.Store.Stat(t.Context(), key); (err == nil) != want {
				t.Errorf("%s: %v", key, err)
			}
		}
	})
}
