// Who holds an asset, what counts against an account, and when the sweep deletes objects: also with uploads that end
// late.

package asset_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cutroom/internal/base/cursor"
	"cutroom/internal/base/db"
	"cutroom/internal/domain/asset"
	"cutroom/internal/storage/objectstore"
	"cutroom/internal/testkit/dbtest"
	"cutroom/internal/testkit/jobtest"
	"cutroom/internal/work/quota"
	"cutroom/internal/work/user"
)

// held lists the keys that a user holds.
func (p *rig) held(userID string) (keys []asset.Key) {
	p.t.Helper()
	list, _, err := p.service.List(p.t.Context(), userID, cursor.Page{After: cursor.Start, Limit: 100})
	must(p.t, err)
	for _, h := range list {
		keys = append(keys, h.Key)
	}
	return keys
}

func (p *rig) exists(key asset.Key) bool {
	p.t.Helper()
	_, err := p.client.Stat(p.t.Context(), key.String())
	if err != nil && !errors.Is(err, objectstore.ErrNotFound) {
		p.t.Fatal(err)
	}
	return err == nil
}

func (p *rig) sweep() {
	p.t.Helper()
	must(p.t, p.service.Sweep(p.t.Context()))
}

func (p *rig) release(userID string, key asset.Key) {
	p.t.Helper()
	must(p.t, p.service.Release(p.t.Context(), userID, key))
}

// use holds assets as a submission does. between runs after their lookup and before the commit.
func (p *rig) use(userID string, between func(), keys ...asset.Key) error {
	p.t.Helper()
	found, err := p.service.Lookup(p.t.Context(), keys...)
	if err != nil {
		return err
	}
	between()
	return p.db.InTx(p.t.Context(), func(tx *db.Tx) error {
		if err := user.Lock(p.t.Context(), tx, userID); err != nil {
			return err
		}
		return asset.Hold(p.t.Context(), tx, userID, found...)
	})
}

func nothing() {}

// Each announcement permits an upload for a while, so the file counts with the largest announced size until the object
// exists. Then the object's size counts, for each of its holders.
func TestAFileCountsWithTheLargestSizeAnnounced(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, p *rig) {
		ann, ben, body := p.user("ann"), p.user("ben"), "a clip"
		counts := func(want int64) {
			t.Helper()
			list, _, err := p.service.List(t.Context(), ann, cursor.Page{After: cursor.Start, Limit: 2})
			if err != nil || len(list) != 1 || list[0].SizeBytes != want {
				t.Errorf("held %+v, %v, want %d bytes", list, err, want)
			}
			if a, b := p.stored(ann), p.stored(ben); a != want || b != want {
				t.Errorf("%d and %d bytes are stored, want %d", a, b, want)
			}
		}
		if _, err := p.askForSize(ben, body, 10); err != nil {
			t.Fatal(err)
		}
		for _, announced := range []struct {
			size int
			want int64
		}{{20, 20}, {1, 20}, {30, 30}} {
			if _, err := p.askForSize(ann, body, announced.size); err != nil {
				t.Fatal(err)
			}
			counts(announced.want)
		}
		must(t, p.use(ann, nothing, p.upload(ann, body)))
		counts(int64(len(body)))
		p.exec(`UPDATE assets SET seen_at = 0, size_bytes = 99`) // the sweep looks for the object
		p.exec(`UPDATE asset_holders SET last_used_at = last_used_at - $1, size_bytes = 99`, (25 * time.Hour).Milliseconds())
		p.sweep()
		counts(int64(len(body)))
	})
}

func TestARunningJobKeepsAnObject(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, p *rig) {
		ann := p.user("ann")
		key := p.upload(ann, "a clip")
		jobtest.Insert(t, p.db, "rnd-1", ann, "PENDING", 1, 0)
		p.exec(`INSERT INTO held_objects (job_id, object_key) VALUES ('rnd-1', $1)`, key.String())
		p.release(ann, key)
		p.sweep()
		if !p.exists(key) {
			t.Error("the sweep deleted an object that a job reads")
		}
		p.exec(`DELETE FROM held_objects`)
		p.sweep()
		if p.exists(key) {
			t.Error("an object is left after its last job")
		}
	})
}

