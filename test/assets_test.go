// Assets from upload to render: owners, downloads, corrupt objects, limits, and a service without a bucket.

package test

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cutroom/internal/testkit/apitest"
)

const uploadURLPath = "/api/v2/assets/upload-url"

// uploadURL is the body of POST /assets/upload-url.
type uploadURL struct {
	AssetKey      string
	AlreadyExists bool
	UploadURL     *string
	ExpiresInSec  int
	UploadID      string
	PartSizeBytes int64
	Parts         []struct {
		PartNumber int
		URL        string
		SizeBytes  int64
		Done       bool
	}
}

// assetRequest asks for the upload of a file.
func assetRequest(t testing.TB, path, ext, contentType string) M {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return M{"sha256Hex": sha256Of(t, path), "sizeBytes": info.Size(), "ext": ext, "contentType": contentType}
}

// uploadAsset uploads a file as a client does and returns its key.
func uploadAsset(t testing.TB, u *apitest.User, path, ext, contentType string) string {
	t.Helper()
	var got uploadURL
	u.Post(t, uploadURLPath, assetRequest(t, path, ext, contentType)).Expect(200).JSON(&got)
	if !got.AlreadyExists {
		u.Outside(t, "PUT", *got.UploadURL, http.Header{"Content-Type": {contentType}}, readFile(t, path)).Expect(200)
	}
	return got.AssetKey
}

// uniqueCopy copies a film and adds random bytes, so its asset key is new.
func uniqueCopy(t testing.TB, path string) string { return largerCopy(t, path, 24) }

