// Stores that differ from Amazon's: headers that proxies change, unexpected answers, redirects, no conditional
// requests.

package objectstore_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"cutroom/internal/sandbox/bucket"
	"cutroom/internal/storage/objectstore"
)

// A proxy changes Accept-Encoding and drops what it does not know. A store may then compress its documents.
func TestSignaturesCoverNoHeaderThatAProxyChanges(t *testing.T) {
	t.Parallel()
	b := standInBackend(t)
	b.setFault(func(_ http.ResponseWriter, r *http.Request) bool {
		_, signed, _ := strings.Cut(r.Header.Get("Authorization"), "SignedHeaders=")
		signed, _, _ = strings.Cut(signed, ",")
		for name := range strings.SplitSeq(signed, ";") {
			if name != "" /* presigned */ && name != "host" && name != "range" && name != "if-none-match" && !strings.HasPrefix(name, "content-") && !strings.HasPrefix(name, "x-amz-") {
				t.Errorf("%s %s signs %s", r.Method, r.URL.Path, name)
			}
		}
		for name := range r.Header {
			if name == "Expect" || strings.HasPrefix(name, "Amz-Sdk-") {
				t.Errorf("%s %s sends %s", r.Method, r.URL.Path, name)
			}
		}
		r.Header.Set("Accept-Encoding", "gzip, br")
		return false
	})
	bucket := b.bucket(t, nil)
	if err := check(t, bucket); err != nil {
		t.Error(err)
	}
	put(t, bucket, "large.bin", content(21<<20, 1)) // in parts
	put(t, bucket, "middle.bin", content(3<<20, 1))
	if got := fetch(t, bucket, "middle.bin"); !bytes.Equal(got, content(3<<20, 1)) {
		t.Error("Fetch delivered other bytes")
	}
	listed := 0
	if err := bucket.List(t.Context(), "", func(objectstore.Info) error { listed++; return nil }); err != nil || listed != 2 {
		t.Errorf("%d objects are listed, %v", listed, err)
	}
	if _, err := bucket.Load(t.Context(), "absent"); !errors.Is(err, objectstore.ErrNotFound) {
		t.Errorf("an absent object: %v", err)
	}
	// An object that states an encoding keeps its bytes.
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	_, _ = w.Write([]byte("text"))
	_ = w.Close()
	b.setFault(func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/packed") {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(z.Bytes())
			return true
		}
		return false
	})
	if got, err := bucket.Load(t.Context(), "packed"); err != nil || !bytes.Equal(got, z.Bytes()) {
		t.Errorf("a compressed object: %q, %v", got, err)
	}
}

// Whatever a store or a proxy before it answers, the caller learns that the store does not work.
func TestUnexpectedAnswersAreTheStoresFault(t *testing.T) {
	t.Parallel()
	small, large := file(t, []byte("x")), file(t, make([]byte, 21<<20))
	for _, tt := range []struct {
		status int
		code   string // "" answers without a body
		want   error
	}{
		{400, "", objectstore.ErrUnavailable}, {400, "RequestTimeout", objectstore.ErrUnavailable},
		{301, "", objectstore.ErrUnavailable}, {307, "TemporaryRedirect", objectstore.ErrUnavailable}, {417, "", objectstore.ErrUnavailable},
		{409, "OperationAborted", objectstore.ErrUnavailable}, {412, "", objectstore.ErrUnavailable}, {408, "", objectstore.ErrUnavailable},
		{400, "AuthorizationHeaderMalformed", objectstore.ErrRefused}, {400, "EntityTooLarge", objectstore.ErrRefused},
		{405, "", objectstore.ErrRefused}, {405, "MethodNotAllowed", objectstore.ErrRefused}, {401, "", objectstore.ErrRefused},
		{403, "AccessDenied", objectstore.ErrRefused}, {410, "", objectstore.ErrRefused}, {418, "Teapot", objectstore.ErrRefused},
		{501, "NotImplemented", objectstore.ErrUnsupported}, {400, "NotImplemented", objectstore.ErrUnsupported},
	} {
		b := standInBackend(t)
		store := b.bucket(t, nil)
		b.setFault(func(w http.ResponseWriter, r *http.Request) bool {
			if tt.code == "" || r.Method == http.MethodHead {
				w.WriteHeader(tt.status)
				return true
			}
			return answer(tt.status, tt.code)(w, r)
		})
		for name, run := range map[string]func() error{
			"put":       func() error { return store.Put(t.Context(), "k", small, "") },
			"large put": func() error { return store.Put(t.Context(), "k", large, "") },
			"save":      func() error { return store.Save(t.Context(), "k", []byte("x")) },
			"load":      func() error { _, err := store.Load(t.Context(), "k"); return err },
			"fetch":     func() error { return store.Fetch(t.Context(), "k", filepath.Join(t.TempDir(), "dst")) },
			"list":      func() error { return store.List(t.Context(), "", func(objectstore.Info) error { return nil }) },
			"delete":    func() error { return store.Delete(t.Context(), "k") },
		} {
			if err := run(); !errors.Is(err, tt.want) {
				t.Errorf("%d %s: %s = %v, want %v", tt.status, tt.code, name, err, tt.want)
			}
		}
		_, err := store.Stat(t.Context(), "k") // a HEAD has no code
		if errors.Is(err, objectstore.ErrNotFound) || !slices.ContainsFunc([]error{objectstore.ErrUnavailable, objectstore.ErrRefused,
			objectstore.ErrUnsupported}, func(kind error) bool { return errors.Is(err, kind) }) {
			t.Errorf("%d %s: stat = %v", tt.status, tt.code, err)
		}
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("%s %s went to another host", r.Method, r.URL)
	}))
	defer elsewhere.Close()
	for _, status := range []int{301, 302, 307, 308} {
		b := standInBackend(t)
		b.setFault(func(w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("Location", elsewhere.URL+r.URL.Path)
			return answer(status, "PermanentRedirect")(w, r)
		})
		store := b.bucket(t, nil)
		_, statErr := store.Stat(t.Context(), "k")
		for _, err := range []error{statErr, store.Save(t.Context(), "k", []byte("x")), check(t, store)} {
			if err == nil {
				t.Errorf("%d is a success", status)
			}
		}
	}
}

