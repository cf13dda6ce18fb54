// The service on a bucket that fails: outages, broken connections, and stems that are shown only when all are stored.

package test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"cutroom/internal/sandbox/bucket"
	"cutroom/internal/sandbox/fake"
	"cutroom/internal/testkit/apitest"
	"cutroom/internal/testkit/mediatest"
	"cutroom/internal/testkit/relaytest"
)

// startOnBucket starts one replica on the stand-in bucket, into which tests inject faults.
func startOnBucket(t *testing.T, extra ...apitest.Option) *apitest.Server {
	t.Helper()
	return apitest.Start(t, append(extra, apitest.StandInBucket(), apitest.Replicas(1))...)
}

// bucketDown answers every request like an overloaded store. No client may see its text.
var bucketDown = fake.Rule{Step: fake.AnyStep, Kind: fake.KindStatus, Status: http.StatusServiceUnavailable,
	Headers: map[string]string{"Content-Type": "application/xml"}, Body: "<Error><Code>SlowDown</Code><Message>" + fake.LeakMarker + "</Message></Error>"}

// failing returns a fault of the first requests of a step whose key contains the path.
func failing(kind fake.Kind, step, path string, times int) fake.Rule {
	r := fake.Rule{Step: step, Path: path, Times: times, Kind: kind}
	if kind == fake.KindStatus {
		r.Status, r.Headers, r.Body = bucketDown.Status, bucketDown.Headers, bucketDown.Body
	}
	return r
}

// However the store fails, requests that need it are refused in time and change nothing, and work again afterwards.
func TestAnOutageOfTheStoreIsReportedAndPasses(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	var line *relaytest.Relay
	s := startOnBucket(t, apitest.Relay(&line, "OBJECT_STORE_ENDPOINT"))
	owner := s.SignIn(t)
	job := owner.WaitReady(t, owner.Separate(t, mixture(t)))
	stem := stemPath(t, job.Stem(t, "voice_all"))
	asset := uploadAsset(t, owner, mixture(t), "wav", "audio/wav")
	began := time.Now()
	forbidden := bucketDown
	forbidden.Status = http.StatusForbidden
	for name, begin := range map[string]func(){
		"overloaded": func() { s.World.FailBucket(t, bucketDown) },
		"forbidden":  func() { s.World.FailBucket(t, forbidden) },
		"hangs":      func() { line.Break(relaytest.Fault{HalfOpen: true}) },
		"refuses":    func() { line.Cut() },
	} {
		t.Run(name, func(t *testing.T) {
			u := s.SignIn(t) // a user may submit ten renders a minute
			calls := []apitest.Request{
				{Path: uploadURLPath, JSON: assetRequest(t, blueClip(t), "mp4", "video/mp4")},
				{Path: "/api/v2/render/v3", JSON: ofAsset("assets/"+strings.Repeat("e", 64)+".mp4", 1000)},
				{Path: "/api/v2/render", Form: apitest.RenderForm(t, M{"videoDurationMs": 500}, apitest.File("video", redClip(t)))},
				{Path: "/api/v2/render/inputs", Form: []apitest.Part{{Name: "video", Path: redClip(t)}}},
				{Path: separatePath, Form: apitest.SeparationForm(mixture(t))},
				{Path: separateV3Path, JSON: M{"sourceAssetKey": asset}},
				{Path: analysisPath, JSON: M{"assetKey": asset}},
			}
			for i := range calls {
				calls[i].Method, calls[i].Token = "POST", u.Token
			}
			begin()
			unavailable(t, s, 30*time.Second, append(calls, apitest.Request{Path: stem}, apitest.Request{Path: stem + "&format=wav"})...)
			// Requests that need no bytes succeed.
			if owner.Separation(t, job.JobID).Status != "READY" {
				t.Error("the status of a job needs the store")
			}
			if now := u.Balance(t); now != 3 {
				t.Errorf("balance %d after refused submissions, want 3", now)
			}
			s.World.Heal()
			line.Cut()
			line.Heal()
			line.Connect()
			s.Do(t, apitest.Request{Path: stem}).Expect(200)
			s.Do(t, calls[0]).Expect(200)
		})
	}
	loggedOnceAMinute(t, s, began, "a dependency does not answer", `"of":"object store"`)
	owner.WaitReady(t, owner.Separate(t, mixture(t)))
	noFilesLeft(t, s)
	// A service also starts during an outage, and checks later whether the bucket is its own.
	s.Stop(t)
	s.World.FailBucket(t, bucketDown)
	s.Restart(t)
	s.World.Heal()
}

