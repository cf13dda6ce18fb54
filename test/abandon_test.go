package test

import (
	"testing"
	"time"

	"cutroom/internal/sandbox/separator"
	"cutroom/internal/testkit/apitest"
)

// The tests in this file mostly wait, often for more than a minute, because the service accepts no shorter time-outs.
// The file's name makes them start first, so that other tests run in the meantime.

func TestUncollectedStemsAreDisposedOf(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	s := apitest.Start(t, apitest.Env("SEPARATION_ABANDON_TTL_MS", "60000"), apitest.Env("SEPARATION_URL_TTL_SEC", "60"))
	u := s.SignIn(t)
	id := u.Separate(t, mixture(t))
	job := u.WaitReady(t, id)
	ready := time.Now()
	first := stemPath(t, job.Stem(t, "voice_all"))
	s.Do(t, apitest.Request{Path: first, Valid: true}).Expect(200) // a download restarts the time
	if now := u.Separation(t, id); now.ExpiresAt <= job.ExpiresAt {
		t.Errorf("expires at %d after a download, %d before", now.ExpiresAt, job.ExpiresAt)
	}
	latest := first
	apitest.Eventually(t, 4*time.Minute, func() bool {
		now := u.Separation(t, id)
		if now.Status == "READY" {
			latest = stemPath(t, now.Stem(t, "voice_all"))
		}
		return now.Status == "DISPOSED"
	}, func() string { return "the stems of " + id + " are still there" })
	if age := time.Since(ready); age < 60*time.Second {
		t.Errorf("disposed of after %v, want at least a minute after the last download", age)
	}
	// With a valid token, the stem is not found. An expired token gets its own error.
	s.Do(t, apitest.Request{Path: latest, Valid: true}).Expect(404)
	s.Do(t, apitest.Request{Path: first, Valid: true}).Error(403, "expired_stem_token")
	if now := u.Separation(t, id); len(now.Stems) != 0 {
		t.Errorf("%d stems after disposal", len(now.Stems))
	}
	if b := u.Balance(t); b != 2 {
		t.Errorf("balance %d, want 2: disposal is not refunded", b)
	}
	// The stems cannot be rendered either.
	u.Send(t, apitest.Request{Method: "POST", Path: "/api/v2/render", Form: apitest.RenderForm(t, M{
		"segments": []M{apitest.Segment("video_0", 0, clipLength)},
		"separationDirectives": []M{{"id": "d", "rangeStartMs": 0, "rangeEndMs": 1000,
			"selections": []M{{"stemId": "voice_all", "audioUrl": latest}}}},
	}, apitest.File("video_0", redClip(t)))}).Error(400, "invalid_stem_url")
}

func TestStuckSubmittingIsQueuedAgain(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	s := apitest.Start(t, apitest.Env("SEPARATION_STUCK_SUBMITTING_SEC", "60"))
	u := s.SignIn(t)
	s.World.FailSeparator(t, stallOnce(separator.StepUpload))
	id := u.Separate(t, mixture(t))
	apitest.Eventually(t, maxWait, func() bool { return u.Separation(t, id).Status == "SUBMITTING" },
		func() string { return "the job is not SUBMITTING" })
	var job apitest.SeparationStatus
	apitest.Eventually(t, 4*time.Minute, func() bool {
		job = u.Separation(t, id)
		return job.Status == "READY" || job.Status == "FAILED"
	}, func() string { return "the job is stuck in " + job.Status })
	if job.Status != "READY" {
		t.Errorf("%s: %s", job.Status, job.Error)
	}
	if b := u.Balance(t); b != 2 {
		t.Errorf("balance %d, want 2", b)
	}
	if n := len(s.World.Separator.Titles()); n != 1 {
		t.Errorf("%d projects at the provider, want 1", n)
	}
}
