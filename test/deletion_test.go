// Deletion of accounts: nothing is left, running jobs stop, and other users' files are unknown.

package test

import (
	"errors"
	"io"
	"io/fs"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"cutroom/internal/sandbox/separator"
	"cutroom/internal/testkit/apitest"
)

func deleteAccount(t testing.TB, u *apitest.User) {
	t.Helper()
	u.Send(t, apitest.Request{Method: "DELETE", Path: "/api/v2/auth/account", Valid: true}).Expect(204)
}

// filesOf lists the service's files, on disk and in the bucket, whose names contain one of the ids, or all files if
// there are no ids.
func filesOf(t testing.TB, s *apitest.Server, ids ...string) []string {
	t.Helper()
	named := func(name string) bool {
		return len(ids) == 0 || slices.ContainsFunc(ids, func(id string) bool { return strings.Contains(name, id) })
	}
	var found []string
	_ = filepath.WalkDir(s.Storage, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && named(path) {
			found = append(found, strings.TrimPrefix(path, s.Storage))
		}
		return nil // the service may delete the folder in the meantime
	})
	for _, key := range s.ObjectKeys(t) {
		if named(key) {
			found = append(found, "bucket:"+key)
		}
	}
	return found
}

// fullAccount is a user with data of every kind.
type fullAccount struct {
	*apitest.User
	separation, render, stem string
}

func newFullAccount(t testing.TB, s *apitest.Server) fullAccount {
	t.Helper()
	u := s.SignIn(t)
	r := fullAccount{User: u, separation: u.Separate(t, mixture(t))}
	cacheInput(t, u, redClip(t))
	r.render = u.Render(t, M{"videoDurationMs": 500}, apitest.File("video", silentClip(t)))
	u.WaitRendered(t, r.render)
	r.stem = stemPath(t, u.WaitReady(t, r.separation).Stem(t, "voice_all"))
	return r
}

func TestAccountDeletionLeavesNothing(t *testing.T) {
	t.Parallel()
	s := apitest.Start(t)
	before := filesOf(t, s)
	r := newFullAccount(t, s)
	own := []string{r.Sub, r.separation, r.render}
	for _, id := range own {
		if len(filesOf(t, s, id)) == 0 {
			t.Errorf("no file name contains %s, so this test would find nothing left", id)
		}
	}
	deleteAccount(t, r.User)
	deleteAccount(t, r.User) // a repeat succeeds

	r.Send(t, apitest.Request{Path: "/api/v2/separate/" + r.separation}).Expect(404)
	r.Send(t, apitest.Request{Path: "/api/v2/render/" + r.render + "/status"}).Expect(404)
	r.Send(t, apitest.Request{Path: "/api/v2/render/" + r.render + "/download"}).Expect(404)
	s.Do(t, apitest.Request{Path: r.stem}).Expect(404)
	if b := r.Balance(t); b != 0 {
		t.Errorf("balance %d, want 0", b)
	}
	video := apitest.File("video", redClip(t))
	for _, q := range []apitest.Request{
		{Path: separatePath, Form: apitest.SeparationForm(mixture(t))},
		{Path: "/api/v2/render", Form: apitest.RenderForm(t, M{"videoDurationMs": 500}, video)},
		{Path: "/api/v2/render/inputs", Form: []apitest.Part{video}},
		{Path: "/api/v2/render/v3", JSON: ofAsset("assets/"+strings.Repeat("a", 64)+".mp4", 5)},
		{Path: separateV3Path, JSON: M{"sourceAssetKey": 1}},
	} {
		q.Method = "POST"
		r.Send(t, q).Error(401, "account_deleted")
	}
	var left []string
	apitest.Eventually(t, maxWait, func() bool {
		left = filesOf(t, s)
		return len(left) <= len(before)
	}, func() string { return "left of the account: " + strings.Join(left, ", ") })

	// The same identity may sign in again and gets a new account.
	old := r.Sub
	r.SignInAgain(t)
	if r.Sub == old {
		t.Error("the new account has the deleted user's id")
	}
	if b := r.Balance(t); b != 3 {
		t.Errorf("balance of the new account %d, want 3", b)
	}
	r.Send(t, apitest.Request{Path: "/api/v2/separate/" + r.separation}).Expect(404)
}

