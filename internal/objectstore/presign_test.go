package objectstore_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cutroom/internal/objectstore"
)

// send performs a request as a phone would and returns the status, the body and the
// headers.
func send(t *testing.T, method, url, contentType string, body []byte) (int, []byte, http.Header) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader(body))
	must(t, err)
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	res, err := http.DefaultClient.Do(req)
	must(t, err)
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	must(t, err)
	return res.StatusCode, got, res.Header
}

func TestPresignedPutAcceptsOnlyWhatWasSigned(t *testing.T) {
	t.Parallel()
	eachBackend(t, testPresignedPut)
}

func testPresignedPut(t *testing.T, b *backend) {
	bucket := b.bucket(t, nil)
	at := space()
	body := []byte("0123456789")
	sign := func(key string, ttl time.Duration) string {
		signed, err := bucket.PresignPut(t.Context(), at+key, "video/mp4", int64(len(body)), sha256.Sum256(body), ttl, false)
		must(t, err)
		return signed
	}
	tamper := func(signed string, change func(u *url.URL, q url.Values)) string {
		u, err := url.Parse(signed)
		must(t, err)
		q := u.Query()
		change(u, q)
		u.RawQuery = q.Encode()
		return u.String()
	}
	expired := sign("expired.mp4", time.Second)
	issued := time.Now()
	refused := []struct {
		name, key, url, contentType string
		body                        []byte
	}{
		{"wrong type", "type.mp4", sign("type.mp4", time.Minute), "video/webm", body},
		{"type with a parameter", "param.mp4", sign("param.mp4", time.Minute), "video/mp4; x=y", body},
		{"no type", "notype.mp4", sign("notype.mp4", time.Minute), "", body},
		{"longer", "longer.mp4", sign("longer.mp4", time.Minute), "video/mp4", append(body, 'x')},
		{"shorter", "shorter.mp4", sign("shorter.mp4", time.Minute), "video/mp4", body[:9]},
		{"empty", "empty.mp4", sign("empty.mp4", time.Minute), "video/mp4", nil},
		{"other key", "other.mp4", tamper(sign("mine.mp4", time.Minute), func(u *url.URL, _ url.Values) {
			u.Path = strings.Replace(u.Path, "mine", "other", 1)
		}), "video/mp4", body},
		{"longer life", "life.mp4", tamper(sign("life.mp4", time.Minute), func(_ *url.URL, q url.Values) {
			q.Set("X-Amz-Expires", "6000")
		}), "video/mp4", body},
		{"other signature", "signature.mp4", tamper(sign("signature.mp4", time.Minute), func(_ *url.URL, q url.Values) {
			q.Set("X-Amz-Signature", strings.Repeat("0", 64))
		}), "video/mp4", body},
		{"fewer signed headers", "fewer.mp4", tamper(sign("fewer.mp4", time.Minute), func(_ *url.URL, q url.Values) {
			q.Set("X-Amz-SignedHeaders", "host")
		}), "video/mp4", body},
		{"no signature", "none.mp4", tamper(sign("none.mp4", time.Minute), func(u *url.URL, q url.Values) { clear(q) }), "video/mp4", body},
	}
	check := func(name, key, url, contentType string, body []byte) {
		if status, _, _ := send(t, http.MethodPut, url, contentType, body); status < 400 || status > 499 {
			t.Errorf("%s: the store answered %d", name, status)
		}
		if _, err := bucket.Stat(t.Context(), at+key); !errors.Is(err, objectstore.ErrNotFound) {
			t.Errorf("%s: there is an object: %v", name, err)
		}
	}
	for _, c := range refused {
		check(c.name, c.key, c.url, c.contentType, c.body)
	}
	// The URL also refuses to be used for another method.
	exact := sign("exact.mp4", time.Minute)
	if status, _, _ := send(t, http.MethodDelete, exact, "", nil); status < 400 {
		t.Errorf("DELETE with the URL of a PUT answered %d", status)
	}
	if status, body, _ := send(t, http.MethodPut, exact, "video/mp4", body); status != http.StatusOK {
		t.Fatalf("exact: the store answered %d %s", status, body)
	}
	if info := stat(t, bucket, at+"exact.mp4"); info.SizeBytes != 10 || info.ContentType != "video/mp4" {
		t.Errorf("exact: Stat = %+v", info)
	}
	// A replay can only store the same length and type again. None of these stores checks
	// the checksum in the URL; a store that does may refuse.
	if status, answer, _ := send(t, http.MethodPut, exact, "video/mp4", []byte("9876543210")); status != http.StatusOK && status != http.StatusBadRequest {
		t.Errorf("other bytes of the same length: the store answered %d %s", status, answer)
	}
	onlyNew, err := bucket.PresignPut(t.Context(), at+"exact.mp4", "video/mp4", int64(len(body)), sha256.Sum256(body), time.Minute, true)
	must(t, err)
	if status, _, _ := send(t, http.MethodPut, onlyNew, "video/mp4", body); status != http.StatusForbidden && status != http.StatusBadRequest {
		t.Errorf("without the condition: the store answered %d", status)
	}
	// The store works with whole seconds.
	<-time.After(time.Until(issued.Add(2100 * time.Millisecond)))
	check("expired", "expired.mp4", expired, "video/mp4", body)
}

func TestPresignedGet(t *testing.T) {
	eachBackend(t, testPresignedGet)
}

