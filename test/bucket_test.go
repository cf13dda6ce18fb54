package test

import (
	"bytes"
	"context"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"cutroom/internal/apitest"
	"cutroom/internal/mediatest"
	"cutroom/internal/sandbox/fake"
	"cutroom/internal/sandbox/separator"
)

// startOn starts one replica on a store of its own.
func startOn(t *testing.T, f *flakyStore, extra ...apitest.Option) *apitest.Server {
	t.Helper()
	return apitest.Start(t, append(append(f.env(), apitest.Replicas(1)), extra...)...)
}

// sharedKeys are what replicas of one service have in common.
var sharedKeys = []string{"DATABASE_URL", "DB_USER", "DB_PASSWORD", "AUTH_JWT_SECRET", "SEPARATION_SIGNING_SECRET",
	"AUTH_PROVIDER_A_CLIENT_IDS", "AUTH_PROVIDER_A_TOKENINFO_URL", "SEPARATION_PROVIDER_API_KEY", "SEPARATION_PROVIDER_SPACE_ID",
	"SEPARATION_PROVIDER_BASE_URL", "SEPARATION_PROVIDER_STORAGE_BASE_URL", "PUBLIC_BASE_URL"}

// startPeer starts a second replica of a's service on a disk of its own, as on
// another machine: all they share is the database and the bucket. It ends
// before a does.
func startPeer(t *testing.T, a *apitest.Server, f *flakyStore) *apitest.Server {
	t.Helper()
	var same []apitest.Option
	for _, key := range sharedKeys {
		same = append(same, apitest.Env(key, a.Config(key)))
	}
	return startOn(t, f, same...)
}

// at is the user as seen through another replica.
func at(u *apitest.User, s *apitest.Server) *apitest.User {
	moved := *u
	moved.Server = s
	return &moved
}

func needPostgres(t *testing.T) {
	t.Helper()
	if !apitest.Postgres() {
		t.Skip("several replicas need PostgreSQL")
	}
}

func TestStoreDownIsSaidSoAndPasses(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	f := newFlakyStore(t)
	s := startOn(t, f)
	u := s.SignIn(t, apitest.Credits(10))
	job := u.WaitReady(t, u.Separate(t, mixture(t)))
	stem := stemPath(t, job.Stem(t, "voice_all"))
	before := u.Balance(t)
	form := func(path string, parts ...apitest.Part) apitest.Request {
		return apitest.Request{Method: "POST", Path: path, Form: parts}
	}
	calls := map[string]apitest.Request{
		"upload url": {Method: "POST", Path: uploadURLPath, JSON: assetRequest(t, blueClip(t), "mp4", "video/mp4")},
		"render by reference": {Method: "POST", Path: "/api/v2/render/v3", JSON: M{"segments": []M{
			{"sourceAssetKey": "assets/" + strings.Repeat("e", 64) + ".mp4", "order": 0, "durationMs": 1000}}}},
		"separate":     form(separatePath, apitest.SeparationForm(mixture(t))...),
		"render":       form("/api/v2/render", apitest.RenderForm(t, M{"videoDurationMs": 500}, apitest.File("video", redClip(t)))...),
		"render input": form("/api/v2/render/inputs", apitest.Part{Name: "video", Path: redClip(t)}),
		"stem":         {Path: stem},
	}
	outage := f.spoil("", "", 0, down)
	t.Run("down", func(t *testing.T) {
		for name, call := range calls {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				res := u.Send(t, call).Error(503, "unavailable")
				if strings.Contains(string(res.Body), storeSecretText) {
					t.Errorf("the store's words reach the client: %s", res.Body)
				}
			})
		}
		// What needs no bytes goes on.
		if u.Separation(t, job.JobID).Status != "READY" {
			t.Error("the status of a job needs the store")
		}
	})
	if f.spoiledBy(outage) == 0 {
		t.Fatal("nothing asked the store")
	}
	if now := u.Balance(t); now != before {
		t.Errorf("balance %d after refused submissions, want %d", now, before)
	}
	f.heal()
	s.Do(t, apitest.Request{Path: stem}).Expect(200)
	u.WaitReady(t, u.Separate(t, mixture(t)))
	noFilesLeft(t, s)
}

