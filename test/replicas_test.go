// Several replicas as one service, and a rolling restart under load.

package test

import (
	"bytes"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cutroom/internal/testkit/apitest"
)

// sharedKeys are the settings that replicas of one service have in common.
var sharedKeys = []string{"DATABASE_URL", "DB_USER", "DB_PASSWORD", "AUTH_JWT_SECRET", "SEPARATION_SIGNING_SECRET",
	"AUTH_PROVIDER_A_CLIENT_IDS", "AUTH_PROVIDER_A_TOKENINFO_URL", "SEPARATION_PROVIDER_API_KEY", "SEPARATION_PROVIDER_SPACE_ID",
	"SEPARATION_PROVIDER_BASE_URL", "SEPARATION_PROVIDER_STORAGE_BASE_URL", "PUBLIC_BASE_URL",
	"OBJECT_STORE_ENDPOINT", "OBJECT_STORE_REGION", "OBJECT_STORE_BUCKET", "OBJECT_STORE_ACCOUNT_ID", "OBJECT_STORE_ACCESS_KEY_ID", "OBJECT_STORE_SECRET_ACCESS_KEY"}

// startPeer starts a second replica of a's service with its own disk, as on another machine. They share only the
// database and the bucket. The second replica stops before a does.
func startPeer(t *testing.T, a *apitest.Server, more ...apitest.Option) *apitest.Server {
	t.Helper()
	same := append([]apitest.Option{apitest.Replicas(1)}, more...)
	for _, key := range sharedKeys {
		same = append(same, apitest.Env(key, a.Config(key)))
	}
	return apitest.Start(t, same...)
}

// startFirst starts one replica with a bucket.
func startFirst(t *testing.T) *apitest.Server {
	t.Helper()
	return apitest.Start(t, apitest.Bucket(true), apitest.Replicas(1))
}

// at returns the user as a client of another replica.
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

// Two machines that share only database and bucket act as one service.
func TestEitherReplicaServesEverything(t *testing.T) {
	t.Parallel()
	needPostgres(t)
	a := startFirst(t)
	b := startPeer(t, a)
	u := a.SignIn(t, apitest.Credits(10))
	both := []*apitest.User{u, at(u, b)}
	var jobs []string
	for i := range 2 {
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
	// Both replicas find an asset that one of them announced.
	key := uploadAsset(t, u, blueClip(t), "mp4", "video/mp4")
	var again uploadURL
	both[1].Post(t, uploadURLPath, assetRequest(t, blueClip(t), "mp4", "video/mp4")).Expect(200).JSON(&again)
	if !again.AlreadyExists || again.AssetKey != key {
		t.Errorf("the other replica returned %+v", again)
	}
	// Both find a cached video.
	input := cacheInput(t, u, redClip(t))
	both[1].Render(t, M{"videoDurationMs": 500}, apitest.Part{Name: "inputId", Text: input})
	if n := len(a.World.Separator.Titles()); n != len(jobs) {
		t.Errorf("%d projects at the provider, want %d", n, len(jobs))
	}
	a.Stop(t)
	for _, id := range jobs {
		b.Do(t, apitest.Request{Path: stemPath(t, both[1].Separation(t, id).Stem(t, "background"))}).Expect(200)
	}
}

// front knows the replicas that get requests, as the proxy of a deployment does.
type front struct {
	mu       sync.RWMutex // read during a request
	replicas []*apitest.Server
	turn     atomic.Uint64
}

// send sends a user's request to the replica whose turn it is.
func (f *front) send(u *apitest.User, request func(u *apitest.User)) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	request(at(u, f.replicas[int(f.turn.Add(1))%len(f.replicas)]))
}

// use switches to other replicas once the requests in flight have ended. The script gives those a second.
func (f *front) use(replicas []*apitest.Server) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.replicas = replicas
}

// If replicas are replaced one after another under load, as deploy/rolling-restart.sh does it, no request fails and no
// job is lost.
func TestRollingRestartLosesNothing(t *testing.T) {
	t.Parallel()
	needPostgres(t)
	a := startFirst(t)
	replicas := []*apitest.Server{a}
	for len(replicas) < max(2, apitest.Replication()) {
		replicas = append(replicas, startPeer(t, a))
	}
	entry := &front{replicas: replicas}
	maxJobs := min(6, len(replicas)) // of each user

	var users []*apitest.User
	for range 3 {
		users = append(users, a.SignIn(t, apitest.Credits(20)))
	}
	stop := make(chan struct{})
	jobs := make([][]string, len(users))
	var polls atomic.Int64
	var load sync.WaitGroup
	for i, u := range users {
		load.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					if len(jobs[i]) >= 2 { // on a busy machine the load starts late
						return
					}
				default:
				}
				entry.send(u, func(u *apitest.User) { u.Balance(t) })
				polls.Add(1)
				if n%5 == 0 && len(jobs[i]) < maxJobs {
					entry.send(u, func(u *apitest.User) { jobs[i] = append(jobs[i], u.Separate(t, mixture(t))) })
				}
				time.Sleep(20 * time.Millisecond) // a client's polling interval
			}
		})
	}
	for i, s := range replicas {
		entry.use(slices.Delete(slices.Clone(replicas), i, i+1))
		s.Stop(t)
		s.Restart(t)
		entry.use(replicas)
	}
	close(stop)
	load.Wait()
	total := 0
	for i, u := range users {
		for _, id := range jobs[i] {
			u.WaitReady(t, id)
			total++
		}
	}
	t.Logf("%d jobs and %d polls while %d replicas were replaced", total, polls.Load(), len(replicas))
	if n := len(a.World.Separator.Titles()); n != total {
		t.Errorf("%d projects at the provider for %d jobs", n, total)
	}
}
