// The contract of Store, run against the folder and every S3 server, and the helpers of this package's tests.

package objectstore_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"cutroom/internal/storage/objectstore"
)

// TestStore is the contract of Store, run against every implementation.
func TestStore(t *testing.T) {
	stores := map[string]func(t *testing.T) objectstore.Store{
		"dir": func(t *testing.T) objectstore.Store {
			d, _ := newDir(t)
			return d
		},
		"bucket on the stand-in":  func(t *testing.T) objectstore.Store { return standInBackend(t).bucket(t, nil) },
		"bucket on a real server": func(t *testing.T) objectstore.Store { return realBackend(t).bucket(t, nil) },
	}
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			t.Run("round trip", func(t *testing.T) { testRoundTrip(t, open(t)) })
			t.Run("overwrite", func(t *testing.T) { testOverwrite(t, open(t)) })
			t.Run("missing", func(t *testing.T) { testMissing(t, open(t)) })
			t.Run("delete and list", func(t *testing.T) { testDeleteAndList(t, open(t)) })
			t.Run("bad keys", func(t *testing.T) { testBadKeys(t, open(t)) })
			t.Run("random access", func(t *testing.T) { testRandomAccess(t, open(t)) })
			t.Run("cancelled", func(t *testing.T) { testCancelled(t, open(t)) })
			t.Run("never half", func(t *testing.T) { testNeverHalf(t, open(t)) })
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// content returns n bytes that do not repeat; the same seed gives the same bytes.
func content(n int, seed uint64) []byte {
	var key [32]byte
	key[0] = byte(seed)
	b := make([]byte, n)
	rand.NewChaCha8(key).Read(b)
	return b
}

func file(t *testing.T, b []byte) string {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "src")
	must(t, err)
	defer f.Close()
	if _, err := f.Write(b); err != nil {
		t.Fatal(err)
	}
	return f.Name()
}

func put(t *testing.T, s objectstore.Store, key string, b []byte) {
	t.Helper()
	must(t, s.Put(t.Context(), key, file(t, b), ""))
}

// open opens an object until the test ends.
func open(t *testing.T, s objectstore.Store, key string) objectstore.Object {
	t.Helper()
	o, err := s.Open(t.Context(), key)
	must(t, err)
	t.Cleanup(func() {
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	})
	return o
}

func stat(t *testing.T, s objectstore.Store, key string) objectstore.Info {
	t.Helper()
	info, err := s.Stat(t.Context(), key)
	must(t, err)
	return info
}

func fetch(t *testing.T, s objectstore.Store, key string) []byte {
	t.Helper()
	dst := filepath.Join(t.TempDir(), "dst")
	must(t, s.Fetch(t.Context(), key, dst))
	b, err := os.ReadFile(dst)
	must(t, err)
	if _, err := os.Stat(dst + ".part"); err == nil {
		t.Error("the partial file stayed behind")
	}
	return b
}

func testRoundTrip(t *testing.T, s objectstore.Store) {
	at := space()
	// Sizes around one part, four parts (the limit of a single upload) and between.
	for _, size := range []int{0, 1, 5 << 20, 5<<20 + 1, 20 << 20, 20<<20 + 1} {
		key := at + "clip.mp4"
		want := content(size, uint64(size))
		src := file(t, want)
		before := time.Now().Add(-2 * time.Second) // a bucket states whole seconds
		must(t, s.Put(t.Context(), key, src, "video/mp4"))
		if _, err := os.Stat(src); err != nil {
			t.Errorf("Put took the caller's file away: %v", err)
		}
		if got := fetch(t, s, key); !bytes.Equal(got, want) {
			t.Fatalf("%d bytes: fetched %d other bytes", size, len(got))
		}
		info := stat(t, s, key)
		if info.Key != key || info.SizeBytes != int64(size) || info.ContentType != "video/mp4" || len(info.ETag) < 3 ||
			info.ModTime.Before(before) || info.ModTime.After(time.Now().Add(2*time.Second)) {
			t.Errorf("Stat = %+v, want %d bytes of video/mp4 from now", info, size)
		}
		o := open(t, s, key)
		got, err := io.ReadAll(o)
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%d bytes: read %d bytes through Open, %v", size, len(got), err)
		}
		if o.Info().ETag != info.ETag {
			t.Errorf("Open tells ETag %s, Stat %s", o.Info().ETag, info.ETag)
		}
	}
}

func testOverwrite(t *testing.T, s objectstore.Store) {
	key := space() + "a.json"
	put(t, s, key, []byte("first"))
	before := stat(t, s, key)
	put(t, s, key, []byte("other"))
	if before.ETag == stat(t, s, key).ETag {
		t.Error("the ETag did not change with the bytes")
	}
	if got := fetch(t, s, key); string(got) != "other" {
		t.Errorf("fetched %q", got)
	}
	dst := file(t, []byte("what was there before, and longer"))
	must(t, s.Fetch(t.Context(), key, dst))
	if got, _ := os.ReadFile(dst); string(got) != "other" {
		t.Errorf("Fetch over an existing file left %q", got)
	}
}

