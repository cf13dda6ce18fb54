package test

import (
	"fmt"
	"testing"
	"time"

	"cutroom/internal/apitest"
	"cutroom/internal/sandbox/separator"
	"cutroom/internal/sandbox/store"
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
	buyB(t, b, store.TransactionB{ProductID: "credits.10", AccountToken: b.Sub}).Expect(200)
	admin.Post(t, grantPath, M{"productId": "credits.150"}).Expect(200)

	ready := a.Separate(t, mixture(t))
	a.WaitReady(t, ready)
	s.World.Separator.Configure(func(b *separator.Behaviour) { b.FailAtPercent = 10 })
	failed := b.Separate(t, mixture(t))
	b.WaitSeparation(t, failed, "FAILED")
	film := a.Render(t, M{"videoDurationMs": 500}, apitest.File("video", redClip(t)))
	a.WaitRendered(t, film)

	get := func(path string, into any) {
		t.Helper()
		admin.Get(t, adminPath+path).Expect(200).JSON(into)
	}
	// The tests of the queries check the other reports.
	var users adminUsers
	get("users", &users)
	for _, u := range users.Users {
		is := fmt.Sprintln(u.Provider, u.Role, u.Balance, u.TotalRenders, u.TotalSeparations)
		if want := map[string]string{a.Sub: "provider_a user 52 1 1\n", b.Sub: "provider_b user 13 0 1\n", admin.Sub: "provider_a admin 153 0 0\n"}[u.UserID]; is != want || u.LastActivityAt == nil {
			t.Errorf("user %+v, want %s", u, want)
		}
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
	if calls["audio-separation"] != 2 {
		t.Errorf("%d submits, want one for each job", calls["audio-separation"])
	}
}
