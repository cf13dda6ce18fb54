package admin_test

import (
	"testing"

	"cutroom/internal/domain/admin"
)

func TestActiveJobs(t *testing.T) {
	onBoth(t, func(t *testing.T, s *seed) {
		if got := must(s.reports.ActiveJobs(t.Context()))(t); got == nil || len(got) != 0 {
			t.Errorf("without jobs: %#v, want an empty list", got)
		}
		ann, gone := s.user("Ann", "ann@x.test"), s.user("Gone", "gone@x.test")
		s.erasing(gone)
		s.render(gone, "PENDING", s.now, minute)
		for _, done := range []string{"COMPLETED", "FAILED"} {
			s.render(ann, done, s.now, minute)
		}
		for _, done := range []string{"READY", "DISPOSED", "FAILED"} {
			s.separation(ann, done, s.now, minute)
		}
		var want []admin.ActiveJob
		expect := func(kind, state, id string, sourceSec int64) {
			want = append(want, admin.ActiveJob{JobType: kind, JobID: id, Status: state, UserID: ann, UserEmail: "ann@x.test",
				SourceDurationMs: sourceSec * 1000, CreatedAt: admin.Time{Time: s.now.Add(-hour).UTC()}})
		}
		at := s.now.Add(-hour)
		expect("render", "PENDING", s.render(ann, "PENDING", at, 1000*ms), 1)
		expect("render", "PROCESSING", s.render(ann, "PROCESSING", at, 2000*ms), 2)
		expect("separation", "QUEUED", s.separation(ann, "QUEUED", at, 3000*ms), 3)
		expect("separation", "SUBMITTING", s.separation(ann, "SUBMITTING", at, 4000*ms), 4)
		expect("separation", "PROCESSING", s.separation(ann, "PROCESSING", at, 5000*ms), 5)
		s.exec(`UPDATE jobs SET progress = 42, created_at = created_at - 1 WHERE id = $1`, want[4].JobID)
		want[4].Progress, want[4].CreatedAt.Time = 42, want[4].CreatedAt.Add(-ms)
		oldest := append([]admin.ActiveJob{want[4]}, want[:4]...)
		equal(t, "active jobs", must(s.reports.ActiveJobs(t.Context()))(t), oldest)
	})
}
