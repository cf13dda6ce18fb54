package test

import (
	"testing"
	"time"

	"cutroom/internal/testkit/apitest"
)

// Support finds a failed render and its cause, and can run it again while its inputs exist.
func TestSupportRunsAFailedRenderAgain(t *testing.T) {
	t.Parallel()
	s := apitest.Shared(t)
	u := s.SignIn(t)
	beyond := M{"segments": []M{apitest.With(apitest.Segment("video", 0, time.Minute), M{"trimStartMs": 50_000})}}
	kept := u.Render(t, beyond, apitest.Part{Name: "inputId", Text: cacheInput(t, u, redClip(t))})
	gone := u.Render(t, beyond, apitest.File("video", redClip(t)))
	for _, id := range []string{kept, gone} {
		if end := u.WaitFinished(t, id); end.Status != "FAILED" || end.ErrorCode != "no_media" {
			t.Fatalf("%s: %+v", id, end)
		}
	}

	type failed struct{ JobID, JobType, UserID, Error, ErrorCode, Cause, FinishedAt string }
	var list []failed
	command(t, s, &list, "jobs", "--failed", "--since", time.Now().UTC().Add(-24*time.Hour).Format(time.DateOnly))
	found := map[string]failed{}
	for _, j := range list {
		found[j.JobID] = j
	}
	for _, id := range []string{kept, gone} {
		if j := found[id]; j.JobType != "render" || j.UserID != u.Sub || j.ErrorCode != "no_media" || j.Error == "" || j.Cause == "" {
			t.Errorf("%s is listed as %+v", id, j)
		}
	}
	command(t, s, &list, "jobs", "--failed", "--since", "2999-01-01")
	if len(list) != 0 {
		t.Errorf("failures since a time in the future: %v", list)
	}

	var again struct{ JobID, Status string }
	command(t, s, &again, "job", "retry", kept)
	if again.JobID != kept || again.Status != "PENDING" {
		t.Errorf("%+v", again)
	}
	if end := u.WaitFinished(t, kept); end.ErrorCode != "no_media" {
		t.Errorf("the retry ended as %+v", end)
	}
	var record []auditEntry
	command(t, s, &record, "audit")
	noted := 0
	for _, e := range record {
		if e.Action == "render-retried" && e.Target == kept {
			noted++
		}
	}
	if noted != 1 {
		t.Errorf("%d entries in the audit record", noted)
	}
	apitest.Eventually(t, time.Minute, func() bool {
		status, _ := s.Command(t, "job", "retry", gone)
		return status != 0
	}, func() string { return "the uploads of " + gone + " are still there" })
	refusedCommand(t, s, []string{"job", "retry", gone}, gone, "is gone")
	refusedCommand(t, s, []string{"job", "retry", "rnd-unknown"}, "there is no render")
	refusedCommand(t, s, []string{"job", "retry", "sep-1"}, "separation")
}
