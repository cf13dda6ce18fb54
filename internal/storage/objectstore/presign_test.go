// What presigned addresses bind, on each S3 server, and the doctor's check of a bucket.

package objectstore_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"cutroom/internal/storage/objectstore"
)

// send uploads a body as a phone would and returns the status and the answer.
func send(t *testing.T, url, contentType string, body []byte) (int, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, url, bytes.NewReader(body))
	must(t, err)
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	res, err := http.DefaultClient.Do(req)
	must(t, err)
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	must(t, err)
	return res.StatusCode, got
}

func TestPresignedPutAcceptsOnlyWhatWasSigned(t *testing.T) {
	eachBackend(t, func(t *testing.T, b *backend) {
		bucket, key, body := b.bucket(t, nil), space()+"clip.mp4", []byte("0123456789")
		sign := func(onlyNew bool) string {
			t.Helper()
			signed, err := bucket.PresignPut(t.Context(), key, "video/mp4", int64(len(body)), sha256.Sum256(body), time.Minute, onlyNew)
			must(t, err)
			return signed
		}
		signed := sign(false)
		for name, c := range map[string]struct {
			contentType string
			body        []byte
		}{
			"wrong type":            {"video/webm", body},
			"type with a parameter": {"video/mp4; x=y", body},
			"no type":               {"", body},
			"longer":                {"video/mp4", append(body, 'x')},
			"shorter":               {"video/mp4", body[:9]},
			"empty":                 {"video/mp4", nil},
		} {
			if status, _ := send(t, signed, c.contentType, c.body); status < 400 || status > 499 {
				t.Errorf("%s: the store answered %d", name, status)
			}
		}
		if _, err := bucket.Stat(t.Context(), key); !errors.Is(err, objectstore.ErrNotFound) {
			t.Errorf("there is an object: %v", err)
		}
		if status, answer := send(t, signed, "video/mp4", body); status != http.StatusOK {
			t.Fatalf("exact: the store answered %d %s", status, answer)
		}
		if info := stat(t, bucket, key); info.SizeBytes != 10 || info.ContentType != "video/mp4" {
			t.Errorf("exact: Stat = %+v", info)
		}
		if status, _ := send(t, sign(true), "video/mp4", body); status != http.StatusForbidden && status != http.StatusBadRequest {
			t.Errorf("without the condition: the store answered %d", status)
		}
	})
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

// check is Check without its notes.
func check(t *testing.T, b *objectstore.Bucket) error {
	t.Helper()
	_, err := b.Check(t.Context())
	return err
}

func TestCheck(t *testing.T) {
	eachBackend(t, func(t *testing.T, b *backend) {
		bucket := b.bucket(t, nil)
		if err := check(t, bucket); err != nil {
			t.Errorf("a working bucket: %v", err)
		}
		if left := list(t, bucket, "doctor/"); len(left) != 0 {
			t.Errorf("Check left %v", left)
		}
		wrong := b.bucket(t, func(c *objectstore.BucketConfig) { c.SecretAccessKey = "wrong-" + c.SecretAccessKey })
		if err := check(t, wrong); err == nil || !strings.Contains(err.Error(), "put and get") || !strings.Contains(err.Error(), "403") {
			t.Errorf("a wrong secret: %v", err)
		}
	})
	for want, fault := range map[string]func(w http.ResponseWriter, r *http.Request) bool{
		// A store that does not check signatures would let anybody upload anything.
		"content type": func(_ http.ResponseWriter, r *http.Request) bool {
			return r.Method == http.MethodPut && r.URL.Query().Has("X-Amz-Signature")
		},
		"presigned upload: the store answered 501 XNotImplemented": func(w http.ResponseWriter, r *http.Request) bool {
			return r.ContentLength >= 1<<20 && r.URL.Query().Has("X-Amz-Signature") && answer(http.StatusNotImplemented, "XNotImplemented")(w, r)
		},
		// A bucket that is nearly full still takes a few bytes.
		"507 QuotaExceeded": func(w http.ResponseWriter, r *http.Request) bool {
			return r.Method == http.MethodPut && r.ContentLength >= 1<<20 && answer(http.StatusInsufficientStorage, "QuotaExceeded")(w, r)
		},
	} {
		b := standInBackend(t)
		b.setFault(fault)
		if err := check(t, b.bucket(t, nil)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Check = %v, want %s", err, want)
		}
	}
}
