package test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"cutroom/internal/apitest"
	"cutroom/internal/sandbox/separator"
)

const adminPath = "/api/v2/admin/"

// adminPaths are all reports.
var adminPaths = []string{"overview", "stats/daily", "users", "stats/external-calls", "stats/duration-histogram", "jobs/active",
	"stats/signups", "revenue", "revenue/daily", "jobs/status-breakdown", "users/00000000-0000-4000-8000-000000000000/jobs",
	"users/00000000-0000-4000-8000-000000000000/ledger", "users/00000000-0000-4000-8000-000000000000/purchases"}

func TestAdminNeedsTheRole(t *testing.T) {
	t.Parallel()
	s := apitest.Shared(t)
	user := s.SignIn(t)
	for _, path := range adminPaths {
		user.Send(t, apitest.Request{Path: adminPath + path}).Error(403, "admin_required")
		user.Send(t, apitest.Request{Path: adminPath + path + "?from=nonsense&limit=0"}).Error(403, "admin_required")
		for _, method := range []string{"POST", "PUT", "PATCH", "DELETE"} {
			user.Send(t, apitest.Request{Method: method, Path: adminPath + path}).Expect(405)
		}
	}
}

// adminUser is a row of the user list.
type adminUser struct {
	UserID, Email, Name, Provider, Role     string
	Balance, TotalRenders, TotalSeparations int
	TotalSourceDurationMs                   int64
	CreatedAt                               time.Time
	LastActivityAt                          *time.Time
}

type adminUsers struct {
	Users []adminUser
	Total int
}

