// Transfers to and from a bucket that fails: retries, resumed downloads, stalls, overwritten objects, secrets in
// errors, memory.

package objectstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"cutroom/internal/base/httpcall/calltest"
	"cutroom/internal/storage/objectstore"
)

func TestRetriesAreBounded(t *testing.T) {
	b := standInBackend(t)
	bucket := b.bucket(t, nil)
	src := file(t, []byte("x"))
	put(t, bucket, "there", []byte("x"))
	operations := map[string]func() error{
		"put":  func() error { return bucket.Put(t.Context(), "k", src, "") },
		"stat": func() error { _, err := bucket.Stat(t.Context(), "k"); return err },
		"fetch": func() error {
			return bucket.Fetch(t.Context(), "there", filepath.Join(t.TempDir(), "dst"))
		},
		"list":   func() error { return bucket.List(t.Context(), "", func(objectstore.Info) error { return nil }) },
		"delete": func() error { return bucket.Delete(t.Context(), "k") },
	}
	for name, run := range operations {
		b.setFault(answer(http.StatusInternalServerError, "InternalError"))
		if err := run(); !errors.Is(err, objectstore.ErrUnavailable) {
			t.Errorf("%s: %v, want ErrUnavailable", name, err)
		}
		if n := b.count("", ""); n != 4 {
			t.Errorf("%s: %d tries, want 4", name, n)
		}
		// A refusal is final: a retry would not change it.
		b.setFault(answer(http.StatusForbidden, "AccessDenied"))
		if err := run(); err == nil || errors.Is(err, objectstore.ErrUnavailable) || errors.Is(err, objectstore.ErrNotFound) {
			t.Errorf("%s refused: %v", name, err)
		}
		if n := b.count("", ""); n != 1 {
			t.Errorf("%s refused: %d tries, want 1", name, n)
		}
	}
}

func TestDownloadsGoOnWhereTheyBrokeOff(t *testing.T) {
	eachBackend(t, func(t *testing.T, b *backend) {
		bucket, key := b.bucket(t, nil), space()+"a.bin"
		want := content(11<<20, 1)
		put(t, bucket, key, want)
		b.cutDownloads(1500 << 10)
		if got := fetch(t, bucket, key); !bytes.Equal(got, want) {
			t.Error("Fetch delivered other bytes")
		}
		o := open(t, bucket, key)
		if got, err := io.ReadAll(o); err != nil || !bytes.Equal(got, want) {
			t.Errorf("Open delivered %d other bytes, %v", len(got), err)
		}
		b.cutDownloads(0)
		dir := t.TempDir()
		if err := bucket.Fetch(t.Context(), key, filepath.Join(dir, "dst")); !errors.Is(err, objectstore.ErrUnavailable) {
			t.Errorf("Fetch without progress = %v, want ErrUnavailable", err)
		}
		if left, _ := os.ReadDir(dir); len(left) != 0 {
			t.Errorf("the failed Fetch left %v", left)
		}
		if _, err := io.ReadAll(open(t, bucket, key)); !errors.Is(err, objectstore.ErrUnavailable) {
			t.Errorf("reading without progress = %v, want ErrUnavailable", err)
		}
	})
}

