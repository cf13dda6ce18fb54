package admin_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/uuid"

	"cutroom/internal/admin"
	"cutroom/internal/fault"
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

func TestUserJobs(t *testing.T) {
	onBoth(t, func(t *testing.T, s *seed) {
		ann, bob := s.user("Ann", ""), s.user("Bob", "")
		old := s.render(ann, "COMPLETED", s.now.Add(-hour), minute)
		sep := s.separation(ann, "FAILED", s.now, 2*minute)
		twin := s.render(ann, "PENDING", s.now, 3*minute) // the same instant: by id
		s.render(bob, "PENDING", s.now, minute)
		s.exec(`UPDATE jobs SET finished_at = created_at + 5 WHERE id = $1`, old)
		s.exec(`UPDATE jobs SET finished_at = created_at + 7, error = 'Provider service unavailable' WHERE id = $1`, sep)
		all := []admin.UserJob{
			{JobID: twin, JobType: "render", Status: "PENDING", SourceDurationMs: 180000, CreatedAt: admin.Time{Time: s.now.UTC()}},
			{JobID: sep, JobType: "separation", Status: "FAILED", SourceDurationMs: 120000, CreatedAt: admin.Time{Time: s.now.UTC()},
				FinishedAt: admin.Time{Time: s.now.Add(7 * ms).UTC()}, Error: "Provider service unavailable"},
			{JobID: old, JobType: "render", Status: "COMPLETED", SourceDurationMs: 60000, CreatedAt: admin.Time{Time: s.now.Add(-hour).UTC()},
				FinishedAt: admin.Time{Time: s.now.Add(-hour + 5*ms).UTC()}},
		}
		for _, c := range []struct {
			page admin.Page
			want []admin.UserJob
		}{
			{admin.Page{Limit: 50}, all},
			{admin.Page{Limit: 2}, all[:2]},
			{admin.Page{Limit: 2, Offset: 2}, all[2:]},
			{admin.Page{Limit: 2, Offset: 1 << 62}, []admin.UserJob{}},
		} {
			jobs, total, err := s.reports.UserJobs(t.Context(), ann, c.page)
			if err != nil || total != 3 || jobs == nil {
				t.Fatalf("%+v: total %d, %v", c.page, total, err)
			}
			equal(t, fmt.Sprintf("%+v", c.page), jobs, c.want)
		}

		s.erasing(bob)
		for _, unknown := range []string{bob, uuid.NewString()} {
			if _, _, err := s.reports.UserJobs(t.Context(), unknown, admin.Page{Limit: 1}); !errors.Is(err, fault.Sentencef(fault.NotFound, "User not found")) {
				t.Errorf("unknown user: %v", err)
			}
		}
		carol := s.user("Carol", "")
		jobs, total, err := s.reports.UserJobs(t.Context(), carol, admin.Page{Limit: 1})
		if err != nil || jobs == nil || len(jobs) != 0 || total != 0 {
			t.Errorf("without jobs: %#v, %d, %v", jobs, total, err)
		}
	})
}
