package objectstore_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"cutroom/internal/storage/objectstore"
)

func newDir(t *testing.T) (*objectstore.Dir, string) {
	t.Helper()
	root := filepath.Join(t.TempDir(), "objects")
	d, err := objectstore.NewDir(root)
	must(t, err)
	return d, root
}

// tree returns every file and folder below root.
func tree(t *testing.T, root string) []string {
	t.Helper()
	var paths []string
	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if rel, _ := filepath.Rel(root, path); rel != "." {
			paths = append(paths, rel)
		}
		return err
	})
	must(t, err)
	return paths
}

func TestDirLeavesNothingBehind(t *testing.T) {
	d, root := newDir(t)
	put(t, d, "a/b/c/one", []byte("x"))
	put(t, d, "a/two", []byte("x"))
	if err := d.Put(t.Context(), "a/b/c", file(t, []byte("x")), ""); err == nil {
		t.Error("an object took the place of a folder")
	}
	if err := d.Put(t.Context(), "a/two/three", file(t, []byte("x")), ""); err == nil {
		t.Error("a folder took the place of an object")
	}
	must(t, d.Delete(t.Context(), "a/b/c/one"))
	if got, want := tree(t, root), []string{".tmp", "a", "a/two"}; !slices.Equal(got, want) {
		t.Errorf("left %v, want %v", got, want)
	}
	must(t, d.Delete(t.Context(), "a/two", "a"))
	if got, want := tree(t, root), []string{".tmp"}; !slices.Equal(got, want) {
		t.Errorf("left %v, want %v", got, want)
	}
}

func TestDirNeverFollowsALink(t *testing.T) {
	d, root := newDir(t)
	outside := file(t, []byte("outside"))
	must(t, os.Symlink(outside, filepath.Join(root, "link.txt")))
	if _, err := d.Stat(t.Context(), "link.txt"); !errors.Is(err, objectstore.ErrNotFound) {
		t.Errorf("Stat = %v", err)
	}
	if err := d.Fetch(t.Context(), "link.txt", filepath.Join(t.TempDir(), "dst")); !errors.Is(err, objectstore.ErrNotFound) {
		t.Errorf("Fetch = %v", err)
	}
	if _, err := d.Open(t.Context(), "link.txt"); !errors.Is(err, objectstore.ErrNotFound) {
		t.Errorf("Open = %v", err)
	}
	// Put follows a link: the caller named it.
	link := filepath.Join(t.TempDir(), "link")
	must(t, os.Symlink(outside, link))
	must(t, d.Put(t.Context(), "a.txt", link, ""))
	if st, err := os.Lstat(filepath.Join(root, "a.txt")); err != nil || !st.Mode().IsRegular() {
		t.Errorf("the object is %v, %v", st, err)
	}
}

func TestDirRemovesFilesOfAKilledProcess(t *testing.T) {
	_, root := newDir(t)
	old, young := filepath.Join(root, ".tmp", "put-1"), filepath.Join(root, ".tmp", "put-2")
	for _, path := range []string{old, young} {
		must(t, os.WriteFile(path, []byte("half"), 0o600))
	}
	past := time.Now().Add(-48 * time.Hour)
	must(t, os.Chtimes(old, past, past))
	d, err := objectstore.NewDir(root)
	must(t, err)
	if got, want := tree(t, root), []string{".tmp", ".tmp/put-2"}; !slices.Equal(got, want) {
		t.Errorf("left %v, want %v", got, want)
	}
	if keys := list(t, d, ""); len(keys) != 0 {
		t.Errorf("temporary files are listed: %v", keys)
	}
}

// TestDirFoldersComeAndGo runs many writers and deleters in one folder, which is removed whenever it is empty.
func TestDirFoldersComeAndGo(t *testing.T) {
	d, root := newDir(t)
	src := file(t, []byte("x"))
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			key := "shared/folder/" + string(rune('a'+i))
			for range 100 {
				if err := d.Put(t.Context(), key, src, ""); err != nil {
					t.Error(err)
					return
				}
				if err := d.Delete(t.Context(), key); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	if got, want := tree(t, root), []string{".tmp"}; !slices.Equal(got, want) {
		t.Errorf("left %v, want %v", got, want)
	}
}