// All steps of a separation that transfer bytes survive a broken connection and a short outage of the store.
func TestSeparationOnABadLine(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	var line *relaytest.Relay
	s := startOnBucket(t, apitest.Relay(&line, "OBJECT_STORE_ENDPOINT"))
	u := s.SignIn(t, apitest.Credits(10))
	for name, faults := range map[string][]fake.Rule{
		"broken connections": {failing(fake.KindCutUpload, bucket.StepPut, "/uploads/sep-", 2),
			failing(fake.KindCut, bucket.StepGet, "/uploads/sep-", 3), failing(fake.KindCutUpload, bucket.StepPut, "/separation/", 3)},
		"store gone twice": {failing(fake.KindStatus, bucket.StepGet, "/uploads/sep-", 6),
			failing(fake.KindStatus, bucket.StepPut, "/separation/", 6)},
		"everything slowly": nil,
	} {
		t.Run(name, func(t *testing.T) {
			defer s.World.Heal()
			s.World.FailBucket(t, faults...)
			if faults == nil {
				line.Break(relaytest.Fault{Rate: 400_000})
				defer line.Heal()
			}
			before := u.Balance(t)
			job := u.WaitReady(t, u.Separate(t, mixture(t)))
			for i, hits := range s.World.Bucket.Faults.Hits() {
				if hits == 0 {
					t.Errorf("fault %d affected no request", i)
				}
			}
			s.World.Heal()
			for _, stem := range job.Stems {
				mediatest.DurationWithin(t, u.DownloadStem(t, stem), mixtureLength, 50*time.Millisecond)
			}
			if now := u.Balance(t); now != before-1 {
				t.Errorf("balance %d, want %d: one job is charged once", now, before-1)
			}
		})
	}
	if n := len(s.World.Separator.Titles()); n != 3 {
		t.Errorf("%d projects at the provider, want 3", n)
	}
}

// No stem can be downloaded before all are stored. A job whose stems cannot be stored fails and is refunded.
func TestNoStemIsShownBeforeAllAreStored(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	s := startOnBucket(t)
	u := s.SignIn(t)
	before := u.Balance(t)
	s.World.FailBucket(t, failing(fake.KindCutUpload, bucket.StepPut, "/background.", 0)) // the last stem
	id := u.Separate(t, mixture(t))
	var job apitest.SeparationStatus
	apitest.Eventually(t, maxWait, func() bool {
		job = u.Separation(t, id)
		if job.Status == "READY" || len(job.Stems) > 0 && job.Status != "READY" {
			t.Fatalf("%s with %d stems while one cannot be stored", job.Status, len(job.Stems))
		}
		return s.World.Bucket.Faults.Hits()[0] > 0
	}, func() string { return "the last stem is never stored" })
	s.World.Heal()
	job = u.WaitReady(t, id)
	for _, stem := range job.Stems {
		u.DownloadStem(t, stem)
	}
	if now := u.Balance(t); now != before-1 {
		t.Errorf("balance %d, want %d", now, before-1)
	}
}

func TestStemsFromTheBucket(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	s := startOnBucket(t)
	u := s.SignIn(t)
	path := stemPath(t, u.WaitReady(t, u.Separate(t, mixture(t))).Stem(t, "voice_all"))
	t.Run("ranges cost one request each", func(t *testing.T) { stemRanges(t, s, path) })
	t.Run("broken connections", func(t *testing.T) { stemsOnABadLine(t, s, path) })
}

