package test

import (
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"cutroom/internal/base/db"
	"cutroom/internal/sandbox/separator"
	"cutroom/internal/testkit/apitest"
	"cutroom/internal/work/job"
)

// A replica whose clock is two minutes wrong works with one whose clock is right: jobs keep their leases, tokens and
// links of either are valid at both, and limits count together.
func TestAReplicaWithAWrongClock(t *testing.T) {
	t.Parallel()
	needPostgres(t)
	for _, ahead := range []time.Duration{2 * time.Minute, -2 * time.Minute} {
		t.Run(ahead.String(), func(t *testing.T) {
			t.Parallel()
			a := startFirst(t)
			b := startPeer(t, a, apitest.ClockAhead(ahead), apitest.Env("OPS_ADDR", "127.0.0.1:"+freePort(t)))
			if skew := metricOf(t, b, "cutroom_clock_skew_seconds"); math.Abs(skew-ahead.Seconds()) > 20 {
				t.Errorf("cutroom_clock_skew_seconds is %g, want %g", skew, ahead.Seconds())
			}
			u := a.SignIn(t, apitest.Credits(10))
			u.World.Separator.Configure(func(b *separator.Behaviour) { b.HoldAtPercent = 50 })
			keepsItsLease(t, a, b, u)
			u.World.Separator.Configure(func(b *separator.Behaviour) { b.HoldAtPercent = 0 })
			id := history(t, u, "/api/v2/separate", "10")[0].JobID
			u.WaitReady(t, id)
			if n := len(a.World.Separator.Titles()); n != 1 {
				t.Errorf("%d projects at the provider for one job", n)
			}
			freshTokens(t, a, b)
			freshLinks(t, a, b, u, id)
			// Replicas count together, whatever their clocks say.
			fresh := a.SignIn(t)
			both := []*apitest.User{fresh, at(fresh, b)}
			for i := range 12 {
				res := both[i%2].Send(t, apitest.Request{Method: "POST", Path: "/api/v2/render/v3", Raw: `{"segments":[]}`})
				if i < 10 {
					res.Expect(400)
				} else {
					isLimited(t, res)
				}
			}
		})
	}
}

// keepsItsLease submits a job and fails the test if a replica takes it from the other one while that one is working.
func keepsItsLease(t *testing.T, a, b *apitest.Server, u *apitest.User) {
	t.Helper()
	d := a.Database(t)
	b.Stop(t)
	id := u.Separate(t, mixture(t))
	u.WaitSeparation(t, id, "PROCESSING")
	b.Restart(t)
	first := renewed(t, d, id)
	a.Stop(t)
	at(u, b).WaitSeparation(t, id, "PROCESSING")
	a.Restart(t)
	if second := renewed(t, d, id); second == first {
		t.Error("the replica with the wrong clock did not take the job over")
	}
}

// renewed waits until the lease of a job has been renewed for longer than it lasts, and returns its owner.
func renewed(t *testing.T, d *db.DB, id string) string {
	t.Helper()
	read := func() (owner string, fence, until int64) {
		if err := d.QueryRow(t.Context(), `SELECT COALESCE(lease_owner, ''), fence, COALESCE(lease_until, 0) FROM jobs WHERE id = $1`, id).
			Scan(&owner, &fence, &until); err != nil {
			t.Fatal(err)
		}
		return owner, fence, until
	}
	var owner string
	var fence, until int64
	apitest.Eventually(t, maxWait, func() bool { owner, fence, until = read(); return owner != "" }, func() string { return "nobody has the job" })
	apitest.Eventually(t, maxWait, func() bool {
		o, f, u := read()
		if o != owner || f != fence {
			t.Fatalf("%s took the job from %s, which works", o, owner)
		}
		return u > until+(job.TTL+time.Second).Milliseconds()
	}, func() string { return "the lease is not renewed" })
	return owner
}

// freshTokens checks that a and b accept each other's tokens until a sign-out.
func freshTokens(t *testing.T, a, b *apitest.Server) {
	t.Helper()
	ask := func(s *apitest.Server, token string) *apitest.Response {
		t.Helper()
		return s.Do(t, apitest.Request{Path: "/api/v2/credits", Token: token})
	}
	for _, pair := range [][2]*apitest.Server{{a, b}, {b, a}} {
		from, to := pair[0], pair[1]
		u := from.SignIn(t)
		ask(to, u.Token).Expect(200)
		var auth apitest.Auth
		renew(t, to, u.Token).Expect(200).JSON(&auth)
		ask(from, auth.AccessToken).Expect(200)
		u.Send(t, apitest.Request{Method: "POST", Path: "/api/v2/auth/sign-out", Valid: true}).Expect(204)
		for _, s := range pair {
			for _, token := range []string{u.Token, auth.AccessToken} {
				apitest.Eventually(t, maxWait, func() bool { return ask(s, token).Status == 401 },
					func() string { return "a token from before the sign-out is valid" })
			}
		}
		u.SignInAgain(t)
		ask(from, u.Token).Expect(200)
		ask(to, u.Token).Expect(200)
	}
}

// freshLinks checks that a and b accept each other's links to a stem.
func freshLinks(t *testing.T, a, b *apitest.Server, u *apitest.User, id string) {
	t.Helper()
	for _, from := range []*apitest.Server{a, b} {
		path := stemPath(t, at(u, from).Separation(t, id).Stem(t, "voice_all"))
		for _, s := range []*apitest.Server{a, b} {
			s.Do(t, apitest.Request{Path: path}).Expect(200)
		}
	}
}

// metricOf returns a metric without labels.
func metricOf(t *testing.T, s *apitest.Server, name string) float64 {
	t.Helper()
	_, text := s.Ops("/metrics")
	_, rest, _ := strings.Cut(text, "\n"+name+" ")
	value, _, _ := strings.Cut(rest, "\n")
	n, err := strconv.ParseFloat(value, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}
