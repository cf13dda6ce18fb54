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

	"cutroom/internal/apitest"
	"cutroom/internal/mediatest"
)

// startOn starts one replica on a flaky store.
func startOn(t *testing.T, f *flakyStore, extra ...apitest.Option) *apitest.Server {
	t.Helper()
	return apitest.Start(t, append(append(f.env(), apitest.Replicas(1)), extra...)...)
}

func TestAnOutageOfTheStoreIsReportedAndPasses(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	f := newFlakyStore(t)
	s := startOn(t, f)
	u := s.SignIn(t, apitest.Credits(10))
	job := u.WaitReady(t, u.Separate(t, mixture(t)))
	stem := stemPath(t, job.Stem(t, "voice_all"))
	asset := uploadAsset(t, u, mixture(t), "wav", "audio/wav")
	before := u.Balance(t)
	form := func(path string, parts ...apitest.Part) apitest.Request {
		return apitest.Request{Method: "POST", Path: path, Form: parts}
	}
	calls := map[string]apitest.Request{
		"upload url": {Method: "POST", Path: uploadURLPath, JSON: assetRequest(t, blueClip(t), "mp4", "video/mp4")},
		"render by reference": {Method: "POST", Path: "/api/v2/render/v3", JSON: M{"segments": []M{
			{"sourceAssetKey": "assets/" + strings.Repeat("e", 64) + ".mp4", "order": 0, "durationMs": 1000}}}},
		"separate":              form(separatePath, apitest.SeparationForm(mixture(t))...),
		"render":                form("/api/v2/render", apitest.RenderForm(t, M{"videoDurationMs": 500}, apitest.File("video", redClip(t)))...),
		"render input":          form("/api/v2/render/inputs", apitest.Part{Name: "video", Path: redClip(t)}),
		"stem":                  {Path: stem},
		"stem as WAV":           {Path: stem + "&format=wav"},
		"analysis":              {Method: "POST", Path: analysisPath, JSON: M{"assetKey": asset}},
		"separate by reference": {Method: "POST", Path: separateV3Path, JSON: M{"sourceAssetKey": asset}},
	}
	outage := f.addFault("", "", 0, down)
	t.Run("down", func(t *testing.T) {
		for name, call := range calls {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				res := u.Send(t, call).Error(503, "unavailable")
				if strings.Contains(string(res.Body), storeSecretText) {
					t.Errorf("the store's error text reaches the client: %s", res.Body)
				}
			})
		}
		// Requests that need no bytes succeed.
		if u.Separation(t, job.JobID).Status != "READY" {
			t.Error("the status of a job needs the store")
		}
	})
	if f.hits(outage) == 0 {
		t.Fatal("the store got no request")
	}
	if now := u.Balance(t); now != before {
		t.Errorf("balance %d after refused submissions, want %d", now, before)
	}
	f.heal()
	s.Do(t, apitest.Request{Path: stem}).Expect(200)
	u.WaitReady(t, u.Separate(t, mixture(t)))
	noFilesLeft(t, s)
}

