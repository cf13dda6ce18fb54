package soak

import (
	"testing"
	"time"

	"cutroom/internal/apitest"
	"cutroom/internal/dbtest"
	"cutroom/internal/mediatest"
	"cutroom/internal/sandbox/separator"
)

// recovery is the time after the promotion within which the service must accept requests.
const recovery = time.Minute

// The primary crashes during separations and renders. Its synchronous standby is promoted.
func TestNothingIsLostWhenAStandbyTakesOver(t *testing.T) {
	if !apitest.Postgres() {
		t.Skip("the embedded database has no standby")
	}
	t.Setenv("CUTROOM_TEST_S3", "") // the test lists the stand-in's objects
	pair := dbtest.StartPair(t)
	address, user, password := pair.Address()
	const seed = 1
	k := start(t, seed, apitest.Env("DATABASE_URL", address), apitest.Env("DB_USER", user), apitest.Env("DB_PASSWORD", password))
	k.s.World.Separator.Configure(func(b *separator.Behaviour) { b.ProcessingMs = 2000 })
	clip := mediatest.Clip(t, mediatest.Spec{Width: 640, Height: 360, Duration: 6 * time.Second})
	film := apitest.M{"segments": []apitest.M{apitest.Segment("video_0", 0, 6*time.Second)}}
	var renders []string
	for _, u := range k.users[:4] {
		renders = append(renders, u.Render(t, film, apitest.File("video_0", clip)))
	}
	stop := k.work(seed)
	apitest.Eventually(t, time.Minute, func() bool { return k.states()["PROCESSING"] == limit }, func() string { return "no separation is under way" })
	before := len(k.s.World.Separator.Titles())

	k.away.Store(true)
	if err := pair.Fail(); err != nil {
		t.Logf("the primary stopped: %v", err)
	}
	time.Sleep(2 * time.Second) // the time that failure detection takes
	if err := pair.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	promoted := time.Now()
	for _, s := range k.direct {
		apitest.Eventually(t, recovery, func() bool {
			return s.Do(t, apitest.Request{Path: "/api/v2/credits", Token: k.users[0].Token}).Status == 200
		}, func() string { return "a replica does not find the new primary" })
	}
	t.Logf("requests are answered %v after the promotion", time.Since(promoted).Round(10*time.Millisecond))
	apitest.Eventually(t, recovery, func() bool { _, err := k.active(); return err == nil }, func() string { return "the test does not find it" })
	k.away.Store(false)

	time.Sleep(5 * time.Second) // more jobs run
	stop()
	for i, id := range renders {
		k.users[i].WaitRendered(t, id)
	}
	k.settle()
	if after := len(k.s.World.Separator.Titles()); after <= before {
		t.Errorf("%d projects at the provider before, %d after", before, after)
	}
	k.judge()
	k.report()
}
