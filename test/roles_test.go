package test

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"cutroom/internal/testkit/apitest"
)

// Replicas with one role each complete a render and a separation.
func TestReplicasWithOneRoleEach(t *testing.T) {
	t.Parallel()
	needPostgres(t)
	const api, render, separation, sweep = 0, 1, 2, 3
	s := apitest.Start(t, apitest.Roles("api", "render", "separation,sweep", "sweep"))
	// Sweeping needs no ffmpeg.
	last := s.Replica(sweep)
	last.Stop(t)
	last.SetEnv("PATH", "/no/such/folder")
	last.Restart(t)
	leaders := func() (who []int) {
		for i := range s.Processes() {
			if _, text := s.Replica(i).Ops("/metrics"); strings.Contains(text, "\ncutroom_sweep_leader 1\n") {
				who = append(who, i)
			}
		}
		return who
	}
	apitest.Eventually(t, maxWait, func() bool { return len(leaders()) > 0 }, func() string { return "no replica sweeps" })
	led := leaders()
	if len(led) != 1 || led[0] < separation {
		t.Errorf("replicas %v sweep, want one of the last two", led)
	}
	for i := range s.Processes() {
		for _, path := range []string{"/healthz", "/readyz"} {
			var status int
			var body string
			apitest.Eventually(t, maxWait, func() bool { status, body = s.Replica(i).Ops(path); return status == 200 },
				func() string { return fmt.Sprintf("replica %d: %s %d %s", i, path, status, body) })
		}
		_, text := s.Replica(i).Ops("/metrics")
		if has := strings.Contains(text, "\ncutroom_media_slots "); has != (i == render) {
			t.Errorf("replica %d has metrics of slots: %v", i, has)
		}
		if conn, err := net.Dial("tcp", "127.0.0.1:"+s.Replica(i).Config("PORT")); (err == nil) != (i == api) {
			t.Errorf("replica %d: connection to its public port: %v", i, err)
		} else if err == nil {
			conn.Close()
		}
	}

	u := s.SignIn(t)
	sep := u.Separate(t, mixture(t))
	film := u.Render(t, M{"videoDurationMs": 500}, apitest.File("video", redClip(t)))
	u.WaitRendered(t, film)
	u.Download(t, film)
	u.DownloadStem(t, u.WaitReady(t, sep).Stem(t, "voice_all"))
	for i := range s.Processes() {
		for line, by := range map[string]int{"render claimed": render, "separation claimed": separation} {
			if claims := strings.Contains(s.Replica(i).Logs(), line); claims != (i == by) {
				t.Errorf("replica %d: logged %q: %v", i, line, claims)
			}
		}
	}

	// The other replica sweeps after the first one's lease has expired: 9 s after the last renewal, plus at most 3 s
	// until the next attempt.
	s.KillReplica(t, led[0])
	apitest.Eventually(t, maxWait, func() bool { return slices.Equal(leaders(), []int{separation + sweep - led[0]}) },
		func() string { return "no replica sweeps" })
}
