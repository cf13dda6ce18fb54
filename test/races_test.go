// Requests that reach two replicas at the same moment: limits, one job for one sound, sign-out, shared parts.

package test

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"cutroom/internal/sandbox/fake"
	"cutroom/internal/sandbox/separator"
	"cutroom/internal/testkit/apitest"
)

// startPair starts two replicas and returns the service behind its front.
func startPair(t *testing.T, opts ...apitest.Option) *apitest.Server {
	t.Helper()
	needPostgres(t)
	return apitest.Start(t, append([]apitest.Option{apitest.Bucket(true), apitest.Replicas(2)}, opts...)...)
}

// atOnce sends n requests at the same time, to the replicas in turn, and returns the responses.
func atOnce(t *testing.T, u *apitest.User, n int, request func(i int) apitest.Request) []*apitest.Response {
	t.Helper()
	start, answers := make(chan struct{}), make([]*apitest.Response, n)
	var all sync.WaitGroup
	for i := range answers {
		r := request(i)
		r.Token = u.Token
		replica := u.Replica(i % u.Processes())
		all.Go(func() {
			<-start
			answers[i] = replica.Do(t, r)
		})
	}
	close(start)
	all.Wait()
	return answers
}

// passed fails the test unless exactly want responses have the status, and all others the error.
func passed(t *testing.T, what string, answers []*apitest.Response, status, want, errorStatus int, code string) {
	t.Helper()
	n := 0
	for _, res := range answers {
		if res.Status == status {
			n++
			continue
		}
		res.Error(errorStatus, code)
	}
	if n != want {
		t.Errorf("%s: %d of %d simultaneous requests passed, want %d", what, n, len(answers), want)
	}
}

// Two replicas that count at the same moment let exactly as many requests pass as one does.
func TestReplicasCountTogether(t *testing.T) {
	t.Parallel()
	s := startPair(t, apitest.Unready(), apitest.Env("ACCOUNT_MAX_WAITING_JOBS", "3"), apitest.Env("ACCOUNT_MAX_STORED_MB", "1"),
		apitest.Env("ACCOUNT_MAX_ASSETS", "5"))
	t.Run("waiting jobs", func(t *testing.T) {
		t.Parallel()
		var keys []string // of several assets, because requests for one asset wait for each other
		for range 8 {
			keys = append(keys, uploadAsset(t, s.SignIn(t), uniqueCopy(t, redClip(t)), "mp4", "video/mp4"))
		}
		for range 4 {
			u := s.SignIn(t)
			passed(t, "waiting jobs", atOnce(t, u, 8, func(i int) apitest.Request {
				return apitest.Request{Method: "POST", Path: "/api/v2/render/v3", Valid: true,
					JSON: ofAsset(keys[i], 500)}
			}), 200, 3, 429, "too_many_jobs")
			if a := accountOf(t, u); a.WaitingJobs != 3 {
				t.Errorf("%d jobs wait", a.WaitingJobs)
			}
		}
	})
	announce := func(bytes int) func(i int) apitest.Request {
		return func(i int) apitest.Request {
			return apitest.Request{Method: "POST", Path: uploadURLPath, Valid: true,
				JSON: M{"sha256Hex": strings.Repeat(string("0123456789abcdef"[i]), 64), "sizeBytes": bytes, "ext": "mp4", "contentType": "video/mp4"}}
		}
	}
	t.Run("stored bytes", func(t *testing.T) {
		t.Parallel()
		u := s.SignIn(t)
		passed(t, "stored bytes", atOnce(t, u, 12, announce(300_000)), 200, 3, 403, "storage_full")
		if a := accountOf(t, u); a.StoredBytes != 900_000 {
			t.Errorf("%d bytes are stored", a.StoredBytes)
		}
	})
	t.Run("assets", func(t *testing.T) {
		t.Parallel()
		passed(t, "assets", atOnce(t, s.SignIn(t), 12, announce(1)), 200, 5,
			400, "an account may have at most 5 assets; delete some, and try again when they are erased")
	})
}

// One account that asks both replicas for the same sound at the same moment gets one job and pays once.
func TestOneSoundAtBothReplicasIsOneJob(t *testing.T) {
	t.Parallel()
	s := startPair(t, apitest.Env("ACCOUNT_MAX_WAITING_JOBS", "1"))
	s.World.FailSeparator(t, fake.Rule{Step: separator.StepUploadToken, Kind: fake.KindStall}) // so that no job ends
	sound := generate(t, "sound.m4a", "-i", mixture(t), "-c:a", "aac")
	for range 5 {
		u := s.SignIn(t)
		key := uploadAsset(t, u, sound, "m4a", "audio/mp4")
		spend(t, u, u.Balance(t)-1) // enough for one job
		var ids []string
		fresh := 0
		for _, res := range atOnce(t, u, 10, func(int) apitest.Request {
			return apitest.Request{Method: "POST", Path: separateV3Path, JSON: M{"sourceAssetKey": key, "trimEndMs": 1500}, Valid: true}
		}) {
			var answer struct {
				JobID  string
				Reused bool
			}
			res.Expect(202).JSON(&answer)
			ids = append(ids, answer.JobID)
			if !answer.Reused {
				fresh++
			}
		}
		if slices.Sort(ids); len(slices.Compact(ids)) != 1 || fresh != 1 || u.Balance(t) != 0 {
			t.Errorf("%d new jobs for one sound: %v", fresh, ids)
		}
		if n := len(history(t, u, "/api/v2/separate", "10")); n != 1 {
			t.Errorf("%d jobs for one sound", n)
		}
	}
}