func TestStalledTriesEndAndAreRetried(t *testing.T) {
	t.Parallel()
	b := standInBackend(t)
	bucket := b.bucket(t, func(c *objectstore.BucketConfig) {
		c.StallTimeout, c.CallTimeout = time.Second, 2*time.Second
	})
	want := content(3<<20, 1)
	src := file(t, want)

	once := func(stall func(w http.ResponseWriter, r *http.Request)) func(http.ResponseWriter, *http.Request) bool {
		var first sync.Once
		return func(w http.ResponseWriter, r *http.Request) (handled bool) {
			first.Do(func() { handled = true; stall(w, r) })
			return handled
		}
	}
	b.setFault(once(func(w http.ResponseWriter, r *http.Request) { silence(r) }))
	if err := bucket.Put(t.Context(), "a.bin", src, ""); err != nil {
		t.Errorf("Put after a stall: %v", err)
	}
	// Half of the body, then silence.
	b.setFault(once(func(w http.ResponseWriter, r *http.Request) {
		b.handler.ServeHTTP(&stallAfter{ResponseWriter: w, ctx: r.Context(), left: 1 << 20}, r)
	}))
	if got := fetch(t, bucket, "a.bin"); !bytes.Equal(got, want) {
		t.Error("Fetch after a stall delivered other bytes")
	}
	if n := b.count("GET", ""); n != 2 {
		t.Errorf("%d requests, want the stalled one and one more", n)
	}
	patient := b.bucket(t, func(c *objectstore.BucketConfig) { c.StallTimeout, c.CallTimeout = time.Hour, 2*time.Second })
	reading, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	opened, err := patient.Open(reading, "a.bin")
	must(t, err)
	defer opened.Close()
	// No kind of request waits for a store that never answers.
	b.setFault(func(w http.ResponseWriter, r *http.Request) bool { silence(r); return true })
	var asked sync.WaitGroup
	for name, ask := range map[string]func() error{
		"stat":   func() error { _, err := bucket.Stat(t.Context(), "a.bin"); return err },
		"load":   func() error { _, err := bucket.Load(t.Context(), "a.bin"); return err },
		"create": func() error { return bucket.Create(t.Context(), "b.bin", []byte("x")) },
		"delete": func() error { return bucket.Delete(t.Context(), "a.bin") },
		"list":   func() error { return bucket.List(t.Context(), "", func(objectstore.Info) error { return nil }) },
		"put":    func() error { return bucket.Put(t.Context(), "a.bin", src, "") },
		"read":   func() error { _, err := opened.Read(make([]byte, 1)); return err },
	} {
		asked.Go(func() {
			started := time.Now()
			if err := ask(); !errors.Is(err, objectstore.ErrUnavailable) {
				t.Errorf("%s on a dead line = %v, want ErrUnavailable", name, err)
			}
			if took := time.Since(started); took > 30*time.Second {
				t.Errorf("%s on a dead line took %v", name, took)
			}
		})
	}
	asked.Wait()
}

// silence reads the request and never answers. A server only notices that its client has gone after it has read the
// body.
func silence(r *http.Request) {
	io.Copy(io.Discard, r.Body)
	<-r.Context().Done()
}

// stallAfter lets a number of body bytes pass and then waits until the client disconnects.
type stallAfter struct {
	http.ResponseWriter
	ctx  context.Context
	left int
}

func (s *stallAfter) Write(p []byte) (int, error) {
	if len(p) > s.left {
		s.ResponseWriter.Write(p[:s.left])
		s.ResponseWriter.(http.Flusher).Flush()
		<-s.ctx.Done()
		return 0, s.ctx.Err()
	}
	s.left -= len(p)
	return s.ResponseWriter.Write(p)
}

func TestSlowReaderIsNotAStall(t *testing.T) {
	t.Parallel()
	b := standInBackend(t)
	const stall = 2 * time.Second
	bucket := b.bucket(t, func(c *objectstore.BucketConfig) { c.StallTimeout = stall })
	want := content(900<<10, 1)
	put(t, b.bucket(t, nil), "a.bin", want)
	o := open(t, bucket, "a.bin")
	head := make([]byte, 1000)
	if _, err := io.ReadFull(o, head); err != nil {
		t.Fatal(err)
	}
	<-time.After(3 * stall / 2) // the reader pauses for longer than the limit
	rest, err := io.ReadAll(o)
	if err != nil || !bytes.Equal(append(head, rest...), want) {
		t.Errorf("after a pause: %d bytes, %v", len(rest), err)
	}
	if n := b.count("GET", ""); n != 1 {
		t.Errorf("%d requests, want 1", n)
	}
}