func TestAdminUserSearch(t *testing.T) {
	t.Parallel()
	s := apitest.Start(t)
	admin, a, b := s.Admin(t), s.SignIn(t), s.SignIn(t, apitest.ProviderB())
	find := func(q string) adminUsers {
		t.Helper()
		var got adminUsers
		admin.Get(t, adminPath+"users?q="+url.QueryEscape(q)).Expect(200).JSON(&got)
		return got
	}
	for q, want := range map[string]string{
		a.Email:                   a.Sub,
		strings.ToUpper(a.Email):  a.Sub,
		a.Name:                    a.Sub,
		a.Sub:                     a.Sub,
		strings.ToUpper(b.Name):   b.Sub,
		b.Email[:len(b.Email)-13]: "", // may match several; must hold b
		b.Sub[:8]:                 "none",
		"%":                       "none",
		"_":                       "none",
		"person%":                 "none",
		`\`:                       "none",
		"' OR '1'='1":             "none",
	} {
		got := find(q)
		switch {
		case want == "none" && got.Total != 0:
			t.Errorf("q=%s found %d users, want none", q, got.Total)
		case want == "" && got.Total == 0:
			t.Errorf("q=%s found nobody", q)
		case len(want) == 36 && (got.Total != 1 || len(got.Users) != 1 || got.Users[0].UserID != want):
			t.Errorf("q=%s found %+v, want %s", q, got, want)
		}
	}
	if all := find(""); all.Total != 3 || len(all.Users) != 3 {
		t.Errorf("no search found %d of 3 users", all.Total)
	}
	var page, rest adminUsers
	admin.Get(t, adminPath+"users?limit=2").Expect(200).JSON(&page)
	admin.Get(t, adminPath+"users?limit=2&offset=2").Expect(200).JSON(&rest)
	if len(page.Users) != 2 || len(rest.Users) != 1 || page.Total != 3 || rest.Total != 3 {
		t.Errorf("pages of %d and %d users, totals %d and %d", len(page.Users), len(rest.Users), page.Total, rest.Total)
	}
}

func TestAdminReports(t *testing.T) {
	t.Parallel()
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

	r := reportsStory{admin, a, b, failed, film, running}
	for name, check := range map[string]func(*testing.T){
		"overview":       r.overview,
		"daily":          r.daily,
		"users":          r.users,
		"jobs of a user": r.jobsOfAUser,
		"external calls": r.externalCalls,
		"histogram":      r.histogram,
		"active jobs":    r.activeJobs,
		"breakdown":      r.breakdown,
		"signups":        r.signups,
		"revenue":        r.revenue,
	} {
		t.Run(name, check)
	}
	s.World.Separator.Configure(func(b *separator.Behaviour) { b.HoldAtPercent = 0 })
}

// reportsStory is what the reports are about: a is whose separation and film
// succeeded, b whose separations failed and is running.
type reportsStory struct {
	admin, a, b           *apitest.User
	failed, film, running string
}

func (s reportsStory) get(t *testing.T, path string, into any) {
	t.Helper()
	s.admin.Get(t, adminPath+path).Expect(200).JSON(into)
}

func (s reportsStory) overview(t *testing.T) {
	var o struct{ TotalUsers, TotalRenders, TotalSeparations, TotalJobs, TotalSourceDurationMs, ActiveUsersLast7Days int }
	s.get(t, "overview", &o)
	if o.TotalUsers != 3 || o.TotalRenders != 1 || o.TotalSeparations != 3 || o.TotalJobs != 4 || o.ActiveUsersLast7Days < 2 {
		t.Errorf("%+v", o)
	}
	if want := 3 * int(mixtureLength.Milliseconds()); o.TotalSourceDurationMs < want {
		t.Errorf("source duration %d, want at least %d", o.TotalSourceDurationMs, want)
	}
}

func (s reportsStory) daily(t *testing.T) {
	var rows []struct{ RenderCount, SeparationCount int }
	s.get(t, "stats/daily", &rows)
	renders, separations := 0, 0
	for _, r := range rows {
		renders, separations = renders+r.RenderCount, separations+r.SeparationCount
	}
	if renders != 1 || separations != 3 {
		t.Errorf("%d renders and %d separations, want 1 and 3", renders, separations)
	}
}

func (s reportsStory) users(t *testing.T) {
	var got adminUsers
	s.get(t, "users", &got)
	for _, u := range got.Users {
		switch u.UserID {
		case s.a.Sub:
			if u.Balance != 52 || u.TotalRenders != 1 || u.TotalSeparations != 1 || u.Provider != "provider_a" || u.Role != "user" || u.LastActivityAt == nil {
				t.Errorf("%+v", u)
			}
		case s.b.Sub:
			if u.Balance != 12 || u.TotalSeparations != 2 || u.Provider != "provider_b" {
				t.Errorf("%+v", u)
			}
		case s.admin.Sub:
			if u.Role != "admin" || u.Balance != 153 {
				t.Errorf("%+v", u)
			}
		}
	}
	// Newest activity first.
	for i := 1; i < len(got.Users); i++ {
		x, y := got.Users[i-1].LastActivityAt, got.Users[i].LastActivityAt
		if x == nil && y != nil || x != nil && y != nil && x.Before(*y) {
			t.Errorf("user %d was active before user %d", i-1, i)
		}
	}
}

func (s reportsStory) jobsOfAUser(t *testing.T) {
	var got struct {
		Jobs []struct {
			JobID, JobType, Status, Error string
			SourceDurationMs              int
			CreatedAt                     time.Time
			FinishedAt                    *time.Time
		}
		Total int
	}
	s.get(t, "users/"+s.b.Sub+"/jobs", &got)
	if got.Total != 2 || len(got.Jobs) != 2 || got.Jobs[0].JobID != s.running || got.Jobs[1].JobID != s.failed {
		t.Fatalf("%+v, want %s then %s", got, s.running, s.failed)
	}
	if j := got.Jobs[1]; j.JobType != "separation" || j.Status != "FAILED" || j.Error == "" || j.FinishedAt == nil {
		t.Errorf("%+v", j)
	}
	if j := got.Jobs[0]; j.FinishedAt != nil || j.Error != "" {
		t.Errorf("%+v", j)
	}
	s.get(t, "users/"+s.a.Sub+"/jobs?limit=1", &got)
	if got.Total != 2 || len(got.Jobs) != 1 || got.Jobs[0].JobID != s.film || got.Jobs[0].JobType != "render" || got.Jobs[0].Status != "COMPLETED" {
		t.Errorf("%+v, want only %s of 2", got, s.film)
	}
}

func (s reportsStory) externalCalls(t *testing.T) {
	var rows []struct {
		Date, Endpoint            string
		CallCount, FailureCount   int
		FailureRate, P95LatencyMs float64
	}
	s.get(t, "stats/external-calls", &rows)
	calls := map[string]int{}
	for _, r := range rows {
		calls[r.Endpoint] += r.CallCount
		if r.CallCount > 0 && abs(r.FailureRate-float64(r.FailureCount)/float64(r.CallCount)) > 0.001 {
			t.Errorf("%+v: rate is not failures by calls", r)
		}
	}
	for _, endpoint := range []string{"upload-token", "upload", "register", "audio-separation", "progress", "project", "download"} {
		if calls[endpoint] == 0 {
			t.Errorf("no calls of %s: %v", endpoint, calls)
		}
	}
	if calls["audio-separation"] < 2 || calls["audio-separation"] > 3 {
		t.Errorf("%d submits, want one a job", calls["audio-separation"])
	}
}

func (s reportsStory) histogram(t *testing.T) {
	var rows []struct {
		Bucket string
		Count  int
	}
	s.get(t, "stats/duration-histogram", &rows)
	if len(rows) != 5 || rows[0].Count < 3 || rows[1].Count+rows[2].Count+rows[3].Count+rows[4].Count != 0 {
		t.Errorf("%+v", rows)
	}
}

func (s reportsStory) activeJobs(t *testing.T) {
	var rows []struct{ JobType, JobID, UserID, UserEmail string }
	s.get(t, "jobs/active", &rows)
	if len(rows) != 1 || rows[0].JobID != s.running || rows[0].UserID != s.b.Sub || rows[0].UserEmail != s.b.Email || rows[0].JobType != "separation" {
		t.Errorf("%+v, want only %s", rows, s.running)
	}
}

func (s reportsStory) breakdown(t *testing.T) {
	var rows []struct {
		JobType                              string
		Total, Succeeded, Failed, InProgress int
	}
	s.get(t, "jobs/status-breakdown", &rows)
	got := fmt.Sprint(rows)
	if got != "[{render 1 1 0 0} {separation 3 1 1 1}]" && got != "[{separation 3 1 1 1} {render 1 1 0 0}]" {
		t.Errorf("%s", got)
	}
}

func (s reportsStory) signups(t *testing.T) {
	var rows []struct{ ProviderACount, ProviderBCount int }
	s.get(t, "stats/signups", &rows)
	pa, pb := 0, 0
	for _, r := range rows {
		pa, pb = pa+r.ProviderACount, pb+r.ProviderBCount
	}
	if pa != 2 || pb != 1 {
		t.Errorf("%d and %d signups, want 2 and 1", pa, pb)
	}
}

func (s reportsStory) revenue(t *testing.T) {
	var r struct {
		PayingUsers, PurchaseCount, CreditsSold, PurchaseCount30d, CreditsSold30d          int
		PlatformAPurchaseCount, PlatformBPurchaseCount, PlatformACredits, PlatformBCredits int
		AdminGrantedCredits                                                                int
	}
	s.get(t, "revenue", &r)
	if got := fmt.Sprint(r); got != "{2 2 60 2 60 1 1 50 10 150}" {
		t.Errorf("%+v", r)
	}
	var rows []struct{ PlatformACredits, PlatformBCredits, PurchaseCount int }
	s.get(t, "revenue/daily", &rows)
	ca, cb, n := 0, 0, 0
	for _, r := range rows {
		ca, cb, n = ca+r.PlatformACredits, cb+r.PlatformBCredits, n+r.PurchaseCount
	}
	if ca != 50 || cb != 10 || n != 2 {
		t.Errorf("daily revenue sums to %d, %d, %d; want 50, 10, 2", ca, cb, n)
	}
}