// A client that uses an asset while the sweep removes it either keeps the object or learns that it is gone.
func TestTheSweepAndAHoldAreSerialized(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, p *rig) {
		ann, ben := p.user("ann"), p.user("ben")
		key := p.upload(ann, "a clip")
		p.release(ann, key)
		must(t, p.use(ben, nothing, key))
		p.sweep()
		if !p.exists(key) {
			t.Fatal("the sweep deleted a used object")
		}
		p.release(ben, key)
		if err := p.use(ben, p.sweep, key); code(err) != "the asset "+key.String()+" was removed a moment ago; upload it again" {
			t.Errorf("used after its removal: %v", err)
		}
		if p.exists(key) || len(p.held(ben)) != 0 {
			t.Error("a removed asset is held")
		}
		// While the store deletes the object, no client may use or upload it.
		key = p.upload(ann, "a clip")
		p.release(ann, key)
		asked := func() error { _, err := p.service.UploadURL(t.Context(), asked(ben, "a clip")); return err }
		var during []error
		p.setHook(func(_ http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodDelete && strings.HasSuffix(r.URL.Path, key.String()) { // the asset, not its analysis
				during = append(during, asked(), p.use(ben, nothing, key))
			}
			return false
		})
		p.sweep()
		p.setHook(nil)
		if len(during) != 2 {
			t.Fatalf("%d deletions in the store", len(during)/2)
		}
		for _, err := range during {
			// The store deletes the two objects concurrently, so the asset may already be gone.
			if !errors.Is(err, objectstore.ErrNotFound) && code(err) != "a file with this hash is being removed, try again in a moment" {
				t.Errorf("during the removal: %v", err)
			}
		}
		if err := asked(); err != nil || p.exists(key) {
			t.Errorf("after the removal: %v", err)
		}
	})
}

// later moves the times of released assets into the past.
func (p *rig) later(by time.Duration) {
	p.t.Helper()
	p.exec(`UPDATE assets SET given_up_at = given_up_at - $1, removal_at = removal_at - $1`, by.Milliseconds())
	p.exec(`UPDATE asset_holders SET given_up_at = given_up_at - $1, last_used_at = last_used_at - $1`, by.Milliseconds())
}

// stored is how much of the account's storage assets take.
func (p *rig) stored(userID string) int64 {
	p.t.Helper()
	u, err := quota.New(quota.Usage{}, "0", asset.StoredBytes).Usage(p.t.Context(), p.db, userID)
	must(p.t, err)
	return u.StoredBytes
}

// An upload may end after its object was deleted: one that replaces it within the hour, and one that takes longer.
func TestAnObjectIsDeletedAgainAfterAnHourAndADay(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, p *rig) {
		ann := p.user("ann")
		up := p.announce(ann, "late")
		for _, at := range []struct {
			when    string
			after   time.Duration
			deletes int   // of this sweep and another at the same time
			counts  int64 // afterwards
		}{
			{"at once", 0, 1, 4}, // the address is still valid
			{"after 50 minutes", 50 * time.Minute, 0, 4},
			{"after an hour", 11 * time.Minute, 1, 0},
			{"after a day", 23 * time.Hour, 1, 0},
		} {
			if status := put(t, up.URL, "video/mp4", []byte("late")); status != http.StatusOK {
				t.Fatalf("PUT: %d", status)
			}
			p.release(ann, up.Key)
			p.later(at.after)
			p.setHook(nil)
			p.sweep()
			p.sweep()
			if n := p.count(http.MethodDelete); n != at.deletes {
				t.Errorf("%s: %d deletions, want %d", at.when, n, at.deletes)
			}
			if n := p.stored(ann); n != at.counts {
				t.Errorf("%s: %d bytes count, want %d", at.when, n, at.counts)
			}
		}
		if p.exists(up.Key) || p.rows() != 0 {
			t.Errorf("after a day the object exists: %v; %d rows", p.exists(up.Key), p.rows())
		}
	})
}