func TestFailedMultipartUploadIsAborted(t *testing.T) {
	eachBackend(t, func(t *testing.T, b *backend) {
		bucket, key := b.bucket(t, nil), space()+"a.bin"
		src := file(t, content(21<<20, 1))
		for name, step := range map[string]struct{ method, query string }{
			"part":     {http.MethodPut, "partNumber=3"},
			"complete": {http.MethodPost, "uploadId="},
		} {
			b.setFault(func(w http.ResponseWriter, r *http.Request) bool {
				return r.Method == step.method && strings.Contains(r.URL.RawQuery, step.query) &&
					answer(http.StatusInternalServerError, "InternalError")(w, r)
			})
			if err := bucket.Put(t.Context(), key, src, ""); !errors.Is(err, objectstore.ErrUnavailable) {
				t.Errorf("%s: Put = %v, want ErrUnavailable", name, err)
			}
			// There may be several if a part was still arriving.
			if b.count("DELETE", "uploadId=") == 0 {
				t.Errorf("%s: not aborted", name)
			}
		}
		// The abort must happen even if the caller cancels.
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		b.setFault(func(w http.ResponseWriter, r *http.Request) bool {
			if strings.Contains(r.URL.RawQuery, "partNumber=2") {
				cancel()
			}
			return false
		})
		if err := bucket.Put(ctx, key, src, ""); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled Put = %v", err)
		}
		if b.count("DELETE", "uploadId=") == 0 {
			t.Error("cancelled: not aborted")
		}
		b.setFault(nil)
		if _, err := bucket.Stat(t.Context(), key); !errors.Is(err, objectstore.ErrNotFound) {
			t.Errorf("a failed upload left an object: %v", err)
		}
	})
}

