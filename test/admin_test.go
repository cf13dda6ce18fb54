package test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"cutroom/internal/apitest"
	"cutroom/internal/sandbox/separator"
)

const adminPath = "/api/v2/admin/"

// adminUser is a row of the user list.
type adminUser struct {
	UserID, Provider, Role                  string
	Balance, TotalRenders, TotalSeparations int
	LastActivityAt                          *time.Time
}

type adminUsers struct {
	Users []adminUser
	Total int
}

func TestAdminReports(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	s := apitest.Start(t)
	admin, a, b := s.Admin(t), s.SignIn(t, apitest.Credits(50)), s.SignIn(t, apitest.ProviderB())
	buyB(t, b, transactionFor(b)).Expect(200)
	admin.Post(t, grantPath, M{"productId": "credits.150"}).Expect(200)

	ready := a.Separate(t, mixture(t))
	a.WaitReady(t, ready)
	s.World.Separator.Configure(func(b *separator.Behaviour) { b.FailAtPercent = 10 })
	failed := b.Separate(t, mixture(t))
	b.WaitSeparation(t, failed, "FAILED")
	film := a.Render(t, M{"videoDurationMs": 500}, apitest.File("video", redClip(t)))
	a.WaitRendered(t, film)
	s.World.Separator.Configure(func(b *separator.Behaviour) { b.FailAtPercent, b.HoldAtPercent = 0, 20 })
	running := b.Separate(t, mixture(t))

	get := func(path string, into any) {
		t.Helper()
		admin.Get(t, adminPath+path).Expect(200).JSON(into)
	}
	// How each report is put together is tested beside its queries; these are the
	// sums of its numbers over its rows, of what the service has written.
	for path, want := range map[string]map[string]float64{
		"overview":                 {"totalUsers": 3, "totalRenders": 1, "totalSeparations": 3, "totalJobs": 4},
		"stats/daily":              {"renderCount": 1, "separationCount": 3},
		"stats/duration-histogram": {"count": 4},
		"stats/signups":            {"providerACount": 2, "providerBCount": 1},
		"jobs/status-breakdown":    {"total": 4, "succeeded": 2, "failed": 1, "inProgress": 1},
		"revenue": {"payingUsers": 2, "purchaseCount": 2, "creditsSold": 60, "purchaseCount30d": 2, "creditsSold30d": 60,
			"platformAPurchaseCount": 1, "platformBPurchaseCount": 1, "platformACredits": 50, "platformBCredits": 10, "adminGrantedCredits": 150},
		"revenue/daily": {"platformACredits": 50, "platformBCredits": 10, "purchaseCount": 2},
	} {
		var rows []map[string]any
		if path == "overview" || path == "revenue" {
			rows = []map[string]any{{}}
			get(path, &rows[0])
		} else {
			get(path, &rows)
		}
		for field, sum := range want {
			got := 0.0
			for _, r := range rows {
				n, _ := r[field].(float64)
				got += n
			}
			if got != sum {
				t.Errorf("%s: %s is %v, want %v", path, field, got, sum)
			}
		}
	}
	var users adminUsers
	get("users", &users)
	for _, u := range users.Users {
		is := fmt.Sprintln(u.Provider, u.Role, u.Balance, u.TotalRenders, u.TotalSeparations)
		if want := map[string]string{a.Sub: "provider_a user 52 1 1\n", b.Sub: "provider_b user 12 0 2\n", admin.Sub: "provider_a admin 153 0 0\n"}[u.UserID]; is != want || u.LastActivityAt == nil {
			t.Errorf("user %+v, want %s", u, want)
		}
	}
	type jobRow struct{ JobType, JobID, Status, UserID, UserEmail string }
	var jobs struct{ Jobs []jobRow }
	get("users/"+b.Sub+"/jobs", &jobs)
	if len(jobs.Jobs) > 0 {
		jobs.Jobs[0].Status = "" // it is running
	}
	if want := []jobRow{{JobType: "separation", JobID: running}, {JobType: "separation", JobID: failed, Status: "FAILED"}}; !slices.Equal(jobs.Jobs, want) {
		t.Errorf("%+v, want %+v", jobs.Jobs, want)
	}
	get("users/"+a.Sub+"/jobs?limit=1", &jobs)
	if want := []jobRow{{JobType: "render", JobID: film, Status: "COMPLETED"}}; !slices.Equal(jobs.Jobs, want) {
		t.Errorf("%+v, want %+v", jobs.Jobs, want)
	}
	var active []jobRow
	get("jobs/active", &active)
	if len(active) != 1 || active[0].JobID != running || active[0].UserID != b.Sub || active[0].UserEmail != b.Email {
		t.Errorf("active jobs %+v, want only %s", active, running)
	}
	var rows []struct {
		Endpoint  string
		CallCount int
	}
	get("stats/external-calls", &rows)
	calls := map[string]int{}
	for _, r := range rows {
		calls[r.Endpoint] += r.CallCount
	}
	for _, endpoint := range []string{"upload-token", "upload", "register", "audio-separation", "progress", "project", "download"} {
		if calls[endpoint] == 0 {
			t.Errorf("no calls of %s: %v", endpoint, calls)
		}
	}
	if calls["audio-separation"] < 2 || calls["audio-separation"] > 3 {
		t.Errorf("%d submits, want one a job", calls["audio-separation"])
	}
	s.World.Separator.Configure(func(b *separator.Behaviour) { b.HoldAtPercent = 0 })
}