// Each step of a separation that moves bytes to or from the store survives a
// connection that breaks in the middle, and a store that is gone for a while.
func TestSeparationOnABadLine(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	f := newFlakyStore(t)
	s := startOn(t, f)
	u := s.SignIn(t, apitest.Credits(10))
	for name, spoil := range map[string]func() *storeFault{
		"source going up":   func() *storeFault { return f.spoil("PUT", "/uploads/sep-", 2, cutUpload) },
		"source coming":     func() *storeFault { return f.spoil("GET", "/uploads/sep-", 3, cutDownload(10_000)) },
		"stems going up":    func() *storeFault { return f.spoil("PUT", "/separation/", 3, cutUpload) },
		"store gone":        func() *storeFault { return f.spoil("GET", "/uploads/sep-", 6, down) },
		"store gone later":  func() *storeFault { return f.spoil("PUT", "/separation/", 6, down) },
		"everything slowly": func() *storeFault { return f.spoil("", "/sep", 0, slow(400_000)) },
	} {
		t.Run(name, func(t *testing.T) {
			defer f.heal()
			fault := spoil()
			before := u.Balance(t)
			job := u.WaitReady(t, u.Separate(t, mixture(t)))
			if f.spoiledBy(fault) == 0 {
				t.Fatal("nothing was spoiled")
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
	if n := len(s.World.Separator.Projects()); n != 6 {
		t.Errorf("the provider was asked for %d projects, want 6", n)
	}
}

// While stems cannot be stored there is nothing to download, and a job that
// never gets them stored fails and is refunded.
func TestNoStemIsShownBeforeAllAreStored(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	f := newFlakyStore(t)
	s := startOn(t, f)
	u := s.SignIn(t)
	before := u.Balance(t)
	fault := f.spoil("PUT", "/background.", 0, cutUpload) // the last of them
	id := u.Separate(t, mixture(t))
	var job apitest.SeparationStatus
	apitest.Eventually(t, time.Minute, func() bool {
		job = u.Separation(t, id)
		if job.Status == "READY" || len(job.Stems) > 0 && job.Status != "READY" {
			t.Fatalf("%s with %d stems while one cannot be stored", job.Status, len(job.Stems))
		}
		return f.spoiledBy(fault) > 0
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

// A stem is served whole or visibly broken off, never short.
func TestStemsOnABadLine(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	f := newFlakyStore(t)
	s := startOn(t, f)
	u := s.SignIn(t)
	path := stemPath(t, u.WaitReady(t, u.Separate(t, mixture(t))).Stem(t, "voice_all"))
	whole := s.Do(t, apitest.Request{Path: path}).Expect(200).Body
	f.spoil("GET", "/separation/", 2, cutDownload(5000))
	if got := s.Do(t, apitest.Request{Path: path}).Expect(200).Body; !bytes.Equal(got, whole) {
		t.Errorf("%d other bytes after a broken connection", len(got))
	}
	f.heal()
	f.spoil("GET", "/separation/", 1, cutDownload(100))
	part := s.Do(t, apitest.Request{Path: path, Header: http.Header{"Range": {"bytes=1000-4999"}}}).Expect(206)
	if !bytes.Equal(part.Body, whole[1000:5000]) {
		t.Error("another range after a broken connection")
	}
	f.heal()
	f.spoil("GET", "/separation/", 0, cutDownload(10_000)) // always breaks off at the same place
	if res, err := http.Get(s.URL + path); err == nil {    // else broken off before the status: nobody takes it for a stem
		defer res.Body.Close()
		got, err := io.ReadAll(res.Body)
		if res.StatusCode == 200 && err == nil && !bytes.Equal(got, whole) {
			t.Errorf("a download that could not be finished ends well after %d of %d bytes", len(got), len(whole))
		}
	}
	f.heal()
	f.spoil("GET", "/separation/", 0, down) // the bytes cannot be had at all
	failed := s.Do(t, apitest.Request{Path: path}).Expect(503)
	for _, name := range []string{"Content-Disposition", "Content-Range", "ETag"} {
		if v := failed.Header.Get(name); v != "" {
			t.Errorf("the failure has the stem's %s: %s", name, v)
		}
	}
}

// Two machines that share nothing but database and bucket are one service.
func TestEitherReplicaServesEverything(t *testing.T) {
	t.Parallel()
	needPostgres(t)
	f := newFlakyStore(t)
	a := startOn(t, f)
	b := startPeer(t, a, f)
	u := a.SignIn(t, apitest.Credits(10))
	both := []*apitest.User{u, at(u, b)}
	var jobs []string
	for i := range 4 {
		jobs = append(jobs, both[i%2].Separate(t, mixture(t)))
	}
	for i, id := range jobs {
		job := both[(i+1)%2].WaitReady(t, id)
		path := stemPath(t, job.Stem(t, "voice_all"))
		first, second := a.Do(t, apitest.Request{Path: path}).Expect(200), b.Do(t, apitest.Request{Path: path}).Expect(200)
		if !bytes.Equal(first.Body, second.Body) || first.Header.Get("ETag") != second.Header.Get("ETag") {
			t.Errorf("%s: the replicas serve different stems", id)
		}
	}
	// An asset uploaded by way of one is there for the other.
	key := uploadAsset(t, u, blueClip(t), "mp4", "video/mp4")
	var again uploadURL
	both[1].Post(t, uploadURLPath, assetRequest(t, blueClip(t), "mp4", "video/mp4")).Expect(200).JSON(&again)
	if !again.AlreadyExists || again.AssetKey != key {
		t.Errorf("the other replica says %+v", again)
	}
	// So is a cached video.
	var input struct{ InputID string }
	u.Send(t, apitest.Request{Method: "POST", Path: "/api/v2/render/inputs", Form: []apitest.Part{{Name: "video", Path: redClip(t)}}}).
		Expect(200).JSON(&input)
	both[1].Send(t, apitest.Request{Method: "POST", Path: "/api/v2/render", Form: []apitest.Part{
		{Name: "inputId", Text: input.InputID}, {Name: "config", Text: `{"videoDurationMs":500}`}}}).Expect(200)
	if n := len(a.World.Separator.Projects()); n != len(jobs) {
		t.Errorf("%d projects at the provider, want %d", n, len(jobs))
	}
	a.Stop(t)
	for _, id := range jobs {
		b.Do(t, apitest.Request{Path: stemPath(t, both[1].Separation(t, id).Stem(t, "background"))}).Expect(200)
	}
}

// A job whose replica is lost with its disk goes on elsewhere.
func TestAnotherMachineFinishesWhatOneLost(t *testing.T) {
	t.Parallel()
	needPostgres(t)
	for _, state := range []string{"SUBMITTING", "PROCESSING"} {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			f := newFlakyStore(t)
			a := startOn(t, f)
			u := a.SignIn(t)
			if state == "SUBMITTING" {
				a.World.FailSeparator(t, fake.Rule{Step: separator.StepUploadToken, Kind: fake.KindStall})
			} else {
				a.World.Separator.Configure(func(b *separator.Behaviour) { b.HoldAtPercent = 50 })
			}
			id := u.Separate(t, mixture(t))
			apitest.Eventually(t, time.Minute, func() bool { return u.Separation(t, id).Status == state },
				func() string { return id + " is not " + state })
			a.Kill9(t)
			a.World.Heal()
			a.World.Separator.Configure(func(b *separator.Behaviour) { b.HoldAtPercent = 0 })
			b := startPeer(t, a, f)
			job := at(u, b).WaitReady(t, id)
			b.Do(t, apitest.Request{Path: stemPath(t, job.Stem(t, "voice_all"))}).Expect(200)
			if n := len(a.World.Separator.Projects()); n != 1 {
				t.Errorf("%d projects at the provider, want 1", n)
			}
		})
	}
}

// front passes requests to the replicas that are in it, in turn, as the
// reverse proxy of a deployment does.
type front struct {
	*httptest.Server
	mu      sync.Mutex
	targets []*target
	turn    int
	broken  []string // requests that no replica answered
}

type target struct {
	url *url.URL
	has sync.WaitGroup // requests under way
}

func newFront(t *testing.T, replicas ...*apitest.Server) *front {
	t.Helper()
	f := &front{}
	for _, r := range replicas {
		f.add(t, r.URL)
	}
	// One connection a request, as deploy/nginx has it: a replica that stops
	// never closes one on which a request is just being sent.
	proxy := &httputil.ReverseProxy{
		Transport: &http.Transport{DisableKeepAlives: true},
		Rewrite:   func(p *httputil.ProxyRequest) { p.SetURL(p.In.Context().Value(f).(*url.URL)); p.Out.Host = p.In.Host },
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			f.mu.Lock()
			f.broken = append(f.broken, r.Method+" "+r.URL.Path+": "+err.Error())
			f.mu.Unlock()
			w.WriteHeader(http.StatusBadGateway)
		},
	}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		to := f.next()
		defer to.has.Done()
		proxy.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), f, to.url)))
	}))
	t.Cleanup(f.Close)
	return f
}

