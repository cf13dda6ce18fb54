package asset_test

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	"cutroom/internal/domain/asset"
	"cutroom/internal/storage/objectstore"
	"cutroom/internal/testkit/dbtest"
)

func TestAWrongSizeReadsAnObjectOnce(t *testing.T) {
	p := newRig(t, dbtest.SQLite(t))
	u := p.user("u")
	p.upload(u, "a clip")
	p.setHook(nil)
	for range 3 {
		p.service, _ = p.replica(0) // without a cached copy
		if _, err := p.askForSize(u, "a clip", 1); err != nil {
			t.Fatal(err)
		}
	}
	if n := p.count(http.MethodGet); n != 1 {
		t.Errorf("the object was read %d times, want once", n)
	}
}

func TestVerificationsOfAUserAreLimited(t *testing.T) {
	p := newRig(t, dbtest.SQLite(t))
	u, refused := p.user("u"), 0
	for i := range 12 {
		body := fmt.Sprint("clip ", i)
		p.upload(u, body)
		if _, err := p.askForSize(u, body, 1); code(err) == "rate_limited" {
			refused++
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if refused != 2 {
		t.Errorf("%d of 12 were refused within a minute, want 2", refused)
	}
	if _, err := p.askForSize(p.user("another"), "clip 11", 1); err != nil {
		t.Errorf("another user: %v", err)
	}
}

func TestUploadsInPartsOfAUserAreLimited(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, p *rig) {
		u := p.user("u")
		kept := p.mustBegin(u)
		for i := range 63 {
			p.exec(`INSERT INTO asset_uploads (id, user_id, asset_key, size_bytes, store_id, created_at) VALUES ($1, $2, $3, 1, 'x', now_ms())`,
				fmt.Sprint(i), u, fmt.Sprint("assets/", i))
		}
		p.content = append(p.content[:len(p.content)-1:len(p.content)-1], 'x')
		if _, err := p.begin(u); code(err) != "rate_limited" {
			t.Errorf("the 65th upload: %v", err)
		}
		if _, err := p.begin(p.user("other")); err != nil {
			t.Errorf("another user: %v", err)
		}
		p.release(u, kept.Key)
		if _, err := p.begin(u); err != nil {
			t.Errorf("after one upload was aborted: %v", err)
		}
	})
}

// A request that names many assets waits for a store that is down no longer than one that names a single asset.
func TestLookupStopsWhenTheStoreIsDown(t *testing.T) {
	p := newRig(t, dbtest.SQLite(t))
	var keys []asset.Key
	for i := range 50 {
		keys = append(keys, asset.Key{SHA256: fmt.Sprintf("%064x", i), Ext: "mp4"})
	}
	p.setHook(func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	})
	if _, err := p.service.Lookup(t.Context(), keys...); !errors.Is(err, objectstore.ErrUnavailable) {
		t.Errorf("Lookup = %v, want ErrUnavailable", err)
	}
	if n := p.count(http.MethodHead); n > 100 {
		t.Errorf("%d requests, want those of the first few assets", n)
	}
}