// largerCopy is uniqueCopy with the given number of additional bytes.
func largerCopy(t testing.TB, path string, by uint32) string {
	t.Helper()
	box := make([]byte, by)
	binary.BigEndian.PutUint32(box, by)
	copy(box[4:], "free")
	_, _ = rand.Read(box[8:]) // never fails
	out := filepath.Join(t.TempDir(), filepath.Base(path))
	if err := os.WriteFile(out, append(readFile(t, path), box...), 0o600); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestAssetUpload(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	s := apitest.Start(t, apitest.Bucket(true))
	u := s.SignIn(t)
	clip := uniqueCopy(t, redClip(t))
	request := assetRequest(t, clip, "MP4", "video/mp4")
	var first, second uploadURL
	u.Post(t, uploadURLPath, request).Expect(200).JSON(&first)
	if want := "assets/" + sha256Of(t, clip) + ".mp4"; first.AssetKey != want || first.AlreadyExists || first.ExpiresInSec != 300 {
		t.Errorf("%+v, want key %s for 300 s", first, want)
	}
	signed, err := url.Parse(*first.UploadURL)
	if err != nil {
		t.Fatal(err)
	}
	if q := signed.Query(); q.Get("X-Amz-Expires") != "300" || !strings.Contains(q.Get("X-Amz-SignedHeaders"), "content-length;content-type;host") {
		t.Errorf("expires %s, signs %s", q.Get("X-Amz-Expires"), q.Get("X-Amz-SignedHeaders"))
	}
	content := readFile(t, clip)
	put := func(contentType string, body []byte) int {
		t.Helper()
		return u.Outside(t, "PUT", *first.UploadURL, http.Header{"Content-Type": {contentType}}, body).Status
	}
	if status := put("video/quicktime", content); status < 400 || status >= 500 {
		t.Errorf("PUT of another type: %d, want a refusal", status)
	}
	u.Post(t, uploadURLPath, request).Expect(200).JSON(&second)
	if second.AlreadyExists {
		t.Error("refused uploads count as existing")
	}
	if status := put("video/mp4", content); status != 200 {
		t.Fatalf("the exact PUT: %d", status)
	}
	second = uploadURL{}
	u.Post(t, uploadURLPath, request).Expect(200).JSON(&second)
	if !second.AlreadyExists || second.UploadURL != nil || second.ExpiresInSec != 0 || second.AssetKey != first.AssetKey {
		t.Errorf("after the upload: %+v", second)
	}
	// The key depends only on the content, so all users share it.
	s.SignIn(t).Post(t, uploadURLPath, request).Expect(200).JSON(&second)
	if !second.AlreadyExists {
		t.Error("another user is asked to upload the same bytes")
	}
}

// heldAsset is a row of GET /assets.
type heldAsset struct {
	AssetKey, ContentType            string
	SizeBytes, CreatedAt, LastUsedAt int64
}

// assetsOf lists a user's assets page by page.
func assetsOf(t testing.TB, u *apitest.User) (all []heldAsset) {
	t.Helper()
	for next := ""; ; {
		var page struct {
			Assets     []heldAsset
			NextCursor *string
		}
		u.Get(t, "/api/v2/assets?limit=1"+next).Expect(200).JSON(&page)
		if all = append(all, page.Assets...); page.NextCursor == nil {
			return all
		}
		next = "&cursor=" + *page.NextCursor
	}
}

func TestAssetsHaveOwners(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	s := apitest.Start(t, apitest.Bucket(true))
	ann, ben := s.SignIn(t), s.SignIn(t)
	annsClip, shared := uniqueCopy(t, redClip(t)), uniqueCopy(t, redClip(t))
	own, both := uploadAsset(t, ann, annsClip, "mp4", "video/mp4"), uploadAsset(t, ann, shared, "mp4", "video/mp4")
	// A user who uses an asset in a job holds it.
	renderAsset(t, ben, both)
	got := assetsOf(t, ann)
	if len(got) != 2 || got[0].AssetKey != both || got[1].AssetKey != own {
		t.Fatalf("ann holds %+v", got)
	}
	if a := got[1]; a.SizeBytes != int64(len(readFile(t, annsClip))) || a.ContentType != "video/mp4" || a.LastUsedAt < a.CreatedAt ||
		time.Since(time.UnixMilli(a.CreatedAt)).Abs() > time.Hour {
		t.Errorf("%+v", a)
	}
	if got := assetsOf(t, ben); len(got) != 1 || got[0].AssetKey != both {
		t.Errorf("ben holds %+v", got)
	}
	for _, verb := range []string{"show", "export"} {
		if out := succeeds(t, s, "user", verb, ann.Sub, "--json"); !strings.Contains(out, own) {
			t.Errorf("user %s: %s", verb, out)
		}
	}
	remove := func(u *apitest.User, key string) *apitest.Response {
		return u.Send(t, apitest.Request{Method: "DELETE", Path: "/api/v2/" + key})
	}
	remove(ben, own).Expect(204) // he never held it
	remove(ann, both).Expect(204)
	remove(ann, both).Expect(204)
	remove(ann, "assets/nonsense.mp4").Error(400, "invalid_asset_key")
	if got := assetsOf(t, ann); len(got) != 1 || got[0].AssetKey != own {
		t.Errorf("ann holds %+v", got)
	}
	released := uploadAsset(t, ben, uniqueCopy(t, redClip(t)), "mp4", "video/mp4")
	remove(ben, released).Expect(204)
	deleteAccount(t, ann)
	s.Stop(t)
	giveUpMany(t, s, ben)
	s.Restart(t) // the service sweeps when it starts, and next a quarter of an hour later
	for _, key := range []string{own, released} {
		apitest.Eventually(t, maxWait, func() bool { return !slices.Contains(s.ObjectKeys(t), key) }, func() string { return key + " is left" })
	}
	if !slices.Contains(s.ObjectKeys(t), both) {
		t.Error("the deletion of ann's account removed another account's asset")
	}
	var again uploadURL
	ben.Post(t, uploadURLPath, assetRequest(t, annsClip, "mp4", "video/mp4")).Expect(200).JSON(&again)
	if again.AlreadyExists {
		t.Error("an erased asset counts as existing")
	}
	renderAsset(t, ben, both)
}

// giveUpMany leaves the rows of an account that announces files, uploads none and gives them up: more rows than one
// pass of a sweep takes.
func giveUpMany(t *testing.T, s *apitest.Server, u *apitest.User) {
	t.Helper()
	var rows []string
	for i := range 2100 {
		rows = append(rows, fmt.Sprintf("('assets/%064x.mp4', 1, 'video/mp4')", i))
	}
	d := s.Database(t)
	for _, statement := range []string{
		`INSERT INTO assets (asset_key, size_bytes, content_type) VALUES ` + strings.Join(rows, ", "),
		`INSERT INTO asset_holders (user_id, asset_key, size_bytes, created_at, last_used_at, given_up_at)
			SELECT '` + u.Sub + `', asset_key, size_bytes, 1, 1, 1 FROM assets WHERE asset_key LIKE 'assets/000000%'`,
	} {
		if _, err := d.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
}

// An account that holds an asset reads its bytes from the bucket; for anybody else the asset does not exist.
func TestHoldersDownloadTheirAssets(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	s := apitest.Start(t, apitest.Bucket(true))
	u, other := s.SignIn(t), s.SignIn(t)
	clip := uniqueCopy(t, redClip(t))
	key, content := uploadAsset(t, u, clip, "mp4", "video/mp4"), readFile(t, clip)
	ask := func(u *apitest.User, method, path string) *apitest.Response {
		t.Helper()
		return u.Send(t, apitest.Request{Method: method, Path: path, Valid: method != "HEAD" && path == "/api/v2/"+key})
	}
	address := ask(u, "GET", "/api/v2/"+key).Expect(302).Header.Get("Location")
	whole := u.Outside(t, "GET", address, nil, nil).Expect(200)
	if !bytes.Equal(whole.Body, content) || whole.Header.Get("Content-Type") != "video/mp4" {
		t.Errorf("%d bytes of %s, want %d", len(whole.Body), whole.Header.Get("Content-Type"), len(content))
	}
	part := u.Outside(t, "GET", address, http.Header{"Range": {"bytes=3-9"}}, nil).Expect(206)
	if !bytes.Equal(part.Body, content[3:10]) || part.Header.Get("Content-Range") == "" {
		t.Errorf("a range: %q, %v", part.Body, part.Header)
	}
	u.Outside(t, "HEAD", ask(u, "HEAD", "/api/v2/"+key).Expect(302).Header.Get("Location"), nil, nil).Expect(200)

	announced := strings.Repeat("a", 64)
	u.Post(t, uploadURLPath, M{"sha256Hex": announced, "sizeBytes": 1, "ext": "mp4", "contentType": "video/mp4"}).Expect(200)
	for _, path := range []string{"/api/v2/assets/" + announced + ".mp4", "/api/v2/assets/" + strings.Repeat("b", 64) + ".mp4",
		"/api/v2/assets/nonsense", "/api/v2/" + strings.ToUpper(key[:9]) + key[9:] + "x"} {
		if res := ask(u, "GET", path); res.Status != 404 {
			t.Errorf("%s: %d", path, res.Status)
		}
	}
	ask(other, "GET", "/api/v2/"+key).Error(404, "asset not found")
	ask(u, "DELETE", "/api/v2/"+key).Expect(204)
	ask(u, "GET", "/api/v2/"+key).Error(404, "asset not found")
}

// Without a bucket there are no assets.
func TestAssetsWithoutABucket(t *testing.T) {
	t.Parallel()
	u := apitest.Shared(t).SignIn(t)
	if !u.HasBucket() {
		u.Post(t, analysisPath, M{"assetKey": "x"}).Error(503, "r2_disabled")
		u.Post(t, separateV3Path, M{"sourceAssetKey": "x"}).Error(503, "r2_disabled")
		u.Send(t, apitest.Request{Path: "/api/v2/assets/" + strings.Repeat("a", 64) + ".mp4"}).Error(503, "r2_disabled")
	}
	if got := assetsOf(t, u); len(got) != 0 {
		t.Errorf("%+v", got)
	}
	u.Send(t, apitest.Request{Method: "DELETE", Path: "/api/v2/assets/" + strings.Repeat("a", 64) + ".mp4", Valid: true}).Expect(204)
	u.Send(t, apitest.Request{Path: "/api/v2/assets?limit=0"}).Error(400, "invalid_limit")
	u.Send(t, apitest.Request{Path: "/api/v2/assets?cursor=x"}).Error(400, "invalid_cursor")
}

// ofAsset is a film of one asset.
func ofAsset(key string, ms int) M {
	return M{"segments": []M{{"sourceAssetKey": key, "order": 0, "durationMs": ms}}}
}

func TestRenderV3(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	s := apitest.Start(t, apitest.Bucket(true))
	u := s.SignIn(t)
	redKey := uploadAsset(t, u, redClip(t), "mp4", "video/mp4")
	job := u.Post(t, "/api/v2/render/v3", apitest.With(ofAsset(redKey, 2000), M{"unknown": M{}})).Job(200)
	u.WaitRendered(t, job)
	u.Get(t, "/api/v2/render/"+job+"/download").Expect(302)
	isFilm(t, u.Download(t, job), 320, 180, "25/1", clipLength) // TestRenderEverythingTogether compares all that a film may have

	post := func(u *apitest.User, body any) *apitest.Response {
		t.Helper()
		return u.Send(t, apitest.Request{Method: "POST", Path: "/api/v2/render/v3", JSON: body})
	}
	submitter := newSubmitter(t, s)
	// The asset package tests all forms of keys.
	post(submitter(), ofAsset("assets/../render/x/x.mp4", 2000)).Error(400, "invalid_asset_key")
	missing := "assets/" + strings.Repeat("f", 64) + ".mp4"
	post(submitter(), ofAsset(missing, 2000)).Sentence(404)
	post(submitter(), apitest.With(ofAsset(redKey, 2000), M{"bgmClips": []M{{"audioAssetKey": missing, "startMs": 0}}})).Sentence(404)
	post(submitter(), M{"videoDurationMs": 1000}).Sentence(400, "segments")
	post(submitter(), apitest.With(ofAsset(redKey, 2000), M{"separationDirectives": []M{directive(0, 500, M{
		"selections": []M{{"stemId": "voice_all", "audioUrl": "https://evil.example.test/x"}}})}})).Error(400, "invalid_stem_url")
}

func TestAssetWhoseBytesDoNotHashToItsKeyFailsTheJob(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	s := apitest.Start(t, apitest.Bucket(true))
	u := s.SignIn(t)
	// The client may upload any bytes of the announced length under the key. Here it uploads another valid film.
	request := assetRequest(t, uniqueCopy(t, redClip(t)), "mp4", "video/mp4")
	content := readFile(t, uniqueCopy(t, redClip(t)))
	var got uploadURL
	u.Post(t, uploadURLPath, request).Expect(200).JSON(&got)
	u.Outside(t, "PUT", *got.UploadURL, http.Header{"Content-Type": {"video/mp4"}}, content).Expect(200)
	job := u.Post(t, "/api/v2/render/v3", ofAsset(got.AssetKey, 2000)).Job(200)
	if end := u.WaitFinished(t, job); end.ErrorCode != "source_unreadable" || !strings.Contains(end.Error, " ") {
		t.Errorf("ended %s with %q (%s), want FAILED with a sentence", end.Status, end.Error, end.ErrorCode)
	}
	u.Post(t, uploadURLPath, request).Expect(200).JSON(&got)
	if got.AlreadyExists {
		t.Error("a client with the right bytes is asked to skip the upload")
	}
}

func TestAssetUploadsAreLimitedAndNeedAnAccount(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	s := apitest.Start(t, apitest.Bucket(true))
	u, gone := s.SignIn(t), s.SignIn(t)
	request := M{"sha256Hex": strings.Repeat("0123456789abcdef", 4), "sizeBytes": 1000, "ext": "mp4", "contentType": "video/mp4"}
	gone.Send(t, apitest.Request{Method: "DELETE", Path: "/api/v2/auth/account"}).Expect(204)
	gone.Post(t, uploadURLPath, request).Error(401, "account_deleted")
	gone.Post(t, completePath, M{"uploadId": "x"}).Error(401, "account_deleted")
	var let atomic.Int32
	var all sync.WaitGroup
	began := time.Now()
	for range 5 { // concurrently, because in sequence they would take too long on a slow machine
		all.Go(func() {
			for range 25 {
				if res := u.Post(t, uploadURLPath, request); res.Status == 200 {
					let.Add(1)
				} else {
					res.Error(429, "rate_limited")
				}
			}
		})
	}
	all.Wait()
	other := u.Post(t, completePath, M{"uploadId": "x"})
	if took := time.Since(began); took > time.Minute {
		t.Skipf("125 requests took %v, so the first ones no longer count", took)
	}
	if let.Load() != 120 {
		t.Errorf("%d of 125 requests within a minute were let through, want 120", let.Load())
	}
	other.Error(429, "rate_limited")
}