func (p *rig) rows() int64 { return dbtest.Number(p.t, p.db, `SELECT COUNT(*) FROM assets`) }

// An upload that was only announced may be under way for a day. Until then it counts.
func TestAFileThatWasNeverUploadedIsDeletedOnce(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, p *rig) {
		ann := p.user("ann")
		up := p.announce(ann, "never")
		p.release(ann, up.Key)
		p.setHook(nil)
		for _, after := range []time.Duration{0, time.Hour, 22 * time.Hour} {
			p.later(after)
			p.sweep()
			if n := p.count(http.MethodDelete); n != 0 || p.stored(ann) != 5 {
				t.Errorf("%d deletions, %d bytes count", n, p.stored(ann))
			}
		}
		p.later(time.Hour + time.Minute)
		p.sweep()
		p.sweep()
		if n := p.count(http.MethodDelete); n != 1 || p.stored(ann) != 0 || p.rows() != 0 {
			t.Errorf("after a day %d deletions, %d bytes count, %d rows", n, p.stored(ann), p.rows())
		}
		if n := p.count(http.MethodHead); n != 1 {
			t.Errorf("looked for it %d times, want once", n)
		}
	})
}

// If another account holds the asset, it is not erased, so it no longer counts for the first.
func TestAnAssetThatAnotherAccountHoldsCountsOnlyThere(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, p *rig) {
		ann, ben := p.user("ann"), p.user("ben")
		key := p.upload(ann, "a clip")
		must(t, p.use(ben, nothing, key))
		p.release(ann, key)
		p.sweep()
		if p.stored(ann) != 0 || p.stored(ben) != 6 || !p.exists(key) {
			t.Errorf("%d and %d bytes count; it exists: %v", p.stored(ann), p.stored(ben), p.exists(key))
		}
	})
}

func TestAnAccountHasALimitedNumberOfAssets(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, p *rig) {
		ann, ben := p.user("ann"), p.user("ben")
		limited, _ := p.replica(2)
		announce := func(userID, body string) string {
			_, err := limited.UploadURL(t.Context(), asked(userID, body))
			return code(err)
		}
		const refused = "an account may have at most 2 assets; delete some, and try again when they are erased"
		first := p.upload(ann, "one")
		for _, step := range []struct{ user, body, want string }{
			{ann, "two", ""}, {ann, "three", refused}, {ann, "one", ""}, {ann, "two", ""}, {ben, "three", ""},
		} {
			if got := announce(step.user, step.body); got != step.want {
				t.Errorf("%s: %q, want %q", step.body, got, step.want)
			}
		}
		p.release(ann, first)
		if got := announce(ann, "three"); got != refused {
			t.Errorf("before the sweep: %q", got)
		}
		p.later(10 * time.Minute)
		p.sweep()
		if got := announce(ann, "three"); got != "" {
			t.Errorf("after the sweep: %q", got)
		}
		var group sync.WaitGroup
		var accepted atomic.Int32
		for i := range 8 {
			group.Go(func() {
				if announce(ben, fmt.Sprint(i)) == "" {
					accepted.Add(1)
				}
			})
		}
		group.Wait()
		if n := accepted.Load(); n != 1 {
			t.Errorf("%d of 8 concurrent announcements were accepted, want 1", n)
		}
	})
}

// The bucket's lifecycle rule may delete an object, and an upload may never happen.
func TestHoldsOfMissingObjectsEnd(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, p *rig) {
		ann := p.user("ann")
		kept, gone := p.upload(ann, "kept"), p.upload(ann, "gone")
		p.announce(ann, "never")
		must(t, p.client.Delete(t.Context(), gone.String()))
		p.sweep()
		if n := len(p.held(ann)); n != 3 {
			t.Errorf("%d are held within a day, want 3", n)
		}
		p.exec(`UPDATE asset_holders SET last_used_at = last_used_at - $1`, (25 * time.Hour).Milliseconds())
		p.sweep()
		if got := p.held(ann); !slices.Equal(got, []asset.Key{kept}) {
			t.Errorf("held after a day: %v, want %s", got, kept)
		}
	})
}