// stemsOnABadLine checks that a download is complete or ends with an error. It never ends early with success.
func stemsOnABadLine(t *testing.T, s *apitest.Server, path string) {
	t.Helper()
	whole := s.Do(t, apitest.Request{Path: path}).Expect(200).Body
	cut := func(bytes int64, times int) {
		s.World.Heal()
		s.World.FailBucket(t, fake.Rule{Step: bucket.StepGet, Path: "/separation/", Times: times, Kind: fake.KindCut, SizeBytes: bytes})
	}
	cut(5000, 2)
	if got := s.Do(t, apitest.Request{Path: path}).Expect(200).Body; !bytes.Equal(got, whole) {
		t.Errorf("%d wrong bytes after a broken connection", len(got))
	}
	cut(100, 1)
	part := s.Do(t, apitest.Request{Path: path, Header: http.Header{"Range": {"bytes=1000-4999"}}}).Expect(206)
	if !bytes.Equal(part.Body, whole[1000:5000]) {
		t.Error("wrong bytes of a range after a broken connection")
	}
	cut(10_000, 0)                                      // always breaks at the same byte
	if res, err := http.Get(s.URL + path); err == nil { // an error means that no status arrived
		defer res.Body.Close()
		got, err := io.ReadAll(res.Body)
		if res.StatusCode == 200 && err == nil && !bytes.Equal(got, whole) {
			t.Errorf("an incomplete download ended without an error after %d of %d bytes", len(got), len(whole))
		}
	}
	s.World.Heal()
	s.World.FailBucket(t, failing(fake.KindStatus, bucket.StepGet, "/separation/", 0))
	failed := s.Do(t, apitest.Request{Path: path}).Expect(503)
	for _, name := range []string{"Content-Disposition", "Content-Range", "ETag"} {
		if v := failed.Header.Get(name); v != "" {
			t.Errorf("the error response has the stem's %s: %s", name, v)
		}
	}
}

// stemRanges checks that a download makes one request to the bucket for each range.
func stemRanges(t *testing.T, s *apitest.Server, path string) {
	t.Helper()
	calls := func() (got []string) { // those that have ended
		for _, call := range s.World.Bucket.Faults.Calls() {
			if strings.Contains(call.Target, "/separation/") {
				got = append(got, call.Method+" "+call.Range)
			}
		}
		return got
	}
	s.World.Bucket.Faults.ResetCalls()
	size := len(s.Do(t, apitest.Request{Path: path}).Expect(200).Body)
	whole := fmt.Sprintf("GET bytes=0-%d", size-1)
	apitest.Eventually(t, maxWait, func() bool { return slices.Contains(calls(), whole) }, func() string { return "no call ended" })
	for _, c := range []struct {
		method, ranges string
		status         int
		asked          []string
	}{
		{"GET", "", 200, []string{whole}},
		{"GET", "bytes=1000-1000", 206, []string{"GET bytes=1000-1000"}},
		{"GET", "bytes=-5", 206, []string{fmt.Sprintf("GET bytes=%d-%d", size-5, size-1)}},
		{"GET", "bytes=0-0, 9-9,0-1,20-29", 206, []string{"GET bytes=0-0", "GET bytes=9-9", "GET bytes=0-1", "GET bytes=20-29"}},
		{"GET", "bytes=0-0,2-2,4-4,6-6,8-8", 200, []string{whole}},
		{"GET", "bytes=5-1", 416, nil},
		{"HEAD", "", 200, nil},
		{"HEAD", "bytes=0-0,9-9", 200, nil},
	} {
		s.World.Bucket.Faults.ResetCalls()
		r := apitest.Request{Method: c.method, Path: path}
		if c.ranges != "" {
			r.Header = http.Header{"Range": {c.ranges}}
		}
		s.Do(t, r).Expect(c.status)
		var got []string
		apitest.Eventually(t, maxWait, func() bool {
			got = calls()
			return len(got) >= len(c.asked)
		}, func() string {
			return fmt.Sprintf("%s %s: the bucket got requests for %q, want %q", c.method, c.ranges, got, c.asked)
		})
		if !slices.Equal(got, c.asked) {
			t.Errorf("%s %s: the bucket got requests for %q, want %q", c.method, c.ranges, got, c.asked)
		}
	}
}