// After a sign-out at one replica every replica soon refuses the token, and then never accepts it again.
func TestASignOutReachesTheOtherReplica(t *testing.T) {
	t.Parallel()
	s := startPair(t)
	for signedOutAt := range s.Processes() {
		u := s.SignIn(t)
		ask := apitest.Request{Path: "/api/v2/credits", Token: u.Token}
		refused := make([]atomic.Bool, s.Processes())
		var signedOut atomic.Bool
		var all sync.WaitGroup
		for i := range 3 * s.Processes() {
			i %= s.Processes()
			s.Replica(i).Do(t, ask).Expect(200)
			all.Go(func() {
				apitest.Eventually(t, maxWait, func() bool {
					wasOut, wasRefused := signedOut.Load(), refused[i].Load()
					res := s.Replica(i).Do(t, ask)
					switch {
					case res.Status == 401:
						res.Error(401, "invalid_token")
						refused[i].Store(true)
					case res.Status != 200 || wasRefused:
						t.Errorf("replica %d: %d for a token that it has refused: %v", i, res.Status, wasRefused)
					}
					return wasOut && wasRefused
				}, func() string { return "a token from before the sign-out is valid" })
			})
		}
		at(u, s.Replica(signedOutAt)).Send(t, apitest.Request{Method: "POST", Path: "/api/v2/auth/sign-out", Valid: true}).Expect(204)
		signedOut.Store(true)
		all.Wait()
	}
}

// The parts of a film belong to one account. Another account with the same film makes its own, and when one of the
// accounts is deleted, its parts go and the other's stay.
func TestPartsOfADeletedAccount(t *testing.T) {
	t.Parallel()
	needPostgres(t)
	a := startFirst(t)
	b := startPeer(t, a)
	gone, other := a.SignIn(t), a.SignIn(t)
	file := uniqueCopy(t, redClip(t))
	key := uploadAsset(t, gone, file, "mp4", "video/mp4")
	film := func(u *apitest.User, ms int) {
		t.Helper()
		u.WaitRendered(t, u.Post(t, "/api/v2/render/v3", ofAsset(key, ms)).Job(200))
	}
	parts := func(u *apitest.User) (out []string) {
		for _, key := range a.ObjectKeys(t) {
			if name, ours := strings.CutPrefix(key, "parts/"+u.Sub+"/"); ours {
				out = append(out, name)
			}
		}
		return out
	}
	film(gone, 1000)
	if len(parts(gone)) == 0 {
		t.Fatal("the film has no shared parts, so this test would find nothing left")
	}
	before := parts(gone)
	uploadAsset(t, other, file, "mp4", "video/mp4")
	film(at(other, b), 1000)
	// A render that uses a stored part does not store it again.
	if got := parts(other); !slices.Equal(got, before) {
		t.Errorf("parts of the same film for another account: %v, want its own %v", got, before)
	}
	deleteAccount(t, gone)
	apitest.Eventually(t, maxWait, func() bool { return len(parts(gone)) == 0 },
		func() string { return "parts of a deleted account: " + strings.Join(parts(gone), ", ") })
	if got := parts(other); !slices.Equal(got, before) {
		t.Errorf("parts of the other account after the deletion: %v, want %v", got, before)
	}
	film(at(other, b), 1000)
}

// Both replicas make parts of a film whose account is deleted. Nothing of it stays in the bucket.
func TestAccountDeletedWhileReplicasShareARender(t *testing.T) {
	t.Parallel()
	needPostgres(t)
	s := startPair(t, apitest.Env("RENDER_MAX_CONCURRENT", "1"))
	u := s.SignIn(t)
	u.Render(t, longFilm(), apitest.File("video_0", noisyClip(t)))
	apitest.Eventually(t, maxWait, func() bool { return encoders(s, 0) > 0 && encoders(s, 1) > 0 && hasParts(t, s, u.Sub) },
		func() string { return "the replicas do not share the film" })
	deleteAccount(t, u)
	for i := range s.Processes() {
		apitest.Eventually(t, maxWait, func() bool { return encoders(s, i) == 0 }, func() string { return "a replica still encodes" })
	}
	s.Stop(t) // nobody writes any more
	if left := filesOf(t, s, u.Sub); len(left) > 0 {
		t.Errorf("left of the account: %v", left)
	}
	s.Restart(t)
}

func hasParts(t *testing.T, s *apitest.Server, sub string) bool {
	return slices.ContainsFunc(s.ObjectKeys(t), func(key string) bool { return strings.HasPrefix(key, "parts/"+sub+"/") })
}