// A store that knows no conditions takes every upload, and does not replace what is there.
func TestStoresWithoutConditions(t *testing.T) {
	t.Parallel()
	for _, manner := range []string{"known", "ignored", "501 NotImplemented", "400 NotImplemented", "400 InvalidArgument", "405 MethodNotAllowed",
		"403 SignatureDoesNotMatch", "417 Expectation", "304 NotModified", "412 PreconditionFailed"} {
		t.Run(manner, func(t *testing.T) {
			t.Parallel()
			b := standInBackend(t)
			must(t, b.standIn.SetManner(bucket.Manner{Conditions: manner}))
			store := b.bucket(t, nil)
			notes, err := store.Check(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			// A store that always answers 412 cannot be told from one that knows the condition where it does not hold.
			if knows := manner == "known" || strings.HasPrefix(manner, "412"); knows != (len(notes) == 0) {
				t.Errorf("notes %q", notes)
			}
			complete := func(key string) error {
				t.Helper()
				id, err := store.CreateUpload(t.Context(), key, "text/plain")
				must(t, err)
				signed, err := store.PresignPart(t.Context(), key, id, 1, 3, 1e9*60)
				must(t, err)
				if status, _ := send(t, signed, "", []byte("new")); status != 200 {
					t.Fatal(status)
				}
				parts, err := store.UploadParts(t.Context(), key, id)
				must(t, err)
				return store.CompleteUpload(t.Context(), key, id, []objectstore.Part{parts[1]})
			}
			if err := complete("new"); err != nil {
				t.Errorf("completing an upload: %v", err)
			}
			put(t, store, "there", []byte("old"))
			if err := complete("there"); manner != "ignored" && !errors.Is(err, objectstore.ErrExists) {
				t.Errorf("completing an upload of what is there: %v", err)
			}
			if got := fetch(t, store, "there"); manner != "ignored" && string(got) != "old" {
				t.Errorf("what was there is %q", got)
			}
			switch err := store.Create(t.Context(), "small", []byte("x")); {
			case err == nil:
			case !errors.Is(err, objectstore.ErrUnsupported):
				t.Errorf("Create = %v", err)
			}
		})
	}
}

func TestOtherStores(t *testing.T) {
	t.Parallel()
	b := standInBackend(t)
	must(t, b.standIn.SetManner(bucket.Manner{Region: "eu-central-1", Versioned: true, Addressing: "virtual"}))
	if err := check(t, b.bucket(t, nil)); err == nil || !strings.Contains(err.Error(), "AuthorizationHeaderMalformed") ||
		!strings.Contains(err.Error(), "expecting 'eu-central-1'") {
		t.Errorf("the wrong region: %v", err)
	}
	in := func(c *objectstore.BucketConfig) { c.Region = "eu-central-1" }
	if err := check(t, b.bucket(t, in)); err == nil || !strings.Contains(err.Error(), "SecondLevelDomainForbidden") {
		t.Errorf("the bucket in the path: %v", err)
	}
	_, port, err := net.SplitHostPort(b.server.Listener.Addr().String())
	must(t, err)
	transport := objectstore.NewTransport()
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		if address != "bucket.store.test:"+port {
			t.Errorf("connects to %s", address)
		}
		return (&net.Dialer{}).DialContext(ctx, network, b.server.Listener.Addr().String())
	}
	notes, err := b.bucket(t, func(c *objectstore.BucketConfig) {
		in(c)
		c.Endpoint, c.VirtualHost, c.HTTP = "http://store.test:"+port, true, &http.Client{Transport: transport}
	}).Check(t.Context())
	if err != nil || len(notes) != 1 || !strings.Contains(notes[0], "keeps versions") {
		t.Errorf("notes %q, %v", notes, err)
	}
	b.setFault(func(w http.ResponseWriter, r *http.Request) bool {
		return r.URL.Query().Has("versioning") && answer(403, "AccessDenied")(w, r)
	})
	must(t, b.standIn.SetManner(bucket.Manner{}))
	if notes, err := b.bucket(t, nil).Check(t.Context()); err != nil || len(notes) != 1 || !strings.Contains(notes[0], "s3:GetBucketVersioning") {
		t.Errorf("notes %q, %v", notes, err)
	}
}
