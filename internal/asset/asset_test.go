package asset_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"cutroom/internal/asset"
	"cutroom/internal/db"
	"cutroom/internal/dbtest"
	"cutroom/internal/derived"
	"cutroom/internal/diskcache"
	"cutroom/internal/fault"
	"cutroom/internal/objectstore"
	"cutroom/internal/sandbox/bucket"
	"cutroom/internal/user"
)

const maxBytes = 32 << 20

// store is the stand-in bucket behind a hook that can count and change requests.
type store struct {
	db      *db.DB
	userID  string // the user of requests for which the user does not matter
	standIn *bucket.Bucket
	server  *httptest.Server
	client  *objectstore.Bucket

	mu   sync.Mutex
	hook func(w http.ResponseWriter, r *http.Request) (handled bool)
	seen []string // methods of the requests
}

func newStore(t *testing.T) *store {
	t.Helper()
	opts := bucket.Options{Name: "bucket", AccessKeyID: "id", SecretAccessKey: "secret", Dir: t.TempDir()}
	standIn, err := bucket.New(opts)
	must(t, err)
	s := &store{standIn: standIn, db: dbtest.SQLite(t)}
	s.userID = newUser(t, s.db, "somebody")
	s.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.seen = append(s.seen, r.Method)
		hook := s.hook
		s.mu.Unlock()
		if hook == nil || !hook(w, r) {
			standIn.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(s.server.Close)
	s.client = objectstore.NewBucket(objectstore.BucketConfig{
		Endpoint: s.server.URL, Bucket: opts.Name, AccessKeyID: opts.AccessKeyID, SecretAccessKey: opts.SecretAccessKey,
		MaxBackoff: time.Millisecond,
	})
	return s
}

// setHook calls f before every later request, and resets the count.
func (s *store) setHook(f func(w http.ResponseWriter, r *http.Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hook, s.seen = f, nil
}

func (s *store) count(method string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, m := range s.seen {
		if m == method {
			n++
		}
	}
	return n
}

// service returns a service on the store with a cache of maxCache bytes.
func (s *store) service(t *testing.T, maxCache int64) (*asset.Service, *diskcache.Cache, string) {
	t.Helper()
	dir := t.TempDir()
	cache, err := asset.NewCache(dir, maxCache)
	must(t, err)
	return asset.New(asset.Options{DB: s.db, Bucket: s.client, Cache: cache, Verifier: verifier(t), MaxBytes: maxBytes}), cache, dir
}

// verifier verifies four objects at a time.
func verifier(t *testing.T) *derived.Maker {
	m := derived.New(derived.Options{AtOnce: 4, PerHolder: 4, MaxWait: time.Minute, Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(m.Close)
	return m
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newUser(t *testing.T, d *db.DB, name string) string {
	t.Helper()
	u, err := user.Upsert(t.Context(), d, user.Identity{Provider: "provider_a", Subject: name}, name+"@example.test", name, "")
	must(t, err)
	return u.ID
}

// asked returns a request to upload a body.
func asked(userID string, body []byte) asset.Request {
	sum := sha256.Sum256(body)
	return asset.Request{SHA256Hex: hex.EncodeToString(sum[:]), SizeBytes: int64(len(body)), Ext: "mp4", ContentType: "video/mp4", UserID: userID}
}

// upload requests a URL and sends body to it, as a phone does.
func (s *store) upload(t *testing.T, service *asset.Service, body []byte) asset.Key {
	t.Helper()
	up, err := service.UploadURL(t.Context(), asked(s.userID, body))
	must(t, err)
	if status := put(t, up.URL, "video/mp4", body); status != http.StatusOK {
		t.Fatalf("upload: status %d", status)
	}
	return up.Key
}

func put(t *testing.T, url, contentType string, body []byte) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, url, bytes.NewReader(body))
	must(t, err)
	req.Header.Set("Content-Type", contentType)
	res, err := http.DefaultClient.Do(req)
	must(t, err)
	res.Body.Close()
	return res.StatusCode
}

const hash = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func TestParseKey(t *testing.T) {
	for _, ext := range []string{"mp4", "mov", "m4v", "webm", "m4a", "mp3", "wav", "aac"} {
		key, err := asset.ParseKey("assets/" + hash + "." + ext)
		if err != nil || key.SHA256 != hash || key.Ext != ext || key.String() != "assets/"+hash+"."+ext {
			t.Errorf("ParseKey with %s = %+v, %v", ext, key, err)
		}
	}
	for _, s := range []string{
		"", "assets/", hash + ".mp4", "/assets/" + hash + ".mp4", "render/" + hash + ".mp4", "Assets/" + hash + ".mp4",
		"assets/" + hash, "assets/" + hash + ".", "assets/" + hash + ".exe", "assets/" + hash + ".MP4",
		"assets/" + hash + ".mp4 ", "assets/" + hash + ".mp4.mp4", "assets/" + hash + "/x.mp4", "assets/../" + hash + ".mp4",
		"assets/" + hash[1:] + ".mp4", "assets/" + hash + "0.mp4", "assets/" + strings.ToUpper(hash) + ".mp4",
		"assets/" + hash[1:] + "g.mp4", "assets/" + hash[1:] + "\x00.mp4",
	} {
		if key, err := asset.ParseKey(s); err == nil {
			t.Errorf("ParseKey(%q) = %+v", s, key)
		}
	}
}

func FuzzParseKey(f *testing.F) {
	for _, s := range []string{"assets/" + hash + ".mp4", "assets/" + hash + ".wav", "assets/../x.mp4", "assets/" + hash} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		key, err := asset.ParseKey(s)
		if err != nil {
			return
		}
		if key.String() != s {
			t.Errorf("ParseKey(%q) became %q", s, key)
		}
		if err := objectstore.CheckKey(s); err != nil {
			t.Errorf("%q is not an object key: %v", s, err)
		}
		if b, err := hex.DecodeString(key.SHA256); err != nil || len(b) != sha256.Size {
			t.Errorf("%q contains no hash", s)
		}
	})
}

func TestUploadURLNamesTheBrokenField(t *testing.T) {
	s := newStore(t)
	service, _, _ := s.service(t, maxBytes)
	good := asset.Request{SHA256Hex: hash, SizeBytes: 10, Ext: "mp4", ContentType: "video/mp4", UserID: s.userID}
	for _, c := range []struct {
		change func(*asset.Request)
		want   string
	}{
		{func(r *asset.Request) { r.SHA256Hex = "" }, "sha256Hex must be 64 lower-case hex characters"},
		{func(r *asset.Request) { r.SHA256Hex = strings.ToUpper(hash) }, "sha256Hex must be 64 lower-case hex characters"},
		{func(r *asset.Request) { r.SHA256Hex = hash[1:] + "/" }, "sha256Hex must be 64 lower-case hex characters"},
		{func(r *asset.Request) { r.SizeBytes = 0 }, "sizeBytes must be > 0"},
		{func(r *asset.Request) { r.SizeBytes = -1 }, "sizeBytes must be > 0"},
		{func(r *asset.Request) { r.SizeBytes = maxBytes + 1 }, "sizeBytes must be at most 33554432"},
		{func(r *asset.Request) { r.Ext = "" }, "ext must be one of mp4, mov, m4v, webm, m4a, mp3, wav, aac"},
		{func(r *asset.Request) { r.Ext = ".mp4" }, "ext must be one of mp4, mov, m4v, webm, m4a, mp3, wav, aac"},
		{func(r *asset.Request) { r.Ext = "exe" }, "ext must be one of mp4, mov, m4v, webm, m4a, mp3, wav, aac"},
		{func(r *asset.Request) { r.ContentType = " \t" }, "contentType must not be blank"},
		{func(r *asset.Request) { r.ContentType = "video/mp4\r\nX: y" }, "contentType must be a media type"},
		{func(r *asset.Request) { r.ContentType = "vidéo/mp4" }, "contentType must be a media type"},
		{func(r *asset.Request) { r.ContentType = strings.Repeat("v", 256) }, "contentType must be a media type"},
	} {
		req := good
		c.change(&req)
		_, err := service.UploadURL(t.Context(), req)
		if seen := fault.As(err); seen == nil || seen.Kind != fault.Invalid || seen.Answer() != c.want {
			t.Errorf("%+v: %v, want %q", req, err, c.want)
		}
	}
	good.SizeBytes, good.ContentType = maxBytes, " video/mp4 "
	if _, err := service.UploadURL(t.Context(), good); err != nil {
		t.Errorf("the largest size, and a type with spaces around it: %v", err)
	}
}

// An object whose size differs from the announced one can be replaced only if it does not match its key.
func TestAnObjectOfAnotherSize(t *testing.T) {
	s := newStore(t)
	service, _, dir := s.service(t, maxBytes)
	body := []byte("the whole of the file")
	key := s.upload(t, service, body)
	ask := func(size int) (asset.Upload, error) {
		r := asked(s.userID, body)
		r.SizeBytes = int64(size)
		return service.UploadURL(t.Context(), r)
	}
	if up, err := ask(len(body) - 1); err != nil || up.AlreadyExists {
		t.Errorf("a wrong size for an intact object: %+v, %v", up, err)
	} else if status := put(t, up.URL, "video/mp4", body[1:]); status < 400 {
		t.Errorf("a wrong size replaced an intact object: %d", status)
	}
	for name, other := range map[string]*asset.Service{"with a copy at hand": service, "without": func() *asset.Service { o, _, _ := s.service(t, maxBytes); return o }()} {
		must(t, s.standIn.CorruptObject(key.String(), body[:7]))
		if again := s.upload(t, other, body); again != key {
			t.Errorf("%s: uploaded to %s", name, again)
		}
	}
	if err := service.FetchTo(t.Context(), key, filepath.Join(dir, "dst")); err != nil {
		t.Error(err)
	}
	if up, err := ask(len(body)); err != nil || !up.AlreadyExists {
		t.Errorf("%+v, %v", up, err)
	}
}
