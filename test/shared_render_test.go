package test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"cutroom/internal/testkit/apitest"
	"cutroom/internal/testkit/mediatest"
)

// sharedRender is a service of two replicas on one database and bucket, and a film of eight parts that keep both busy.
func sharedRender(t *testing.T) (*apitest.Server, *apitest.User, string) {
	t.Helper()
	s := startPair(t, apitest.Env("RENDER_MAX_CONCURRENT", "1"))
	u := s.SignIn(t)
	config, files := eightParts(t)
	return s, u, u.Render(t, config, files...)
}

func eightParts(t *testing.T) (config M, files []apitest.Part) {
	var segments []M
	for i := range 8 {
		name := fmt.Sprintf("video_%d", i)
		clip := fixture(t, name, func(t testing.TB) string {
			return mediatest.Clip(t, mediatest.Spec{Width: 320, Height: 180, Duration: time.Second, Tone: 300 + 50*float64(i)})
		})
		segments = append(segments, apitest.Segment(name, i, time.Second))
		files = append(files, apitest.File(name, clip))
	}
	return M{"segments": segments, "quality": "high"}, files
}

// claimer returns the number of the replica that has claimed the render.
func claimer(t *testing.T, s *apitest.Server) (i int) {
	t.Helper()
	apitest.Eventually(t, maxWait, func() bool {
		i = slices.IndexFunc([]string{s.Replica(0).Logs(), s.Replica(1).Logs()}, func(log string) bool { return strings.Contains(log, "render claimed") })
		return i >= 0
	}, func() string { return "the render is not claimed" })
	return i
}

// A stopping replica hands its parts back and exits cleanly. The other replica finishes the film.
func TestAStoppedReplicaHandsItsWorkBack(t *testing.T) {
	t.Parallel()
	s, u, id := sharedRender(t)
	renders := claimer(t, s)
	apitest.Eventually(t, maxWait, func() bool { return encoders(s, renders) > 0 },
		func() string { return "the render does not start" })
	s.Replica(renders).Stop(t) // fails unless the exit status is 0
	if log := s.Replica(renders).Logs(); !strings.Contains(log, "render handed back") {
		t.Errorf("the render was not handed back:\n%s", log)
	}
	left := at(u, s.Replica(1-renders))
	left.WaitRendered(t, id)
	isFilm(t, left.Download(t, id), 320, 180, "30/1", 8*time.Second)
	if log := s.Logs(); strings.Contains(log, "not handed back") || strings.Contains(log, "requeued") {
		t.Error("the other replica waited until the lease of a part expired")
	}
}

func TestARenderSurvivesTheLossOfAReplica(t *testing.T) {
	t.Parallel()
	s, u, id := sharedRender(t)
	apitest.Eventually(t, maxWait, func() bool { return u.Status(t, id).Progress >= 20 },
		func() string { return "the render does not start" })
	lost := claimer(t, s)
	s.KillReplica(t, lost)
	left := at(u, s.Replica(1-lost))
	left.WaitRendered(t, id)
	film := left.Download(t, id)
	isFilm(t, film, 320, 180, "30/1", 8*time.Second)
	config, files := eightParts(t)
	if alone := apitest.Start(t, apitest.Replicas(1)).SignIn(t).RenderFilm(t, config, files...); mediatest.Digest(t, alone) != mediatest.Digest(t, film) {
		t.Error("the film differs from one that a single replica makes")
	}
}
