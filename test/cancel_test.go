// DELETE of renders and separations in every state: processes end, files go, and the job is unknown.

package test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"cutroom/internal/sandbox/fake"
	"cutroom/internal/sandbox/separator"
	"cutroom/internal/testkit/apitest"
	"cutroom/internal/testkit/benchtest"
)

// deleteJob deletes a job and checks that it is then unknown.
func deleteJob(t testing.TB, u *apitest.User, path string) {
	t.Helper()
	u.Send(t, apitest.Request{Method: "DELETE", Path: path, Valid: true}).Expect(204)
	checkUnknown(t, u, path)
}

// checkUnknown checks that every endpoint responds as for an unknown job.
func checkUnknown(t testing.TB, u *apitest.User, path string) {
	t.Helper()
	again := u.Send(t, apitest.Request{Method: "DELETE", Path: path, Valid: true}).Expect(404)
	list, id := path[:strings.LastIndexByte(path, '/')], path[strings.LastIndexByte(path, '/')+1:]
	reads := []string{path}
	if strings.HasSuffix(list, "render") {
		reads = []string{path + "/status", path + "/download", path + "/poster"}
	}
	for _, read := range reads {
		if res := u.Get(t, read).Expect(404); string(res.Body) != string(again.Body) {
			t.Errorf("%s: %s, but a second DELETE: %s", read, res.Body, again.Body)
		}
	}
	if slices.Contains(ids(history(t, u, list, "100")), id) {
		t.Errorf("%s is still listed", id)
	}
}

// encoders counts the ffmpeg processes that descend from a replica.
func encoders(s *apitest.Server, replica int) int { return benchtest.Running(s.PID(replica), "ffmpeg") }

// longFilm is a film of many parts, each of which takes at least a second to encode.
func longFilm() M {
	var segments []M
	for i := range 40 {
		segments = append(segments, apitest.With(apitest.Segment("video_0", i, noisyLength), M{"trimStartMs": 40 * i}))
	}
	return M{"segments": segments, "quality": "high"}
}

