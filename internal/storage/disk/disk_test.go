package disk_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"cutroom/internal/storage/disk"
)

func TestLinkAndDigest(t *testing.T) {
	dir := t.TempDir()
	src := filepath.Join(dir, "src")
	if err := os.WriteFile(src, []byte("abc"), 0o600); err != nil {
		t.Fatal(err)
	}
	alias := filepath.Join(dir, "alias")
	if err := os.Symlink(src, alias); err != nil {
		t.Fatal(err)
	}
	// Hard links may not reach another file system.
	elsewhere, err := os.MkdirTemp("/dev/shm", "disk-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(elsewhere) })
	away := filepath.Join(elsewhere, "src")
	if err := os.WriteFile(away, []byte("abc"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, from := range map[string]string{"linked": src, "copied": alias, "from elsewhere": away} {
		dst := filepath.Join(dir, name)
		if err := disk.Link(t.Context(), from, dst); err != nil {
			t.Fatal(err)
		}
		const want = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
		if sum, size, err := disk.Digest(t.Context(), dst); sum != want || size != 3 || err != nil {
			t.Errorf("%s: %s, %d bytes, %v", name, sum, size, err)
		}
		if st, err := os.Lstat(dst); err != nil || !st.Mode().IsRegular() {
			t.Errorf("%s is no file: %v", name, err)
		}
		if err := disk.Link(t.Context(), from, dst); !errors.Is(err, fs.ErrExist) {
			t.Errorf("%s over a file: %v", name, err)
		}
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := disk.Link(gone, alias, filepath.Join(dir, "none")); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end: %v", err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "none")); err == nil {
		t.Error("a copy that was broken off is left")
	}
	if _, _, err := disk.Digest(gone, src); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end: %v", err)
	}
	if err := disk.Link(t.Context(), filepath.Join(dir, "missing"), filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	if free, err := disk.Free(dir); free <= 0 || err != nil {
		t.Errorf("%d bytes free, %v", free, err)
	}
	if _, err := disk.Free(filepath.Join(dir, "missing")); err == nil {
		t.Error("a missing folder has free space")
	}
}