func testMissing(t *testing.T, s objectstore.Store) {
	ctx, at := t.Context(), space()
	put(t, s, at+"folder/object", []byte("x"))
	for _, key := range []string{at + "nothing", at + "folder", at + "folder/object/below"} {
		dir := t.TempDir()
		if err := s.Fetch(ctx, key, filepath.Join(dir, "dst")); !errors.Is(err, objectstore.ErrNotFound) {
			t.Errorf("Fetch(%s) = %v", key, err)
		}
		if left, _ := os.ReadDir(dir); len(left) != 0 {
			t.Errorf("Fetch(%s) left %v", key, left)
		}
		if _, err := s.Stat(ctx, key); !errors.Is(err, objectstore.ErrNotFound) {
			t.Errorf("Stat(%s) = %v", key, err)
		}
		if _, err := s.Open(ctx, key); !errors.Is(err, objectstore.ErrNotFound) {
			t.Errorf("Open(%s) = %v", key, err)
		}
		known, err := s.OpenKnown(ctx, objectstore.Info{Key: key, SizeBytes: 9})
		if err == nil {
			_, err = known.Read(make([]byte, 1))
		}
		if !errors.Is(err, objectstore.ErrNotFound) {
			t.Errorf("OpenKnown(%s) = %v", key, err)
		}
		if err := s.Delete(ctx, key); err != nil {
			t.Errorf("Delete(%s) = %v", key, err)
		}
	}
	if err := s.Put(ctx, at+"new", filepath.Join(t.TempDir(), "missing"), ""); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Put of a missing file = %v", err)
	}
	if _, err := s.Stat(ctx, at+"new"); !errors.Is(err, objectstore.ErrNotFound) {
		t.Errorf("a failed Put left an object: %v", err)
	}
}

func list(t *testing.T, s objectstore.Store, prefix string) []string {
	t.Helper()
	var keys []string
	err := s.List(t.Context(), prefix, func(i objectstore.Info) error {
		if i.SizeBytes != 1 || i.ModTime.IsZero() {
			t.Errorf("List tells %+v", i)
		}
		keys = append(keys, i.Key)
		return nil
	})
	must(t, err)
	slices.Sort(keys)
	return keys
}

func testDeleteAndList(t *testing.T, s objectstore.Store) {
	ctx, at := t.Context(), space()
	keys := []string{at + "a/1", at + "a/2", at + "a/b/3", at + "ab/4", at + "c", at + "d/e/f/5", at + "z"}
	for _, key := range keys {
		put(t, s, key, []byte("x"))
	}
	for prefix, want := range map[string][]string{
		at:             keys,
		at + "a":       keys[:4],
		at + "a/":      keys[:3],
		at + "a/b/3":   keys[2:3],
		at + "d/e":     keys[5:6],
		at + "nothing": nil,
		at + "c/":      nil,
	} {
		if got := list(t, s, prefix); !slices.Equal(got, want) {
			t.Errorf("List(%s) = %v, want %v", prefix, got, want)
		}
	}
	stop := errors.New("stop")
	calls := 0
	if err := s.List(ctx, at, func(objectstore.Info) error { calls++; return stop }); !errors.Is(err, stop) || calls != 1 {
		t.Errorf("List with a failing callback = %v after %d calls", err, calls)
	}
	must(t, s.Delete(ctx, keys[0], keys[4], at+"never"))
	if got, want := list(t, s, at), []string{keys[1], keys[2], keys[3], keys[5], keys[6]}; !slices.Equal(got, want) {
		t.Errorf("after Delete: %v, want %v", got, want)
	}
	err := s.List(ctx, at, func(i objectstore.Info) error { return s.Delete(ctx, i.Key) })
	must(t, err)
	if got := list(t, s, at); len(got) != 0 {
		t.Errorf("after deleting while listing: %v", got)
	}
	if err := s.Delete(ctx); err != nil {
		t.Errorf("Delete of no keys = %v", err)
	}
}

