// The harness of this package, a service on a stand-in bucket whose requests a test can change, and the tests of keys
// and uploads.

package asset_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"cutroom/internal/base/db"
	"cutroom/internal/base/fault"
	"cutroom/internal/domain/asset"
	"cutroom/internal/sandbox/bucket"
	"cutroom/internal/storage/diskcache"
	"cutroom/internal/storage/objectstore"
	"cutroom/internal/testkit/dbtest"
	"cutroom/internal/work/derived"
	"cutroom/internal/work/user"
)

const maxBytes = 32 << 20

// rig is a service on the stand-in bucket, behind a hook that can count and change requests.
type rig struct {
	t       *testing.T
	db      *db.DB
	standIn *bucket.Bucket
	client  *objectstore.Bucket
	service *asset.Service
	cache   string // its folder
	content []byte // 17 MiB, enough for an upload in parts

	mu   sync.Mutex
	hook func(w http.ResponseWriter, r *http.Request) (handled bool)
	seen []string // methods of the requests
}

// onBothDatabases runs a test with a rig.
func onBothDatabases(t *testing.T, test func(t *testing.T, p *rig)) {
	dbtest.EachParallel(t, func(t *testing.T, d *db.DB) { test(t, newRig(t, d)) })
}

func newRig(t *testing.T, d *db.DB) *rig {
	t.Helper()
	opts := bucket.Options{Name: "bucket", AccessKeyID: "id", SecretAccessKey: "secret", Dir: t.TempDir()}
	standIn, err := bucket.New(opts)
	must(t, err)
	p := &rig{t: t, db: d, standIn: standIn, content: bytes.Repeat([]byte("0123456789abcdef"), 17<<16)}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		p.seen = append(p.seen, r.Method)
		hook := p.hook
		p.mu.Unlock()
		if hook == nil || !hook(w, r) {
			standIn.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(server.Close)
	p.client = objectstore.NewBucket(objectstore.BucketConfig{
		Endpoint: server.URL, Bucket: opts.Name, AccessKeyID: opts.AccessKeyID, SecretAccessKey: opts.SecretAccessKey,
		MaxBackoff: time.Millisecond,
	})
	p.service, p.cache = p.replica(0)
	return p
}

// replica returns another service on the same bucket and database, and the folder of its cache. It verifies four
// objects at a time.
func (p *rig) replica(maxPerAccount int64) (*asset.Service, string) {
	p.t.Helper()
	dir := p.t.TempDir()
	cache, err := diskcache.New(diskcache.Config{Dir: dir, Volatile: true})
	must(p.t, err)
	verifier := derived.New(derived.Options{AtOnce: 4, PerHolder: 4, MaxWait: time.Minute, Log: slog.New(slog.DiscardHandler)})
	p.t.Cleanup(verifier.Close)
	return asset.New(asset.Options{DB: p.db, Bucket: p.client, Cache: cache, Verifier: verifier, MaxBytes: maxBytes,
		MaxPerAccount: maxPerAccount}), dir
}

// setHook calls f before every later request, and resets the count.
func (p *rig) setHook(f func(w http.ResponseWriter, r *http.Request) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hook, p.seen = f, nil
}

func (p *rig) count(method string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(slices.DeleteFunc(slices.Clone(p.seen), func(m string) bool { return m != method }))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// code returns the error code that a client sees.
func code(err error) string {
	if f := fault.As(err); f != nil {
		return f.Answer()
	}
	return ""
}

func (p *rig) exec(query string, args ...any) {
	p.t.Helper()
	dbtest.Exec(p.t, p.db, query, args...)
}

func (p *rig) user(name string) string {
	p.t.Helper()
	u, err := user.Upsert(p.t.Context(), p.db, user.Identity{Provider: "provider_a", Subject: name}, name+"@example.test", name, "")
	must(p.t, err)
	return u.ID
}

// asked returns a request to upload a body.
func asked(userID, body string) asset.Request {
	sum := sha256.Sum256([]byte(body))
	return asset.Request{SHA256Hex: hex.EncodeToString(sum[:]), SizeBytes: int64(len(body)), Ext: "mp4", ContentType: "video/mp4", UserID: userID}
}

// announce asks for an upload without sending it.
func (p *rig) announce(userID, body string) asset.Upload {
	p.t.Helper()
	up, err := p.service.UploadURL(p.t.Context(), asked(userID, body))
	must(p.t, err)
	return up
}

// upload requests a URL and sends body to it, as a phone does.
func (p *rig) upload(userID, body string) asset.Key {
	p.t.Helper()
	up := p.announce(userID, body)
	if status := put(p.t, up.URL, "video/mp4", []byte(body)); status != http.StatusOK {
		p.t.Fatalf("upload: status %d", status)
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
	p := newRig(t, dbtest.SQLite(t))
	good := asset.Request{SHA256Hex: hash, SizeBytes: 10, Ext: "mp4", ContentType: "video/mp4", UserID: p.user("u")}
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
		_, err := p.service.UploadURL(t.Context(), req)
		if seen := fault.As(err); seen == nil || seen.Kind != fault.Invalid || seen.Answer() != c.want {
			t.Errorf("%+v: %v, want %q", req, err, c.want)
		}
	}
	good.SizeBytes, good.ContentType = maxBytes, " video/mp4 "
	if _, err := p.service.UploadURL(t.Context(), good); err != nil {
		t.Errorf("the largest size, and a type with spaces around it: %v", err)
	}
}

// An object whose size differs from the announced one can be replaced only if it does not match its key.
func TestAnObjectOfAnotherSize(t *testing.T) {
	p := newRig(t, dbtest.SQLite(t))
	u, body := p.user("u"), "the whole of the file"
	key := p.upload(u, body)
	if up, err := p.askForSize(u, body, len(body)-1); err != nil || up.AlreadyExists {
		t.Errorf("a wrong size for an intact object: %+v, %v", up, err)
	} else if status := put(t, up.URL, "video/mp4", []byte(body[1:])); status < 400 {
		t.Errorf("a wrong size replaced an intact object: %d", status)
	}
	for range 2 { // with a copy at hand, and without
		must(t, p.standIn.CorruptObject(key.String(), []byte(body[:7])))
		p.upload(u, body)
		p.service, _ = p.replica(0)
	}
	must(t, p.service.FetchTo(t.Context(), key, filepath.Join(t.TempDir(), "dst")))
	if up := p.announce(u, body); !up.AlreadyExists {
		t.Errorf("%+v", up)
	}
}

// askForSize announces a body with another size.
func (p *rig) askForSize(userID, body string, size int) (asset.Upload, error) {
	r := asked(userID, body)
	r.SizeBytes = int64(size)
	return p.service.UploadURL(p.t.Context(), r)
}