// All steps of a separation that transfer bytes survive a broken connection and a short outage of the
// store.
func TestSeparationOnABadLine(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	f := newFlakyStore(t)
	s := startOn(t, f)
	u := s.SignIn(t, apitest.Credits(10))
	for name, spoil := range map[string]func() []*storeFault{
		"broken connections": func() []*storeFault {
			return []*storeFault{f.addFault("PUT", "/uploads/sep-", 2, cutUpload), f.addFault("GET", "/uploads/sep-", 3, cutDownload(10_000)),
				f.addFault("PUT", "/separation/", 3, cutUpload)}
		},
		"store gone twice": func() []*storeFault {
			return []*storeFault{f.addFault("GET", "/uploads/sep-", 6, down), f.addFault("PUT", "/separation/", 6, down)}
		},
		"everything slowly": func() []*storeFault { return []*storeFault{f.addFault("", "/sep", 0, slow(400_000))} },
	} {
		t.Run(name, func(t *testing.T) {
			defer f.heal()
			faults := spoil()
			before := u.Balance(t)
			job := u.WaitReady(t, u.Separate(t, mixture(t)))
			for i, fault := range faults {
				if f.hits(fault) == 0 {
					t.Errorf("fault %d affected no request", i)
				}
			}
			f.heal()
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

// No stem can be downloaded before all are stored. A job whose stems cannot be stored fails and is
// refunded.
func TestNoStemIsShownBeforeAllAreStored(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	f := newFlakyStore(t)
	s := startOn(t, f)
	u := s.SignIn(t)
	before := u.Balance(t)
	fault := f.addFault("PUT", "/background.", 0, cutUpload) // the last stem
	id := u.Separate(t, mixture(t))
	var job apitest.SeparationStatus
	apitest.Eventually(t, maxWait, func() bool {
		job = u.Separation(t, id)
		if job.Status == "READY" || len(job.Stems) > 0 && job.Status != "READY" {
			t.Fatalf("%s with %d stems while one cannot be stored", job.Status, len(job.Stems))
		}
		return f.hits(fault) > 0
	}, func() string { return "the last stem is never stored" })
	f.heal()
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
	f := newFlakyStore(t)
	s := startOn(t, f)
	u := s.SignIn(t)
	path := stemPath(t, u.WaitReady(t, u.Separate(t, mixture(t))).Stem(t, "voice_all"))
	t.Run("ranges cost one request each", func(t *testing.T) { stemRanges(t, s, f, path) })
	f.heal()
	t.Run("broken connections", func(t *testing.T) { stemsOnABadLine(t, s, f, path) })
}

// stemsOnABadLine checks that a download is complete or ends with an error. It never ends early with
// success.
func stemsOnABadLine(t *testing.T, s *apitest.Server, f *flakyStore, path string) {
	t.Helper()
	whole := s.Do(t, apitest.Request{Path: path}).Expect(200).Body
	f.addFault("GET", "/separation/", 2, cutDownload(5000))
	if got := s.Do(t, apitest.Request{Path: path}).Expect(200).Body; !bytes.Equal(got, whole) {
		t.Errorf("%d wrong bytes after a broken connection", len(got))
	}
	f.heal()
	f.addFault("GET", "/separation/", 1, cutDownload(100))
	part := s.Do(t, apitest.Request{Path: path, Header: http.Header{"Range": {"bytes=1000-4999"}}}).Expect(206)
	if !bytes.Equal(part.Body, whole[1000:5000]) {
		t.Error("wrong bytes of a range after a broken connection")
	}
	f.heal()
	f.addFault("GET", "/separation/", 0, cutDownload(10_000)) // always breaks at the same byte
	if res, err := http.Get(s.URL + path); err == nil {       // an error means that no status arrived
		defer res.Body.Close()
		got, err := io.ReadAll(res.Body)
		if res.StatusCode == 200 && err == nil && !bytes.Equal(got, whole) {
			t.Errorf("an incomplete download ended without an error after %d of %d bytes", len(got), len(whole))
		}
	}
	f.heal()
	f.addFault("GET", "/separation/", 0, down)
	failed := s.Do(t, apitest.Request{Path: path}).Expect(503)
	for _, name := range []string{"Content-Disposition", "Content-Range", "ETag"} {
		if v := failed.Header.Get(name); v != "" {
			t.Errorf("the error response has the stem's %s: %s", name, v)
		}
	}
}

// stemRanges checks that a download makes one request to the bucket for each range.
func stemRanges(t *testing.T, s *apitest.Server, f *flakyStore, path string) {
	t.Helper()
	asked := make(chan string, 100)
	f.addFault("", "/separation/", 0, func(f *flakyStore, w http.ResponseWriter, r *http.Request) {
		asked <- r.Method + " " + r.Header.Get("Range")
		f.handler.ServeHTTP(w, r)
	})
	size := len(s.Do(t, apitest.Request{Path: path}).Expect(200).Body)
	whole := fmt.Sprintf("GET bytes=0-%d", size-1)
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
		for len(asked) > 0 {
			<-asked
		}
		r := apitest.Request{Method: c.method, Path: path}
		if c.ranges != "" {
			r.Header = http.Header{"Range": {c.ranges}}
		}
		s.Do(t, r).Expect(c.status)
		var got []string
		for len(asked) > 0 {
			got = append(got, <-asked)
		}
		if !slices.Equal(got, c.asked) {
			t.Errorf("%s %s: the bucket got requests for %q, want %q", c.method, c.ranges, got, c.asked)
		}
	}
}