func testPresignedGet(t *testing.T, b *backend) {
	bucket := b.bucket(t, nil)
	key := space() + "render.mp4"
	want := content(1000, 3)
	put(t, bucket, key, want)
	signed, err := bucket.PresignGet(t.Context(), key, time.Minute, "rnd-1.mp4", "video/mp4", false)
	must(t, err)
	status, body, header := send(t, http.MethodGet, signed, "", nil)
	if status != http.StatusOK || !bytes.Equal(body, want) {
		t.Fatalf("GET answered %d with %d bytes", status, len(body))
	}
	if got := header.Get("Content-Disposition"); got != `attachment; filename="rnd-1.mp4"` {
		t.Errorf("Content-Disposition: %s", got)
	}
	if got := header.Get("Content-Type"); got != "video/mp4" {
		t.Errorf("Content-Type: %s", got)
	}
	if status, _, _ := send(t, http.MethodGet, strings.Replace(signed, "rnd-1.mp4", "rnd-2.mp4", 1), "", nil); status != http.StatusForbidden {
		t.Errorf("with another file name the store answered %d", status)
	}
}

func TestPresignRefusesWhatWouldNotBind(t *testing.T) {
	bucket := standInBackend(t).bucket(t, nil)
	for _, c := range []struct {
		name, key, contentType string
		size                   int64
	}{
		{"no length", "a.mp4", "video/mp4", 0},
		{"negative length", "a.mp4", "video/mp4", -1},
		{"no type", "a.mp4", "", 1},
		{"type with a line break", "a.mp4", "video/mp4\r\nx: y", 1},
		{"padded type", "a.mp4", " video/mp4", 1},
		{"bad key", "../a.mp4", "video/mp4", 1},
	} {
		signed, err := bucket.PresignPut(t.Context(), c.key, c.contentType, c.size, sha256.Sum256(nil), time.Minute, false)
		if err == nil {
			t.Errorf("%s: signed %s", c.name, signed)
		}
	}
	for _, name := range []string{"", `a".mp4`, `a\.mp4`, "a\r\nb", "a/b", "ä"} {
		if signed, err := bucket.PresignGet(t.Context(), "a.mp4", time.Minute, name, "", false); err == nil {
			t.Errorf("file name %q: signed %s", name, signed)
		}
	}
}

func TestSignaturesBindHeadersAndLifetime(t *testing.T) {
	bucket := standInBackend(t).bucket(t, nil)
	const life = 300 * time.Second
	put := func(onlyNew bool) (string, error) {
		return bucket.PresignPut(t.Context(), "a.mp4", "video/mp4", 10, sha256.Sum256(nil), life, onlyNew)
	}
	part := func() (string, error) { return bucket.PresignPart(t.Context(), "a.mp4", "id", 1, 10, life) }
	for headers, sign := range map[string]func() (string, error){
		"content-length;content-type;host":               func() (string, error) { return put(false) },
		"content-length;content-type;host;if-none-match": func() (string, error) { return put(true) },
		"content-length;host":                            part,
	} {
		signed, err := sign()
		must(t, err)
		u, err := url.Parse(signed)
		must(t, err)
		q := u.Query()
		if q.Get("X-Amz-Expires") != "300" || q.Get("X-Amz-SignedHeaders") != headers || u.Path != "/bucket/a.mp4" {
			t.Errorf("signed %s, want the headers %s", signed, headers)
		}
		// The SDK's own checksums would be headers that the client has to send.
		for name := range q {
			if strings.Contains(strings.ToLower(name), "checksum") && name != "X-Amz-Checksum-Sha256" {
				t.Errorf("the URL asks for a checksum: %s", name)
			}
		}
		if got := q.Get("X-Amz-Checksum-Sha256"); got != "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=" && !q.Has("partNumber") {
			t.Errorf("checksum %q", got)
		}
	}
}

func TestCheck(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	eachBackend(t, testCheck)
}

func testCheck(t *testing.T, b *backend) {
	bucket := b.bucket(t, nil)
	if err := bucket.Check(t.Context()); err != nil {
		t.Errorf("a working bucket: %v", err)
	}
	left := 0
	if err := bucket.List(t.Context(), "doctor/", func(objectstore.Info) error { left++; return nil }); err != nil || left != 0 {
		t.Errorf("Check left %d objects, %v", left, err)
	}
	wrong := b.bucket(t, func(c *objectstore.BucketConfig) { c.SecretAccessKey = "wrong-" + c.SecretAccessKey })
	if err := wrong.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "put and get") || !strings.Contains(err.Error(), "403") {
		t.Errorf("a wrong secret: %v", err)
	}
	// A store that does not check signatures would let anybody upload anything.
	lax := standInBackend(t)
	lax.setFault(func(w http.ResponseWriter, r *http.Request) bool {
		return r.Method == http.MethodPut && r.URL.Query().Has("X-Amz-Signature")
	})
	if err := lax.bucket(t, nil).Check(t.Context()); err == nil || !strings.Contains(err.Error(), "content type") {
		t.Errorf("a store without signature checks: %v", err)
	}
	// A bucket that is nearly full still takes a few bytes.
	full := standInBackend(t)
	full.setFault(func(w http.ResponseWriter, r *http.Request) bool {
		return r.Method == http.MethodPut && r.ContentLength >= 1<<20 && answer(http.StatusInsufficientStorage, "QuotaExceeded")(w, r)
	})
	if err := full.bucket(t, nil).Check(t.Context()); err == nil || !strings.Contains(err.Error(), "507") {
		t.Errorf("a full bucket: %v", err)
	}
	files, err := filepath.Glob(filepath.Join(os.TempDir(), "bucket-check-*"))
	if err != nil || len(files) != 0 {
		t.Errorf("Check left %v, %v", files, err)
	}
}