func (f *front) next() *target {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.turn++
	to := f.targets[f.turn%len(f.targets)]
	to.has.Add(1)
	return to
}

func (f *front) add(t *testing.T, address string) {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.targets = append(f.targets, &target{url: u})
}

// remove returns when the replica has answered what was passed to it: the script
// gives it a second for that.
func (f *front) remove(address string) {
	f.mu.Lock()
	i := slices.IndexFunc(f.targets, func(to *target) bool { return to.url.String() == address })
	gone := f.targets[i]
	f.targets = slices.Delete(f.targets, i, i+1)
	f.mu.Unlock()
	gone.has.Wait()
}

// Replicas are replaced one after the other under load, as
// deploy/rolling-restart.sh does it: no request fails and no job is lost.
func TestRollingRestartLosesNothing(t *testing.T) {
	t.Parallel()
	needPostgres(t)
	f := newFlakyStore(t)
	a := startOn(t, f)
	replicas := []*apitest.Server{a}
	for len(replicas) < max(2, apitest.Replication()) {
		replicas = append(replicas, startPeer(t, a, f))
	}
	entry := newFront(t, replicas...)

	var users []*apitest.User
	for range 3 {
		users = append(users, a.SignIn(t, apitest.Credits(20)))
	}
	stop := make(chan struct{})
	jobs := make([][]string, len(users))
	var polls int
	var mu sync.Mutex
	var load sync.WaitGroup
	for i, u := range users {
		load.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					if len(jobs[i]) >= 2 { // on a busy machine the load comes late
						return
					}
				default:
				}
				res := through(t, entry.URL, u, apitest.Request{Path: "/api/v2/credits"})
				if res != http.StatusOK {
					t.Errorf("a poll was answered with %d", res)
				}
				mu.Lock()
				polls++
				mu.Unlock()
				if n%5 == 0 && len(jobs[i]) < 6 {
					jobs[i] = append(jobs[i], submitThrough(t, entry.URL, u))
				}
				time.Sleep(20 * time.Millisecond) // the pace of a client
			}
		})
	}
	for _, s := range replicas {
		entry.remove(s.URL)
		s.Stop(t)
		s.Restart(t)
		entry.add(t, s.URL)
	}
	close(stop)
	load.Wait()
	if len(entry.broken) > 0 {
		t.Errorf("%d requests were lost: %s", len(entry.broken), entry.broken[0])
	}
	total := 0
	for i, u := range users {
		for _, id := range jobs[i] {
			u.WaitReady(t, id)
			total++
		}
	}
	t.Logf("%d jobs and %d polls while %d replicas were replaced", total, polls, len(replicas))
	if n := len(a.World.Separator.Projects()); n != total {
		t.Errorf("%d projects at the provider for %d jobs", n, total)
	}
}

