package test

import (
	"testing"

	"cutroom/internal/testkit/apitest"
)

const adminPath = "/api/v2/admin/"

// adminUsers is the body of the user list.
type adminUsers struct {
	Users []struct{ UserID string }
	Total int
}

// The handlers' tests check the other reports.
func TestCallsOfTheProviderAreCounted(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	s := apitest.Start(t)
	u := s.SignIn(t)
	u.WaitReady(t, u.Separate(t, mixture(t)))
	var rows []struct {
		Endpoint  string
		CallCount int
	}
	s.Admin(t).Get(t, adminPath+"stats/external-calls").Expect(200).JSON(&rows)
	calls := map[string]int{}
	for _, r := range rows {
		calls[r.Endpoint] += r.CallCount
	}
	for _, endpoint := range []string{"upload-token", "upload", "register", "audio-separation", "progress", "project", "download"} {
		if calls[endpoint] == 0 {
			t.Errorf("no calls of %s: %v", endpoint, calls)
		}
	}
	if calls["audio-separation"] != 1 {
		t.Errorf("%d submits of one job", calls["audio-separation"])
	}
}
