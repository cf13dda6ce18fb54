package test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"cutroom/internal/testkit/apitest"
)

func TestCapabilities(t *testing.T) {
	t.Parallel()
	u := apitest.Shared(t).SignIn(t)
	var body struct {
		Features []string
		Limits   json.RawMessage
	}
	u.Get(t, "/api/v2/capabilities").Expect(200).JSON(&body)
	if body.Features == nil || !slices.IsSorted(body.Features) {
		t.Errorf("features %q are not a sorted list", body.Features)
	}
	const limits = `{"maxUploadFileSizeMb":500,"maxSeparationAudioMb":100,"maxSegments":200,"maxBgmClips":64,"maxSeparationDirectives":64,` +
		`"maxWaitingJobs":50,"renderOutputTtlHours":24,"maxRenderGigapixels":1344}`
	if string(body.Limits) != limits {
		t.Errorf("limits\n%s, want\n%s", body.Limits, limits)
	}
}

// accountBody is the body of GET /auth/account.
type accountBody struct {
	User                           struct{ Sub, Email, Name, Role string }
	Balance                        int
	StoredBytes, WaitingJobs       int64
	MaxStoredBytes, MaxWaitingJobs *int64
	ExpiresAt                      int64
	SessionEndsAt                  *int64
}

func accountOf(t testing.TB, u *apitest.User) (a accountBody) {
	t.Helper()
	u.Get(t, "/api/v2/auth/account").Expect(200).JSON(&a)
	return a
}

func TestAccount(t *testing.T) {
	t.Parallel()
	s := apitest.Shared(t)
	u := s.SignIn(t, apitest.Credits(3))
	before := accountOf(t, u)
	if before.User.Sub != u.Sub || before.User.Email != u.Email || before.User.Role != "user" || before.Balance != u.Balance(t) ||
		before.StoredBytes != 0 || before.WaitingJobs != 0 || *before.MaxStoredBytes != 20480<<20 || *before.MaxWaitingJobs != 50 {
		t.Errorf("%+v", before)
	}
	claims := claimsOf(t, u.Token)
	if want := int64(claims["exp"].(float64)) * 1000; before.ExpiresAt != want {
		t.Errorf("expiresAt %d, want %d", before.ExpiresAt, want)
	}
	if want := (int64(claims["auth_time"].(float64)) + 90*24*3600) * 1000; before.SessionEndsAt == nil || *before.SessionEndsAt != want {
		t.Errorf("sessionEndsAt %v, want %d", before.SessionEndsAt, want)
	}
	size := int64(len(readFile(t, redClip(t))))
	cacheInput(t, u, redClip(t))
	if got := accountOf(t, u).StoredBytes; got != size {
		t.Errorf("an input of %d bytes takes %d", size, got)
	}
	var shown struct {
		Usage struct{ StoredBytes, MaxStoredBytes, WaitingJobs, MaxWaitingJobs int64 }
	}
	command(t, s, &shown, "user", "show", u.Sub)
	if shown.Usage.StoredBytes != size || shown.Usage.MaxWaitingJobs != 50 || shown.Usage.MaxStoredBytes != 20480<<20 {
		t.Errorf("user show: %+v", shown.Usage)
	}
	if out := succeeds(t, s, "user", "show", u.Sub); !strings.Contains(out, "20480.0 MB") || strings.Contains(out, "bytes") {
		t.Errorf("user show: %s", out)
	}
	gone := s.SignIn(t)
	deleteAccount(t, gone)
	gone.Send(t, apitest.Request{Path: "/api/v2/auth/account"}).Error(401, "account_deleted")
	gone.Send(t, apitest.Request{Method: "POST", Path: "/api/v2/auth/sign-out"}).Error(401, "account_deleted")
}

func TestAnAccountHasLimits(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	s := apitest.Start(t, apitest.Unready(), apitest.Env("ACCOUNT_MAX_WAITING_JOBS", "3"), apitest.Env("ACCOUNT_MAX_STORED_MB", "1"),
		apitest.Env("ACCOUNT_MAX_ASSETS", "3"))
	u, other := s.SignIn(t, apitest.Credits(3)), s.SignIn(t)
	clip := uniqueCopy(t, redClip(t))
	key := uploadAsset(t, u, clip, "mp4", "video/mp4")
	submit := func(u *apitest.User, idempotencyKey string) *apitest.Response {
		t.Helper()
		return u.Send(t, apitest.Request{Method: "POST", Path: "/api/v2/render/v3", Header: http.Header{"Idempotency-Key": {idempotencyKey}},
			JSON: ofAsset(key, 2000)})
	}
	var accepted []string
	for i := range 3 { // TestReplicasCountTogether submits at once
		accepted = append(accepted, submit(u, fmt.Sprint("key ", i)).Job(200))
	}
	res := submit(u, "one too many").Error(429, "too_many_jobs")
	if n, err := strconv.Atoi(res.Header.Get("Retry-After")); err != nil || n < 1 {
		t.Errorf("Retry-After %q", res.Header.Get("Retry-After"))
	}
	if a := accountOf(t, u); a.WaitingJobs != 3 || *a.MaxWaitingJobs != 3 {
		t.Errorf("%d of %d jobs wait, want 3", a.WaitingJobs, *a.MaxWaitingJobs)
	}
	balance := u.Balance(t)
	u.Send(t, apitest.Request{Method: "POST", Path: separatePath, Form: apitest.SeparationForm(mixture(t))}).Error(429, "too_many_jobs")
	u.Post(t, separateV3Path, M{"sourceAssetKey": key}).Error(429, "too_many_jobs")
	if b := u.Balance(t); b != balance {
		t.Errorf("a refused separation cost %d", balance-b)
	}
	if again := submit(u, "key 0").Job(200); again != accepted[0] {
		t.Errorf("a repeat returned %s, want %s", again, accepted[0])
	}
	u.Send(t, apitest.Request{Method: "DELETE", Path: "/api/v2/render/" + accepted[0]}).Expect(204)
	submit(u, "after a deletion").Job(200)
	submit(other, "of another account").Job(200) // the other account now also holds the asset

	size := int64(len(readFile(t, clip)))
	if a := accountOf(t, other); a.StoredBytes != size || *a.MaxStoredBytes != 1<<20 {
		t.Errorf("%d of %d bytes are stored, want %d of 1 MiB", a.StoredBytes, *a.MaxStoredBytes, size)
	}
	announce := func(bytes int64, digit string) *apitest.Response {
		t.Helper()
		return other.Post(t, uploadURLPath, M{"sha256Hex": strings.Repeat(digit, 64), "sizeBytes": bytes, "ext": "mp4", "contentType": "video/mp4"})
	}
	announce(1<<20-size+1, "a").Error(403, "storage_full")
	announce(1<<20-size, "b").Expect(200)
	announce(1, "c").Error(403, "storage_full")
	other.Post(t, uploadURLPath, assetRequest(t, clip, "mp4", "video/mp4")).Expect(200) // already counted
	other.Send(t, apitest.Request{Method: "POST", Path: "/api/v2/render/inputs", Form: []apitest.Part{{Name: "video", Path: clip}}}).Error(403, "storage_full")
	other.Send(t, apitest.Request{Method: "DELETE", Path: "/api/v2/assets/" + strings.Repeat("b", 64) + ".mp4"}).Expect(204)
	announce(1, "c").Error(403, "storage_full") // it counts until it is erased

	other = s.SignIn(t)
	for _, digit := range []string{"a", "b", "c"} {
		announce(1, digit).Expect(200)
	}
	announce(1, "d").Error(400, "an account may have at most 3 assets; delete some, and try again when they are erased")
}
