package test

import (
	"strings"
	"testing"

	"cutroom/internal/testkit/apitest"
)

// An operator pauses submissions of one kind on all replicas. Jobs submitted earlier continue, and repeats of their
// submissions return them.
func TestOperatorsPauseSubmissions(t *testing.T) {
	t.Parallel()
	s := apitest.Start(t, apitest.Replicas(1))
	u := s.SignIn(t)
	submit := apitest.Request{Method: "POST", Path: separatePath, Form: apitest.SeparationForm(mixture(t)), Valid: true}
	job := u.Send(t, withKey(submit, "first")).Job(202)

	for _, step := range []struct {
		command []string
		status  int
		words   string
	}{
		{[]string{"pause", "separation"}, 0, "paused on all replicas"},
		{[]string{"pause", "separation"}, 0, "paused already"},
		{[]string{"pause", "films"}, 1, "render or separation"},
		{[]string{"pause"}, 2, "usage"},
	} {
		if status, out := s.Command(t, step.command...); status != step.status || !strings.Contains(out, step.words) {
			t.Errorf("cutroom %v: status %d: %s", step.command, status, out)
		}
	}
	for _, r := range []apitest.Request{submit, withKey(submit, "second")} {
		if res := u.Send(t, r).Error(503, "paused"); res.Header.Get("Retry-After") != "60" {
			t.Errorf("Retry-After %q", res.Header.Get("Retry-After"))
		}
	}
	if again := u.Send(t, withKey(submit, "first")).Job(202); again != job {
		t.Errorf("a repeat created the job %s", again)
	}
	u.WaitReady(t, job)
	u.Render(t, M{"videoDurationMs": 500}, apitest.File("video", redClip(t))) // another kind
	succeeds(t, s, "resume", "separation")
	u.Send(t, submit).Job(202)
	succeeds(t, s, "pause", "render")
	u.Send(t, apitest.Request{Method: "POST", Path: "/api/v2/render", Form: []apitest.Part{
		{Name: "config", Text: `{"videoDurationMs":500}`}, apitest.File("video", redClip(t))}}).Error(503, "paused")
	u.Send(t, apitest.Request{Method: "POST", Path: "/api/v2/render/v3", JSON: M{}}).Error(503, "paused")
	if b := u.Balance(t); b != 1 {
		t.Errorf("balance %d after two separations of 3 credits", b)
	}
	var entries []auditEntry
	command(t, s, &entries, "audit", "--since", "2020-01-01")
	var actions []string
	for _, e := range entries {
		if e.Target == "separation" {
			actions = append(actions, e.Action)
		}
	}
	if got := strings.Join(actions, " "); got != "submissions-resumed submissions-paused" {
		t.Errorf("audit record: %s", got)
	}
}