func TestDeleteARunningRender(t *testing.T) {
	t.Parallel()
	s := startPair(t, apitest.Env("RENDER_MAX_CONCURRENT", "1"))
	u := s.SignIn(t)
	id := u.Render(t, longFilm(), apitest.File("video_0", noisyClip(t)))
	path := "/api/v2/render/" + id
	busy := func() (n int) {
		for i := range s.Processes() {
			n += min(1, encoders(s, i))
		}
		return n
	}
	apitest.Eventually(t, maxWait, func() bool { return busy() == s.Processes() },
		func() string { return fmt.Sprintf("%d of %d replicas encode", busy(), s.Processes()) })
	if len(filesOf(t, s, id)) == 0 {
		t.Error("no file name contains the render's id, so this test would find nothing left")
	}
	heard := make(chan *apitest.Response)
	go func() { // waits until the job is gone
		tag := ""
		for {
			res := status(t, u, path+"/status", "wait=30", tag)
			if res.Status == 404 {
				heard <- res
				return
			}
			tag = res.Header.Get("ETag")
		}
	}()
	began := time.Now()
	u.Send(t, apitest.Request{Method: "DELETE", Path: path, Valid: true}).Expect(204)
	for busy() > 0 {
		if took := time.Since(began); took > 15*time.Second { // encoding the film takes longer
			t.Fatalf("%v after the deletion %d replicas still encode", took, busy())
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Logf("the encoders of %d replicas stopped after %v", s.Processes(), time.Since(began))
	<-heard
	checkUnknown(t, u, path)
	waitFilesGone(t, s, id)

	// The slot is free for other jobs. A deleted job that still waits for a slot never runs.
	var open []string
	for range s.Processes() + 1 {
		open = append(open, "/api/v2/render/"+u.Render(t, longFilm(), apitest.File("video_0", noisyClip(t))))
	}
	apitest.Eventually(t, maxWait, func() bool { return busy() == s.Processes() },
		func() string { return "the slots are not free" })
	waiting := open[len(open)-1]
	var st apitest.RenderStatus
	apitest.Eventually(t, maxWait, func() bool {
		st = u.Status(t, waiting[len("/api/v2/render/"):])
		return st.Status != "PENDING" || st.ProgressReason == "queued"
	}, func() string { return fmt.Sprintf("%+v, want PENDING and queued", st) })
	if st.Status != "PENDING" {
		t.Errorf("%+v, want PENDING", st)
	}
	for _, path := range slices.Backward(open) {
		deleteJob(t, u, path)
	}
	film := u.Render(t, M{"videoDurationMs": 500}, apitest.File("video", redClip(t)))
	u.WaitRendered(t, film)
	if out := succeeds(t, s, "job", "show", id); !strings.Contains(out, "deletedAt") {
		t.Errorf("job show: %s", out)
	}
	waitFilesGone(t, s, open[0][len("/api/v2/render/"):], waiting[len("/api/v2/render/"):])
	var totals struct{ TotalRenders int }
	s.Admin(t).Get(t, adminPath+"overview").Expect(200).JSON(&totals)
	if want := len(open) + 2; totals.TotalRenders != want {
		t.Errorf("%d renders in all, want %d", totals.TotalRenders, want)
	}
}

// waitFilesGone waits until no files of the jobs are left.
func waitFilesGone(t testing.TB, s *apitest.Server, jobs ...string) {
	t.Helper()
	var left []string
	apitest.Eventually(t, maxWait, func() bool { left = filesOf(t, s, jobs...); return len(left) == 0 },
		func() string { return "left: " + strings.Join(left, ", ") })
}

func TestDeleteAFinishedRender(t *testing.T) {
	t.Parallel()
	s := apitest.Shared(t)
	u, other := s.SignIn(t), s.SignIn(t)
	request := withKey(apitest.Request{Method: "POST", Path: "/api/v2/render", Valid: true,
		Form: apitest.RenderForm(t, M{"videoDurationMs": 500}, apitest.File("video", redClip(t)))}, "key")
	submit := func() string { return u.Send(t, request).Job(200) }
	id := submit()
	path := "/api/v2/render/" + id
	u.WaitRendered(t, id)
	film := u.Get(t, path+"/download")
	none := other.Send(t, apitest.Request{Method: "DELETE", Path: "/api/v2/render/" + otherID(id), Valid: true}).Expect(404)
	if res := other.Send(t, apitest.Request{Method: "DELETE", Path: path, Valid: true}).Expect(404); string(res.Body) != string(none.Body) {
		t.Errorf("another user's job: %s, an unknown job: %s", res.Body, none.Body)
	}
	u.Get(t, path+"/status").Expect(200)
	// Exactly one of several concurrent deletions succeeds.
	var at sync.WaitGroup
	answers := make([]int, 4)
	for i := range answers {
		at.Go(func() { answers[i] = u.Send(t, apitest.Request{Method: "DELETE", Path: path, Valid: true}).Status })
	}
	at.Wait()
	if slices.Sort(answers); !slices.Equal(answers, []int{204, 404, 404, 404}) {
		t.Errorf("concurrent deletions: %v", answers)
	}
	checkUnknown(t, u, path)
	waitFilesGone(t, s, id)
	if link := film.Header.Get("Location"); link != "" {
		if res := u.Outside(t, "GET", link, nil, nil); res.Status != 404 {
			t.Errorf("the film's link in the bucket: %d", res.Status)
		}
	}
	if again := submit(); again != id {
		t.Errorf("the same key made %s after %s", again, id)
	}
}

func TestDeleteSeparations(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	s := apitest.Start(t, apitest.Env("SEPARATION_MAX_PROVIDER_IN_FLIGHT", "1"))
	u := s.SignIn(t, apitest.Credits(20))
	const prefix = "/api/v2/separate/"
	provider := s.World.Separator
	var jobs []string
	submit := func() string {
		jobs = append(jobs, u.Separate(t, mixture(t)))
		return jobs[len(jobs)-1]
	}
	// remove deletes a job and checks whether it is refunded.
	remove := func(id string, refunded bool) {
		t.Helper()
		before := u.Balance(t)
		deleteJob(t, u, prefix+id)
		want := before
		if refunded {
			want++
		}
		if have := u.Balance(t); have != want {
			t.Errorf("balance %d after the deletion, was %d, want %d", have, before, want)
		}
		waitFilesGone(t, s, id)
	}
	// stuck submits a job and waits until it stalls at a step of the provider.
	stuck := func(step string) string {
		t.Helper()
		s.World.FailSeparator(t, fake.Rule{Step: step, Kind: fake.KindStall, Effect: true})
		before := provider.Faults.Count(step)
		id := submit()
		apitest.Eventually(t, maxWait, func() bool { return provider.Faults.Count(step) > before }, func() string { return "no call of " + step })
		return id
	}
	provider.Configure(func(b *separator.Behaviour) { b.HoldAtPercent = 30 })
	first := submit()
	u.WaitSeparation(t, first, "PROCESSING")
	second := submit()
	u.WaitSeparation(t, second, "QUEUED")
	s.SignIn(t).Send(t, apitest.Request{Method: "DELETE", Path: prefix + first, Valid: true}).Expect(404)
	remove(second, true)
	remove(first, false)
	// The provider takes one job at a time, and still works on the deleted one.
	third := submit()
	u.WaitSeparation(t, third, "QUEUED")
	provider.Configure(func(b *separator.Behaviour) { b.HoldAtPercent = 0 })
	u.WaitReady(t, third)

	fourth := stuck(separator.StepUpload)
	remove(fourth, true)
	s.World.Heal()
	fifth := stuck(separator.StepSubmit)
	remove(fifth, false)
	s.World.Heal()

	sixth := submit() // the provider has a free slot again
	stem := u.WaitReady(t, sixth).Stem(t, "voice_all")
	remove(sixth, false)
	s.Do(t, apitest.Request{Path: stemPath(t, stem), Valid: true}).Expect(404)
	s.Do(t, apitest.Request{Path: strings.Replace(stemPath(t, stem), "?", "/peaks?", 1), Valid: true}).Expect(404)
	for _, selection := range []M{{"stemId": "voice_all", "audioUrl": stem.URL}, {"stemId": "voice_all", "separationJobId": sixth}} {
		config := M{"videoDurationMs": 500, "separationDirectives": []M{{"id": "d", "rangeStartMs": 0, "rangeEndMs": 400, "selections": []M{selection}}}}
		u.Send(t, apitest.Request{Method: "POST", Path: "/api/v2/render", Form: apitest.RenderForm(t, config, apitest.File("video", redClip(t)))}).
			Error(400, "invalid_stem_url")
	}
	u.WaitReady(t, third) // the other deletions have not affected it
	if titles := provider.Titles(); slices.ContainsFunc(titles, func(title string) bool { return strings.Contains(title, second) || strings.Contains(title, fourth) }) {
		t.Errorf("the provider was paid for a refunded job: %v", titles)
	}
	var refunds []string
	var page creditPage
	u.Get(t, "/api/v2/credits/history?limit=100").Expect(200).JSON(&page)
	for _, e := range page.Entries {
		if e.Kind == "refund" {
			refunds = append(refunds, *e.JobID)
		}
	}
	if slices.Sort(refunds); !slices.Equal(refunds, []string{second, fourth}) {
		t.Errorf("refunds of %v, want %s and %s", refunds, second, fourth)
	}
	waitFilesGone(t, s, slices.DeleteFunc(jobs, func(id string) bool { return id == third })...)
}
