package test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cutroom/internal/sandbox/separator"
	"cutroom/internal/testkit/apitest"
	"cutroom/internal/testkit/mediatest"
)

// noisyClip makes five seconds that are expensive to encode.
func noisyClip(t testing.TB) string {
	return fixture(t, "noisy", func(t testing.TB) string {
		path := filepath.Join(t.TempDir(), "noisy.mp4")
		mediatest.FFmpeg(t, "-f", "lavfi", "-i", "testsrc2=s=640x360:r=25:d=5,noise=alls=20:allf=t",
			"-f", "lavfi", "-i", "sine=440:d=5:r=48000", "-c:v", "libx264", "-qp", "20", "-preset", "ultrafast",
			"-pix_fmt", "yuv420p", "-c:a", "aac", "-ac", "2", path)
		return path
	})
}

const noisyLength = 5 * time.Second

// longRender returns a render of noisyClip that takes several seconds.
func longRender() M {
	return M{"segments": []M{apitest.Segment("video_0", 0, noisyLength)}}
}

// inProgress waits until a render is PROCESSING, and checks that it has not ended.
func inProgress(t testing.TB, u *apitest.User, id string) {
	t.Helper()
	var st apitest.RenderStatus
	apitest.Eventually(t, maxWait, func() bool {
		if st = u.Status(t, id); st.Status == "COMPLETED" || st.Status == "FAILED" {
			t.Fatalf("%s is already %s: %s", id, st.Status, st.Error)
		}
		return st.Status == "PROCESSING" && st.Progress > 0
	}, func() string { return fmt.Sprintf("%s is %s at %d", id, st.Status, st.Progress) })
}

func TestARenderSurvivesAStopAndAKill(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t) // TestARenderSurvivesTheLossOfAReplica kills on PostgreSQL
	s := apitest.Start(t)
	u := s.SignIn(t)
	// Several parts and a stretched sound, of which the next attempt finds some in the cache.
	edit := M{"segments": []M{apitest.With(apitest.Segment("video_0", 0, noisyLength), M{"trimEndMs": 2600}),
		apitest.With(apitest.Segment("video_0", 1, noisyLength), M{"trimStartMs": 1000, "trimEndMs": 3000}),
		apitest.With(apitest.Segment("video_0", 2, noisyLength), M{"trimStartMs": 2200, "speedScale": 2})}}
	files := []apitest.Part{apitest.File("video_0", noisyClip(t)), apitest.File("bgm_0", music(t))}
	edit["bgmClips"] = []M{{"audioFileKey": "bgm_0", "startMs": 0, "speed": 0.8}}
	id := u.Render(t, edit, files...)
	for _, end := range []func(*apitest.Server, testing.TB){(*apitest.Server).Stop, (*apitest.Server).Kill9} {
		inProgress(t, u, id)
		end(s, t)
		s.Restart(t)
	}
	u.WaitRendered(t, id)
	film := u.Download(t, id)
	isFilm(t, film, 640, 360, "25/1", 6*time.Second)
	if undisturbed := s.SignIn(t).RenderFilm(t, edit, files...); mediatest.Digest(t, film) != mediatest.Digest(t, undisturbed) {
		t.Error("the film differs from that of an undisturbed render")
	}
	if b := u.Balance(t); b != 3 {
		t.Errorf("balance %d: a render costs nothing", b)
	}
	noFilesLeft(t, s)
}

// A separation continues after its replica was killed, on the same machine or, where replicas share the files, on
// another.
func TestKillInTheMiddleOfASeparation(t *testing.T) {
	t.Parallel()
	one := apitest.Env("SEPARATION_MAX_PROVIDER_IN_FLIGHT", "1")
	for _, state := range []string{"QUEUED", "SUBMITTING", "PROCESSING"} {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			s := apitest.Start(t, one, apitest.Bucket(apitest.Postgres()))
			u := s.SignIn(t)
			want := 2
			switch state {
			case "QUEUED": // behind another job
				s.World.Separator.Configure(func(b *separator.Behaviour) { b.HoldAtPercent = 50 })
				// A job that is killed while it creates its project would fail and be refunded.
				u.WaitSeparation(t, u.Separate(t, mixture(t)), "PROCESSING")
				want = 1
			case "SUBMITTING":
				s.World.FailSeparator(t, stallOnce(separator.StepUpload))
			case "PROCESSING":
				s.World.Separator.Configure(func(b *separator.Behaviour) { b.HoldAtPercent = 50 })
			}
			id := u.Separate(t, mixture(t))
			u.WaitSeparation(t, id, state)
			s.Kill9(t)
			s.World.Heal()
			s.World.Separator.Configure(func(b *separator.Behaviour) { b.HoldAtPercent = 0 })
			if apitest.Postgres() {
				u = at(u, startPeer(t, s, one))
			} else {
				s.Restart(t)
			}
			job := u.WaitReady(t, id)
			if b := u.Balance(t); b != want {
				t.Errorf("balance %d, want %d: charged once", b, want)
			}
			paid := 0
			for _, title := range s.World.Separator.Titles() {
				if strings.Contains(title, id) {
					paid++
				}
			}
			if paid != 1 {
				t.Errorf("the provider was paid %d times", paid)
			}
			u.Do(t, apitest.Request{Path: stemPath(t, job.Stem(t, "voice_all"))}).Expect(200)
		})
	}
}