// through sends a request to the front and returns the status.
func through(t *testing.T, address string, u *apitest.User, r apitest.Request) int {
	t.Helper()
	return u.Outside(t, "GET", address+r.Path, http.Header{"Authorization": {"Bearer " + u.Token}}, nil).Status
}

// multipartOf encodes a form of files and texts.
func multipartOf(t *testing.T, parts []apitest.Part) (body []byte, contentType string) {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for _, p := range parts {
		var err error
		if p.Path == "" {
			err = w.WriteField(p.Name, p.Text)
		} else {
			var part io.Writer
			if part, err = w.CreateFormFile(p.Name, p.Filename); err == nil {
				_, err = part.Write(readFile(t, p.Path))
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), w.FormDataContentType()
}

// submitThrough submits a separation to the front.
func submitThrough(t *testing.T, address string, u *apitest.User) string {
	t.Helper()
	body, contentType := multipartOf(t, apitest.SeparationForm(mixture(t)))
	res := u.Outside(t, "POST", address+separatePath, http.Header{"Authorization": {"Bearer " + u.Token}, "Content-Type": {contentType}}, body)
	var job struct{ JobID string }
	if res.Status != http.StatusAccepted {
		t.Errorf("a submission was answered with %d: %s", res.Status, res.Body)
		return ""
	}
	res.JSON(&job)
	return job.JobID
}
