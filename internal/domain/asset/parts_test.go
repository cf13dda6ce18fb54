// Uploads in parts that are interrupted, repeated, concurrent or too old, and stores that can do less.

package asset_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"cutroom/internal/domain/asset"
	"cutroom/internal/storage/objectstore"
)

func (p *rig) begin(userID string) (asset.Upload, error) {
	r := asked(userID, string(p.content))
	r.Multipart = true
	return p.service.UploadURL(p.t.Context(), r)
}

func (p *rig) mustBegin(userID string) asset.Upload {
	p.t.Helper()
	up, err := p.begin(userID)
	must(p.t, err)
	return up
}

// send sends the missing parts.
func (p *rig) send(up asset.Upload) {
	p.t.Helper()
	rest := p.content
	for _, part := range up.Parts {
		if !part.Done && put(p.t, part.URL, "", rest[:part.SizeBytes]) != http.StatusOK {
			p.t.Errorf("part %d is refused", part.Number)
		}
		rest = rest[part.SizeBytes:]
	}
}

func done(up asset.Upload) (n int) {
	for _, part := range up.Parts {
		if part.Done {
			n++
		}
	}
	return n
}

func TestUploadsInPartsAreSweptAfterADay(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, p *rig) {
		old, young := p.user("old"), p.user("young")
		forgotten, kept := p.mustBegin(old), p.mustBegin(young)
		p.send(forgotten)
		p.send(kept)
		p.exec(`UPDATE asset_uploads SET created_at = created_at - $1 WHERE user_id = $2`, (24*time.Hour + time.Minute).Milliseconds(), old)
		p.exec(`UPDATE asset_uploads SET created_at = created_at - $1 WHERE user_id = $2`, (24*time.Hour - time.Minute).Milliseconds(), young)
		p.setHook(nil)
		p.sweep()
		if n := p.count(http.MethodDelete); n != 1 {
			t.Errorf("%d uploads were aborted, want 1", n)
		}
		if _, err := p.service.Complete(t.Context(), old, forgotten.ID); !strings.Contains(code(err), "unknown or has ended") {
			t.Errorf("a swept upload: %v", err)
		}
		if again := p.mustBegin(old); again.ID == forgotten.ID || done(again) != 0 {
			t.Errorf("after the sweep, %s has %d parts", again.ID, done(again))
		}
		if again := p.mustBegin(young); again.ID != kept.ID || done(again) != 3 {
			t.Errorf("a younger upload has %d parts left", done(again))
		}
		if _, err := p.service.Complete(t.Context(), young, kept.ID); err != nil {
			t.Fatal(err)
		}
		// The row of a completed upload is deleted after some time. Its object stays.
		p.exec(`UPDATE asset_uploads SET created_at = 0`)
		p.sweep()
		if _, err := p.service.Find(t.Context(), kept.Key); err != nil {
			t.Errorf("the sweep deleted the asset: %v", err)
		}
		if _, err := p.service.Complete(t.Context(), young, kept.ID); code(err) == "" {
			t.Errorf("an upload without a row: %v", err)
		}
	})
}

// If the store's response is lost, the service repeats the request.
func TestCompletionIsRepeatedAfterAnInterruption(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, p *rig) {
		u := p.user("u")
		up := p.mustBegin(u)
		p.send(up)
		p.setHook(func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodGet && !r.URL.Query().Has("uploadId") { // reads the object
				w.WriteHeader(http.StatusInternalServerError)
				return true
			}
			return false
		})
		if _, err := p.service.Complete(t.Context(), u, up.ID); !errors.Is(err, objectstore.ErrUnavailable) {
			t.Errorf("while the store does not respond: %v", err)
		}
		p.setHook(nil)
		for range 2 {
			if got, err := p.service.Complete(t.Context(), u, up.ID); err != nil || !got.AlreadyExists || got.Key != up.Key {
				t.Errorf("%+v, %v", got, err)
			}
		}
		// If the object is deleted, as by a rule of the bucket, the upload starts again.
		must(t, p.client.Delete(t.Context(), up.Key.String()))
		again := p.mustBegin(u)
		if again.ID == up.ID || done(again) != 0 {
			t.Errorf("%d parts of %s are there", done(again), again.ID)
		}
		// A cached copy does not make other bytes valid.
		p.content = slices.Clone(p.content)
		p.content[0]++
		p.send(again)
		if _, err := p.service.Complete(t.Context(), u, again.ID); !strings.Contains(code(err), "sha256Hex") {
			t.Errorf("other bytes: %v", err)
		}
		if _, err := p.service.Complete(t.Context(), u, again.ID); !strings.Contains(code(err), "unknown or has ended") || p.exists(again.Key) {
			t.Errorf("after other bytes: %v, kept %v", err, p.exists(again.Key))
		}
		// If another client uploads the right object meanwhile, it stays.
		p.content[0]--
		last := p.mustBegin(u)
		right := slices.Clone(p.content)
		p.content = slices.Clone(right)
		p.content[0]++
		p.send(last)
		p.upload(p.user("another"), string(right))
		if got, err := p.service.Complete(t.Context(), u, last.ID); err != nil || !got.AlreadyExists || !p.exists(last.Key) {
			t.Errorf("with the right object: %+v, %v", got, err)
		}
	})
}

func TestConcurrentRequestsShareAnUpload(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, p *rig) {
		u := p.user("u")
		all := func(do func() (asset.Upload, error)) (got [4]asset.Upload) {
			var group sync.WaitGroup
			for i := range got {
				group.Go(func() {
					var err error
					if got[i], err = do(); err != nil {
						t.Error(err)
					}
				})
			}
			group.Wait()
			return got
		}
		begun := all(func() (asset.Upload, error) { return p.begin(u) })
		for _, up := range begun {
			if up.ID != begun[0].ID {
				t.Errorf("uploads %s and %s", up.ID, begun[0].ID)
			}
		}
		p.send(begun[0])
		for _, up := range all(func() (asset.Upload, error) { return p.service.Complete(t.Context(), u, begun[0].ID) }) {
			if !up.AlreadyExists {
				t.Errorf("%+v", up)
			}
		}
	})
}

// A store may abort an upload, or lack conditional requests or uploads in parts.
func TestStoresThatDoLess(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, p *rig) {
		u := p.user("u")
		refuse := func(refused func(r *http.Request) bool) func(w http.ResponseWriter, r *http.Request) bool {
			return func(w http.ResponseWriter, r *http.Request) bool {
				if refused(r) {
					w.WriteHeader(http.StatusNotImplemented)
				}
				return refused(r)
			}
		}
		p.setHook(refuse(func(r *http.Request) bool { return r.Method == http.MethodPost && r.URL.Query().Has("uploads") }))
		if up := p.mustBegin(u); up.URL == "" || up.Parts != nil || up.ID != "" {
			t.Errorf("without uploads in parts: %+v", up)
		}
		p.setHook(nil)
		first := p.mustBegin(u)
		var storeID string
		must(t, p.db.QueryRow(t.Context(), `SELECT store_id FROM asset_uploads`).Scan(&storeID))
		must(t, p.client.AbortUpload(context.Background(), first.Key.String(), storeID))
		second := p.mustBegin(u)
		if second.ID == first.ID {
			t.Error("an upload that the store aborted continues")
		}
		p.send(second)
		p.setHook(refuse(func(r *http.Request) bool { return r.Header.Get("If-None-Match") != "" }))
		if _, err := p.service.Complete(t.Context(), u, second.ID); err != nil {
			t.Errorf("without conditional requests: %v", err)
		}
	})
}
