package test

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"cutroom/internal/testkit/apitest"
)

// historyJob is a row of either history.
type historyJob struct {
	JobID, Status, OutputKind, Quality, FileName string
	Progress                                     int
	DurationMs, SizeBytes                        *int64
	SourceDurationMs, Credits                    int64
	Refunded                                     bool
	CreatedAt                                    int64
	FinishedAt, ExpiresAt                        *int64
	Error, ErrorCode                             *string
}

// history reads every page of a list.
func history(t testing.TB, u *apitest.User, path, limit string) (jobs []historyJob) {
	t.Helper()
	for next := ""; ; {
		var page struct {
			Jobs       []historyJob
			NextCursor *string
		}
		u.Get(t, path+"?limit="+limit+next).Expect(200).JSON(&page)
		jobs = append(jobs, page.Jobs...)
		if page.NextCursor == nil {
			return jobs
		}
		if len(jobs) > 100 {
			t.Fatal("the pages do not end")
		}
		next = "&cursor=" + *page.NextCursor
	}
}

func ids(jobs []historyJob) (out []string) {
	for _, j := range jobs {
		out = append(out, j.JobID)
	}
	return out
}

func TestRenderHistory(t *testing.T) {
	t.Parallel()
	s := apitest.Shared(t)
	u, other := s.SignIn(t), s.SignIn(t)
	var want []string
	for i := range 3 {
		config := M{"videoDurationMs": 500, "quality": []any{"low", nil, "high"}[i], "outputKind": []string{"video", "audio"}[i%2]}
		want = append([]string{u.Render(t, config, apitest.File("video", redClip(t)))}, want...)
	}
	for _, id := range want {
		u.WaitRendered(t, id)
	}
	for _, limit := range []string{"1", "2", "3", "100"} {
		if got := ids(history(t, u, "/api/v2/render", limit)); !slices.Equal(got, want) {
			t.Errorf("limit %s: %v, want %v", limit, got, want)
		}
	}
	for i, j := range history(t, u, "/api/v2/render", "20") {
		i = len(want) - 1 - i
		if j.Quality != []string{"low", "medium", "high"}[i] || j.OutputKind != []string{"video", "audio"}[i%2] ||
			j.Status != "COMPLETED" || j.Progress != 100 || j.Error != nil {
			t.Errorf("job %d: %+v", i, j)
		}
		if j.DurationMs == nil || math.Abs(float64(*j.DurationMs-500)) > 40 || j.SizeBytes == nil || *j.SizeBytes < 500 {
			t.Errorf("job %d: length %v, size %v", i, j.DurationMs, j.SizeBytes)
		}
		if j.FinishedAt == nil || *j.FinishedAt < j.CreatedAt || j.ExpiresAt == nil || *j.ExpiresAt-*j.FinishedAt != (24*time.Hour).Milliseconds() {
			t.Errorf("job %d: created %d, finished %v, expires %v", i, j.CreatedAt, j.FinishedAt, j.ExpiresAt)
		}
	}
	// The status has the same expiry, and a download extends it.
	read := func() (j historyJob) {
		u.Get(t, "/api/v2/render/"+want[0]+"/status").Expect(200).JSON(&j)
		return j
	}
	one := read()
	apitest.Eventually(t, maxWait, func() bool { u.Download(t, want[0]); return *read().ExpiresAt > *one.ExpiresAt },
		func() string { return "a download does not extend the expiry" })
	if jobs := history(t, other, "/api/v2/render", "20"); len(jobs) > 0 {
		t.Errorf("another user sees %v", ids(jobs))
	}
	u.Send(t, apitest.Request{Path: "/api/v2/render?limit=101"}).Error(400, "invalid_limit")
	u.Send(t, apitest.Request{Path: "/api/v2/separate?limit=5&limit=x"}).Error(400, "invalid_limit")
	u.Send(t, apitest.Request{Path: "/api/v2/render?cursor=x"}).Error(400, "invalid_cursor")
}

func TestSeparationHistory(t *testing.T) {
	t.Parallel()
	s := apitest.Shared(t)
	u := s.SignIn(t)
	first := u.Separate(t, mixture(t))
	u.WaitReady(t, first)
	second := u.Separate(t, mixture(t))
	jobs := history(t, u, "/api/v2/separate", "1")
	if got := ids(jobs); !slices.Equal(got, []string{second, first}) {
		t.Fatalf("history %v", got)
	}
	for i, j := range jobs {
		if j.Credits != 1 || j.Refunded || j.Error != nil ||
			math.Abs(float64(j.SourceDurationMs-3000)) > 100 || strings.ContainsAny(j.FileName, `/\`) || j.FileName == "" {
			t.Errorf("%+v", j)
		}
		if i == 0 { // this job may still be running
			continue
		}
		if j.Status != "READY" || j.Progress != 100 {
			t.Errorf("%+v", j)
		}
		if j.FinishedAt == nil || j.ExpiresAt == nil || *j.ExpiresAt-*j.FinishedAt < 604800000 {
			t.Errorf("finished %v, expires %v", j.FinishedAt, j.ExpiresAt)
		}
	}
	if jobs := history(t, s.SignIn(t), "/api/v2/separate", "20"); len(jobs) > 0 {
		t.Errorf("another user sees %v", ids(jobs))
	}
}