func testBadKeys(t *testing.T, s objectstore.Store) {
	ctx, src := t.Context(), file(t, []byte("x"))
	for _, key := range []string{"", "/a", "a/", "a//b", "..", "a/../b", "./a", ".hidden", "a b", "a%2fb", "ä", "a\x00b", `a\b`, strings.Repeat("a/", 400) + "a"} {
		dst := filepath.Join(t.TempDir(), "dst")
		_, statErr := s.Stat(ctx, key)
		_, openErr := s.Open(ctx, key)
		for method, err := range map[string]error{
			"Put": s.Put(ctx, key, src, ""), "Fetch": s.Fetch(ctx, key, dst), "Stat": statErr, "Open": openErr,
			"Delete": s.Delete(ctx, key),
		} {
			if !errors.Is(err, objectstore.ErrBadKey) {
				t.Errorf("%s(%q) = %v, want ErrBadKey", method, key, err)
			}
		}
	}
	for _, prefix := range []string{"/", "../", "a/../", "a//"} {
		if err := s.List(ctx, prefix, func(objectstore.Info) error { return nil }); !errors.Is(err, objectstore.ErrBadKey) {
			t.Errorf("List(%q) = %v, want ErrBadKey", prefix, err)
		}
	}
}

func testRandomAccess(t *testing.T, s objectstore.Store) {
	key := space() + "a.bin"
	want := content(3<<20+11, 7)
	put(t, s, key, want)
	o := open(t, s, key)
	for _, at := range []int64{1 << 20, 0, 3<<20 + 10, 100, 100 + 4096, 2 << 20} {
		if _, err := o.Seek(at, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, min(4096, int64(len(want))-at))
		if _, err := io.ReadFull(o, got); err != nil || !bytes.Equal(got, want[at:at+int64(len(got))]) {
			t.Fatalf("read at %d: wrong bytes or %v", at, err)
		}
	}
	if _, err := o.Seek(-1, io.SeekStart); err == nil {
		t.Error("Seek before the start did not fail")
	}
	if n, err := o.Seek(5, io.SeekEnd); err != nil || n != int64(len(want))+5 {
		t.Errorf("Seek past the end = %d, %v", n, err)
	}
	if n, err := o.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Errorf("Read past the end = %d, %v", n, err)
	}

	small := content(1000, 8)
	put(t, s, key, small)
	if err := iotest.TestReader(open(t, s, key), small); err != nil {
		t.Error(err)
	}
}

func testCancelled(t *testing.T, s objectstore.Store) {
	key := space() + "a.bin"
	put(t, s, key, content(2<<20, 1))
	ctx, cancel := context.WithCancel(t.Context())
	o, err := s.Open(ctx, key)
	must(t, err)
	defer o.Close()
	if _, err := io.ReadFull(o, make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	cancel()
	_, isDir := s.(*objectstore.Dir)
	if _, err := io.Copy(io.Discard, o); !isDir && !errors.Is(err, context.Canceled) {
		t.Errorf("reading on after the cancellation = %v", err)
	}
	if err := s.Delete(ctx, key); !errors.Is(err, context.Canceled) {
		t.Errorf("Delete = %v", err)
	}
	if err := s.List(ctx, key, func(objectstore.Info) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("List = %v", err)
	}
}

// testNeverHalf overwrites one object repeatedly while others read it. Each reader sees one of the two contents as a
// whole, or gets an error.
func testNeverHalf(t *testing.T, s objectstore.Store) {
	key := space() + "deep/a.bin"
	contents := [][]byte{content(300_000, 1), content(6<<20, 2)}
	files := []string{file(t, contents[0]), file(t, contents[1])}
	put(t, s, key, contents[0])
	var writer sync.WaitGroup
	var fetched atomic.Int64
	writer.Go(func() {
		for i := 0; i < 12 || fetched.Load() == 0; i++ {
			if err := s.Put(t.Context(), key, files[i%2], ""); err != nil {
				t.Error(err)
				return
			}
		}
	})
	done := make(chan struct{})
	go func() { writer.Wait(); close(done) }()
	dir := t.TempDir()
	for ; ; fetched.Add(1) {
		select {
		case <-done:
			return
		default:
		}
		dst := filepath.Join(dir, "dst")
		err := s.Fetch(t.Context(), key, dst)
		if errors.Is(err, objectstore.ErrChanged) {
			continue
		}
		must(t, err)
		got, err := os.ReadFile(dst)
		must(t, err)
		if !bytes.Equal(got, contents[0]) && !bytes.Equal(got, contents[1]) {
			t.Fatalf("fetched %d bytes that were never put", len(got))
		}
	}
}

func FuzzCheckKey(f *testing.F) {
	for _, key := range []string{"a", "assets/0123.mp4", "../etc", "a/./b", "a//b", "a/.tmp", "é"} {
		f.Add(key)
	}
	root := f.TempDir()
	f.Fuzz(func(t *testing.T, key string) {
		if objectstore.CheckKey(key) != nil {
			return
		}
		path := filepath.Join(root, filepath.FromSlash(key))
		rel, err := filepath.Rel(root, path)
		if err != nil || filepath.ToSlash(rel) != key {
			t.Errorf("key %q names the file %q", key, rel)
		}
	})
}
