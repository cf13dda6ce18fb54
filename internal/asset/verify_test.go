package asset_test

import (
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"cutroom/internal/asset"
	"cutroom/internal/objectstore"
)

// wrongSize announces a body that is already stored, with another size.
func wrongSize(t *testing.T, service *asset.Service, userID string, body []byte) error {
	t.Helper()
	r := asked(userID, body)
	r.SizeBytes++
	_, err := service.UploadURL(t.Context(), r)
	return err
}

func TestAWrongSizeReadsAnObjectOnce(t *testing.T) {
	s := newStore(t)
	service, _, _ := s.service(t, maxBytes)
	body := []byte("a clip")
	s.upload(t, service, body)
	s.setHook(nil)
	for range 3 {
		other, _, _ := s.service(t, maxBytes) // another replica, without a cached copy
		must(t, wrongSize(t, other, s.userID, body))
	}
	if n := s.count(http.MethodGet); n != 1 {
		t.Errorf("the object was read %d times, want once", n)
	}
}

func TestVerificationsOfAUserAreLimited(t *testing.T) {
	s := newStore(t)
	service, _, _ := s.service(t, maxBytes)
	refused := 0
	for i := range 12 {
		body := fmt.Appendf(nil, "clip %d", i)
		s.upload(t, service, body)
		if err := wrongSize(t, service, s.userID, body); code(err) == "rate_limited" {
			refused++
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if refused != 2 {
		t.Errorf("%d of 12 were refused within a minute, want 2", refused)
	}
	if err := wrongSize(t, service, newUser(t, s.db, "another"), []byte("clip 11")); err != nil {
		t.Errorf("another user: %v", err)
	}
}

func TestVerificationsTakeNoDownloadSlots(t *testing.T) {
	s := newStore(t)
	service, _, _ := s.service(t, maxBytes)
	var keys []asset.Key
	for i := range 6 {
		keys = append(keys, s.upload(t, service, fmt.Appendf(nil, "clip %d", i)))
	}
	h := newHold()
	s.setHook(func(w http.ResponseWriter, r *http.Request) bool {
		return !strings.Contains(r.URL.Path, keys[5].String()) && h.hook(w, r)
	})
	var all sync.WaitGroup
	for i := range 5 {
		all.Go(func() {
			if err := wrongSize(t, service, s.userID, fmt.Appendf(nil, "clip %d", i)); err != nil {
				t.Error(err)
			}
		})
	}
	for range 4 {
		<-h.arrived
	}
	if err := service.FetchTo(t.Context(), keys[5], filepath.Join(t.TempDir(), "clip")); err != nil {
		t.Errorf("a job's download during verifications: %v", err)
	}
	if len(h.arrived) > 0 {
		t.Error("a fifth verification began while four were running")
	}
	close(h.gate)
	all.Wait()
}

func TestUploadsInPartsOfAUserAreLimited(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, p *partsRig) {
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
	s := newStore(t)
	service, _, _ := s.service(t, maxBytes)
	var keys []asset.Key
	for i := range 50 {
		keys = append(keys, asset.Key{SHA256: fmt.Sprintf("%064x", i), Ext: "mp4"})
	}
	s.setHook(func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	})
	if _, err := service.Lookup(t.Context(), keys...); !errors.Is(err, objectstore.ErrUnavailable) {
		t.Errorf("Lookup = %v, want ErrUnavailable", err)
	}
	if n := s.count(http.MethodHead); n > 100 {
		t.Errorf("%d requests, want those of the first few assets", n)
	}
}