func TestOverwriteWhileReadingIsNoticed(t *testing.T) {
	eachBackend(t, func(t *testing.T, b *backend) {
		bucket, key := b.bucket(t, nil), space()+"a.bin"
		put(t, bucket, key, content(4<<20, 1))
		o := open(t, bucket, key)
		if _, err := io.ReadFull(o, make([]byte, 1<<20)); err != nil {
			t.Fatal(err)
		}
		put(t, bucket, key, content(4<<20, 2))
		if _, err := o.Seek(2<<20, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(o); !errors.Is(err, objectstore.ErrChanged) {
			t.Errorf("reading on = %v, want ErrChanged", err)
		}
	})
}

func TestWrongRangeIsRefused(t *testing.T) {
	b := standInBackend(t)
	bucket := b.bucket(t, nil)
	put(t, bucket, "a.bin", content(6<<20, 1))
	for _, answer := range []struct{ contentRange, length string }{
		{"bytes 1-5242880/6291456", "5242880"},  // not the requested offset
		{"bytes 0-99/6291456", "100"},           // less than requested
		{"bytes 0-5242879/5242879", "5242880"},  // more than exists
		{"bytes 0-5242879/6291456", "100"},      // header and length disagree
		{"bytes 0-5242879/*", "5242880"},        // size unknown
		{"bytes -5-5242879/6291456", "5242885"}, // nonsense
	} {
		b.setFault(func(w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("ETag", `"x"`)
			w.Header().Set("Content-Range", answer.contentRange)
			w.Header().Set("Content-Length", answer.length)
			w.WriteHeader(http.StatusPartialContent)
			return true
		})
		if err := bucket.Fetch(t.Context(), "a.bin", filepath.Join(t.TempDir(), "dst")); !errors.Is(err, objectstore.ErrUnavailable) {
			t.Errorf("%s: Fetch = %v, want ErrUnavailable", answer.contentRange, err)
		}
	}
	// Without a length, a complete object looks like a truncated one.
	b.setFault(func(w http.ResponseWriter, r *http.Request) bool {
		w.(http.Flusher).Flush()
		w.Write([]byte("x"))
		return true
	})
	if err := bucket.Fetch(t.Context(), "a.bin", filepath.Join(t.TempDir(), "dst")); !errors.Is(err, objectstore.ErrUnavailable) {
		t.Errorf("no length: Fetch = %v, want ErrUnavailable", err)
	}
	// A server that ignores Range sends everything, which is fine.
	b.setFault(func(w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("ETag", `"x"`)
		w.Header().Set("Content-Length", strconv.Itoa(6<<20))
		w.Write(content(6<<20, 1))
		return true
	})
	if got := fetch(t, bucket, "a.bin"); !bytes.Equal(got, content(6<<20, 1)) {
		t.Error("without ranges Fetch delivered other bytes")
	}
}

func TestErrorsKeepSecrets(t *testing.T) {
	b := standInBackend(t)
	bucket := b.bucket(t, nil)
	gone := b.bucket(t, func(c *objectstore.BucketConfig) { c.Endpoint = calltest.DeadAddress(t) })
	b.setFault(func(w http.ResponseWriter, r *http.Request) bool {
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprintf(w, "<Error><Code>SignatureDoesNotMatch</Code><Message>%s %s https://h/p?X-Amz-Signature=0123abcd&amp;x=1</Message></Error>", testAccess, testSecret)
		return true
	})
	src := file(t, []byte("x"))
	for _, bucket := range []*objectstore.Bucket{bucket, gone} {
		_, statErr := bucket.Stat(t.Context(), "k")
		for name, err := range map[string]error{
			"put":   bucket.Put(t.Context(), "k", src, ""),
			"fetch": bucket.Fetch(t.Context(), "k", filepath.Join(t.TempDir(), "dst")),
			"stat":  statErr,
			"list":  bucket.List(t.Context(), "", func(objectstore.Info) error { return nil }),
			"check": check(t, bucket),
		} {
			if err == nil {
				t.Fatalf("%s: no error", name)
			}
			for _, part := range []string{testAccess, testSecret, "Signature=", "x-id="} {
				if strings.Contains(err.Error(), part) || strings.Contains(fmt.Sprintf("%+v", err), part) {
					t.Errorf("%s: the error holds %q: %v", name, part, err)
				}
			}
		}
	}
	if _, err := gone.Stat(t.Context(), "k"); !errors.Is(err, objectstore.ErrUnavailable) {
		t.Errorf("Stat without a server = %v, want ErrUnavailable", err)
	}
}

// TestListPages lists more objects than fit into one answer.
func TestListPages(t *testing.T) {
	t.Parallel()
	b := standInBackend(t)
	bucket, src := b.bucket(t, nil), file(t, []byte("x"))
	want := map[string]bool{}
	for i := range 1003 {
		key := fmt.Sprintf("many/%04d", i)
		want[key] = true
		must(t, bucket.Put(t.Context(), key, src, ""))
	}
	err := bucket.List(t.Context(), "many/", func(i objectstore.Info) error {
		if !want[i.Key] {
			t.Errorf("%s listed twice or never put", i.Key)
		}
		delete(want, i.Key)
		return nil
	})
	if err != nil || len(want) != 0 {
		t.Errorf("%d objects were not listed, %v", len(want), err)
	}
}

func TestMissingBucketIsNotAMissingObject(t *testing.T) {
	eachBackend(t, func(t *testing.T, b *backend) {
		bucket := b.bucket(t, func(c *objectstore.BucketConfig) { c.Bucket = "no-such-bucket" })
		err := bucket.Put(t.Context(), "k", file(t, []byte("x")), "")
		if !errors.Is(err, objectstore.ErrRefused) || errors.Is(err, objectstore.ErrNotFound) || errors.Is(err, objectstore.ErrUnavailable) {
			t.Errorf("Put = %v", err)
		}
	})
}

// TestTransfersKeepMemoryFlat moves 160 MB each way and measures the total allocations, which bound the memory in use
// at any time.
func TestTransfersKeepMemoryFlat(t *testing.T) {
	bucket := realBackend(t).bucket(t, func(c *objectstore.BucketConfig) { c.PartSizeBytes = 16 << 20 })
	const size = 160 << 20
	src := filepath.Join(t.TempDir(), "sparse")
	must(t, os.WriteFile(src, nil, 0o600))
	must(t, os.Truncate(src, size))
	key := space() + "big.bin"
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	must(t, bucket.Put(t.Context(), key, src, ""))
	dst := filepath.Join(t.TempDir(), "dst")
	must(t, bucket.Fetch(t.Context(), key, dst))
	runtime.ReadMemStats(&after)
	if st, err := os.Stat(dst); err != nil || st.Size() != size {
		t.Fatalf("fetched %v, %v", st, err)
	}
	// The test's proxy runs in the same process and copies with small buffers.
	if used := after.TotalAlloc - before.TotalAlloc; used > 24<<20 {
		t.Errorf("moving %d MB allocated %d MB", 2*size>>20, used>>20)
	}
	if err := bucket.Delete(t.Context(), key); err != nil {
		t.Error(err)
	}
}
