package drill

import (
	"testing"
	"time"

	"cutroom/internal/sandbox/separator"
	"cutroom/internal/testkit/apitest"
	"cutroom/internal/testkit/dbtest"
	"cutroom/internal/testkit/mediatest"
	"cutroom/test/invariants"
)

// The primary crashes while two replicas run renders and separations, and its synchronous standby is promoted. Every
// job that a client was told of exists afterwards and ends, the ledger matches, and the provider is paid at most once
// for a job. A job may fail if the crash hid the answer to its paid call.
func TestNothingIsLostWhenAStandbyTakesOver(t *testing.T) {
	if !apitest.Postgres() {
		t.Skip("the embedded database has no standby")
	}
	if testing.Short() {
		t.Skip("takes most of a minute")
	}
	d := startStandbyDrill(t, 6*time.Second)
	stop := d.submitJobs()
	defer stop()
	d.wait("work under way", time.Minute, func() bool { return d.count(`state = 'PROCESSING' AND lease_owner IS NOT NULL`) >= 3 })
	before := len(d.s.World.Separator.Titles())
	if err := d.pair.Fail(); err != nil {
		t.Logf("the primary stopped: %v", err)
	}
	time.Sleep(2 * time.Second) // the time that failure detection takes
	d.must(d.pair.Promote(t.Context()))
	promoted := time.Now()
	for i := range d.s.Processes() {
		d.wait("a replica finds the new primary", time.Minute, func() bool {
			return d.s.Replica(i).Do(t, apitest.Request{Path: "/api/v2/credits", Token: d.users[0].Token}).Status == 200
		})
	}
	t.Logf("requests are answered %v after the promotion", time.Since(promoted).Round(10*time.Millisecond))
	d.wait("new jobs reach the provider", time.Minute, func() bool { return len(d.s.World.Separator.Titles()) > before })
	stop()
	d.waitEnded()
	d.judge()
	invariants.PaidOnce(t, d.s.World.Separator.Titles())
}

// startStandbyDrill starts two replicas of the service on a pair of database servers, with users whose films have
// the given length.
func startStandbyDrill(t *testing.T, film time.Duration) *standbyDrill {
	pair := dbtest.StartPair(t)
	address, user, password := pair.Address()
	const all = "api,render,separation,sweep"
	s := apitest.Start(t, apitest.Roles(all, all), apitest.Env("DATABASE_URL", address), apitest.Env("DB_USER", user),
		apitest.Env("DB_PASSWORD", password), apitest.Env("RENDER_MAX_CONCURRENT", "1"))
	s.World.Separator.Configure(func(b *separator.Behaviour) { b.ProcessingMs = 2000 })
	d := &standbyDrill{T: t, s: s, pair: pair, song: mediatest.Tones(t, 300, 1200), film: film,
		clip: mediatest.Clip(t, mediatest.Spec{Width: 640, Height: 360, Duration: film})}
	for range 6 {
		d.users = append(d.users, s.SignIn(t, apitest.Credits(500)))
	}
	return d
}