// An account deleted during an upload gets account_deleted, not insufficient_credits.
func TestAccountDeletedDuringAnUpload(t *testing.T) {
	t.Parallel()
	s := apitest.Start(t)
	u := s.SignIn(t)
	audio, err := os.ReadFile(mixture(t))
	if err != nil {
		t.Fatal(err)
	}
	body, line := io.Pipe()
	form := multipart.NewWriter(line)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+separatePath, body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+u.Token)
	req.Header.Set("Content-Type", form.FormDataContentType())
	type outcome struct {
		status int
		answer string
		err    error
	}
	got := make(chan outcome, 1)
	go func() {
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			got <- outcome{err: err}
			return
		}
		defer res.Body.Close()
		answer, err := io.ReadAll(res.Body)
		got <- outcome{res.StatusCode, string(answer), err}
	}()
	part, err := form.CreateFormFile("file", "a.wav")
	if err == nil {
		_, err = part.Write(audio[:len(audio)/2]) // returns when the client has begun to send it
	}
	if err != nil {
		t.Fatal(err)
	}
	deleteAccount(t, u)
	if _, err = part.Write(audio[len(audio)/2:]); err == nil {
		err = form.WriteField("spec", "{}")
	}
	line.CloseWithError(errors.Join(err, form.Close()))
	if o := <-got; o.err != nil || o.status != 401 || !strings.Contains(o.answer, `"account_deleted"`) {
		t.Errorf("%d %s, %v; want 401 account_deleted", o.status, o.answer, o.err)
	}
}

func TestAccountDeletionStopsRunningJobs(t *testing.T) {
	t.Parallel()
	s := apitest.Start(t, apitest.Env("SEPARATION_MAX_PROVIDER_IN_FLIGHT", "1"))
	s.World.Separator.Configure(func(b *separator.Behaviour) { b.HoldAtPercent = 30 })
	u, other := s.SignIn(t), s.SignIn(t)
	running := u.Separate(t, mixture(t))
	queued := u.Separate(t, mixture(t))
	film := u.Render(t, longRender(), apitest.File("video_0", noisyClip(t)))
	u.WaitSeparation(t, running, "PROCESSING")
	waiting := other.Separate(t, mixture(t))
	deleteAccount(t, u)
	for _, id := range []string{running, queued} {
		u.Send(t, apitest.Request{Path: "/api/v2/separate/" + id}).Expect(404)
	}
	u.Send(t, apitest.Request{Path: "/api/v2/render/" + film + "/status"}).Expect(404)
	// The provider slot is free for the next job, and nobody polls the old project.
	s.World.Separator.Configure(func(b *separator.Behaviour) { b.HoldAtPercent = 0 })
	other.WaitReady(t, waiting)
	for _, title := range s.World.Separator.Titles() {
		if strings.Contains(title, queued) {
			t.Error("a deleted user's queued job went to the provider")
		}
	}
	waitFilesGone(t, s, running, queued, film, u.Sub)
}

// Requests for another user's jobs and files get the same responses as for unknown ones.
func TestTenancy(t *testing.T) {
	t.Parallel()
	s := apitest.Shared(t)
	r, stranger := newFullAccount(t, s), s.SignIn(t)
	for path, unknown := range map[string]string{
		"/api/v2/separate/" + r.separation:             "/api/v2/separate/" + otherID(r.separation),
		"/api/v2/render/" + r.render + "/status":       "/api/v2/render/" + otherID(r.render) + "/status",
		"/api/v2/render/" + r.render + "/download":     "/api/v2/render/" + otherID(r.render) + "/download",
		"/api/v2/render/" + r.render + "/poster":       "/api/v2/render/" + otherID(r.render) + "/poster",
		"/api/v2/separate/" + r.render:                 "/api/v2/separate/" + otherID(r.render),
		"/api/v2/render/" + r.separation + "/status":   "/api/v2/render/" + otherID(r.separation) + "/status",
		"/api/v2/render/" + r.separation + "/download": "/api/v2/render/" + otherID(r.separation) + "/download",
	} {
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			theirs := stranger.Send(t, apitest.Request{Method: method, Path: path}).Expect(404)
			none := stranger.Send(t, apitest.Request{Method: method, Path: unknown}).Expect(404)
			a := strings.NewReplacer(r.separation, "ID", r.render, "ID").Replace(string(theirs.Body))
			b := strings.NewReplacer(otherID(r.separation), "ID", otherID(r.render), "ID").Replace(string(none.Body))
			if a != b {
				t.Errorf("%s %s: %s, but for an unknown job: %s", method, path, a, b)
			}
			for _, h := range []string{"Content-Type", "Cache-Control", "ETag", "Accept-Ranges", "Last-Modified"} {
				if theirs.Header.Get(h) != none.Header.Get(h) {
					t.Errorf("%s %s: %s is %q, but for an unknown job %q", method, path, h, theirs.Header.Get(h), none.Header.Get(h))
				}
			}
		}
	}
}

// otherID returns an unused job id of the same form.
func otherID(id string) string {
	b := []byte(id)
	for i := 4; i < len(b); i++ {
		switch {
		case b[i] == '-':
		case b[i] == 'a':
			b[i] = 'b'
		default:
			b[i] = 'a'
		}
	}
	return string(b)
}
