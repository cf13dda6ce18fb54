// Status requests that wait for a change (Prefer: wait), with tags, limits and a stopping service.

package test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"cutroom/internal/sandbox/fake"
	"cutroom/internal/sandbox/separator"
	"cutroom/internal/testkit/apitest"
)

// status requests a job's status with the headers that are not empty.
func status(t testing.TB, u *apitest.User, path, prefer, tag string) *apitest.Response {
	t.Helper()
	h := http.Header{}
	if prefer != "" {
		h.Set("Prefer", prefer)
	}
	if tag != "" {
		h.Set("If-None-Match", tag)
	}
	return u.Send(t, apitest.Request{Path: path, Header: h, Valid: true})
}

func applied(t testing.TB, res *apitest.Response, want string) *apitest.Response {
	t.Helper()
	if got := res.Header.Get("Preference-Applied"); got != want {
		t.Errorf("Preference-Applied %q, want %q", got, want)
	}
	if res.Header.Get("ETag") == "" {
		t.Error("no ETag")
	}
	return res
}

func TestWaitingForARender(t *testing.T) {
	t.Parallel()
	u := apitest.Shared(t).Replica(0).SignIn(t) // each replica counts its waiting requests
	path := "/api/v2/render/" + u.Render(t, M{"videoDurationMs": 1000}, apitest.File("video", redClip(t))) + "/status"
	var seen []string
	for tag := ""; ; {
		res := status(t, u, path, "wait=30", tag)
		if res.Status == 304 {
			continue
		}
		tag = applied(t, res.Expect(200), "wait=30").Header.Get("ETag")
		var body struct{ Status string }
		res.JSON(&body)
		seen = append(seen, body.Status+" "+tag)
		if body.Status == "FAILED" {
			t.Fatalf("%s", res.Body)
		}
		if body.Status == "COMPLETED" {
			break
		}
	}
	if distinct := slices.Compact(slices.Clone(seen)); len(distinct) != len(seen) {
		t.Errorf("an answer came without a change: %v", seen)
	}
	// A client without the current ETag gets a final status at once.
	tag := applied(t, status(t, u, path, "wait=30", "").Expect(200), "wait=30").Header.Get("ETag")
	applied(t, status(t, u, path, "wait=30", `"another", W/"one"`).Expect(200), "wait=30")
	if again := applied(t, status(t, u, path, "", tag).Expect(304), ""); again.Header.Get("ETag") != tag || len(again.Body) > 0 {
		t.Errorf("304 with ETag %s, body %q", again.Header.Get("ETag"), again.Body)
	}
	began := time.Now()
	applied(t, status(t, u, path, "respond-async, wait=1; x=y", tag).Expect(304), "wait=1")
	if took := time.Since(began); took < 900*time.Millisecond || took > 20*time.Second {
		t.Errorf("wait=1 took %v", took)
	}
	for _, prefer := range []string{`x="a, wait=5"`, `x="a\", wait=5, \"b"`, "wait=0", "wait=31", "wait=-1", "wait", "wait=x", "wait=1.5", "respond-async"} {
		applied(t, status(t, u, path, prefer, tag).Expect(304), "")
	}
	status(t, apitest.Shared(t).SignIn(t), path, "wait=30", "").Expect(404)
	// The deletion of the account ends waiting requests.
	answers := fourWait(t, u, path, tag)
	u.Send(t, apitest.Request{Method: "DELETE", Path: "/api/v2/auth/account"}).Expect(204)
	began = time.Now()
	for range cap(answers) {
		(<-answers).Expect(404)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("the requests ended %v after the account's deletion", took)
	}
}

// fourWait starts four waiting requests of a user, and returns when they wait. A fifth request on the same replica
// would not wait.
func fourWait(t testing.TB, u *apitest.User, path, tag string) <-chan *apitest.Response {
	t.Helper()
	answers := make(chan *apitest.Response, 4)
	for range cap(answers) {
		go func() {
			res := status(t, u, path, "wait=30", tag)
			for res.Status == http.StatusNotModified && res.Header.Get("Preference-Applied") == "" { // the request below took its place
				res = status(t, u, path, "wait=30", tag)
			}
			answers <- res
		}()
	}
	apitest.Eventually(t, 25*time.Second, func() bool {
		return status(t, u, path, "wait=1", tag).Expect(304).Header.Get("Preference-Applied") == ""
	}, func() string { return "a fifth request waits too" })
	return answers
}

func TestWaitingForASeparation(t *testing.T) {
	t.Parallel()
	s := apitest.Start(t)
	u := s.Replica(0).SignIn(t) // each replica counts its waiting requests
	s.World.FailSeparator(t, fake.Rule{Step: separator.StepProgress, Kind: fake.KindStall})
	path := "/api/v2/separate/" + u.Separate(t, mixture(t))
	res := status(t, u, path, "", "").Expect(200)
	for !strings.Contains(string(res.Body), "PROCESSING") {
		if next := status(t, u, path, "wait=30", res.Header.Get("ETag")); next.Status != 304 {
			res = next.Expect(200)
		}
	}
	tag := res.Header.Get("ETag")
	// The status does not change while the step stalls.
	answers := fourWait(t, u, path, tag)
	s.World.Heal()
	for status(t, u, path, "", tag).Status == 304 {
		time.Sleep(100 * time.Millisecond)
	}
	changed := time.Now()
	for range cap(answers) {
		res := <-answers
		for res.Status == 304 { // its wait ended without a change
			res = status(t, u, path, "wait=30", tag)
		}
		applied(t, res.Expect(200), "wait=30")
	}
	if took := time.Since(changed); took > 20*time.Second {
		t.Errorf("the responses arrived %v after the change", took)
	}
	u.WaitReady(t, strings.TrimPrefix(path, "/api/v2/separate/"))
	// Every response has new links, but the ETag does not change.
	one := u.Get(t, path).Expect(200)
	time.Sleep(time.Second) // the expiry in a token has a resolution of one second
	two := u.Get(t, path).Expect(200)
	if string(one.Body) == string(two.Body) || one.Header.Get("ETag") != two.Header.Get("ETag") {
		t.Errorf("two answers with ETags %s and %s", one.Header.Get("ETag"), two.Header.Get("ETag"))
	}
}

func TestAStoppingServiceAnswersWaitingRequests(t *testing.T) {
	t.Parallel()
	s := apitest.Start(t)
	u := s.Replica(0).SignIn(t) // each replica counts its waiting requests
	path := "/api/v2/render/" + u.Render(t, M{"videoDurationMs": 1000}, apitest.File("video", redClip(t)))
	u.WaitRendered(t, strings.TrimPrefix(path, "/api/v2/render/"))
	tag := status(t, u, path+"/status", "", "").Expect(200).Header.Get("ETag")
	answers := fourWait(t, u, path+"/status", tag)
	began := time.Now()
	s.Stop(t)
	for range cap(answers) {
		(<-answers).Expect(304)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("stopping took %v with waiting requests", took)
	}
}
