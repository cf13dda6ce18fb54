// A folder instead of a bucket: objects are files, written in a temporary folder and renamed into place when complete.

package objectstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"cutroom/internal/storage/disk"
)

// tempName is the folder under a Dir's root where objects are written before a rename publishes them. Its leading dot
// keeps it out of the valid keys.
const tempName = ".tmp"

// staleTemp is the age after which NewDir treats a temp file as left behind by a killed process.
const staleTemp = 24 * time.Hour

// Dir is a Store in a directory. Several processes on one machine may share it. A key and a longer key below it ("a"
// and "a/b") cannot both exist.
type Dir struct {
	root string
	temp string
}

var _ Store = (*Dir)(nil)

// NewDir returns a Store in the directory root, which it creates if missing. It removes temporary files that an earlier
// process left behind.
func NewDir(root string) (*Dir, error) {
	abs, err := filepath.Abs(root)
	if err != nil {
		return nil, fmt.Errorf("object directory: %w", err)
	}
	d := &Dir{root: abs, temp: filepath.Join(abs, tempName)}
	if err := os.MkdirAll(d.temp, 0o750); err != nil {
		return nil, fmt.Errorf("object directory: %w", err)
	}
	if err := disk.RemoveOld(d.temp, "", staleTemp); err != nil {
		return nil, fmt.Errorf("object directory: %w", err)
	}
	return d, nil
}

func (d *Dir) path(key string) string { return filepath.Join(d.root, filepath.FromSlash(key)) }

// Put stores the file at path under key, by a hard link if the file system allows it, otherwise by a copy.
func (d *Dir) Put(ctx context.Context, key, path, _ string) error {
	if err := CheckKey(key); err != nil {
		return err
	}
	if err := d.put(ctx, key, path); err != nil {
		return fmt.Errorf("put %s: %w", key, err)
	}
	return nil
}

// put creates an object from the file at path.
func (d *Dir) put(ctx context.Context, key, path string) error {
	tmp := filepath.Join(d.temp, "put-"+rand.Text())
	defer os.Remove(tmp) // no-op once renamed
	if err := disk.Link(ctx, path, tmp); err != nil {
		return err
	}
	// Sweeps compare ages, so the object needs the time of the Put, as in a bucket.
	now := time.Now()
	if err := os.Chtimes(tmp, now, now); err != nil {
		return err
	}
	if err := disk.Sync(tmp); err != nil {
		return err
	}
	return d.publish(tmp, d.path(key))
}

// publish renames tmp to dst and makes the rename durable.
func (d *Dir) publish(tmp, dst string) error {
	folder := filepath.Dir(dst)
	var err error
	for range 100 {
		if err = os.MkdirAll(folder, 0o750); err == nil {
			// Renaming one link of a file to another link of it does nothing and leaves tmp.
			err = os.Rename(tmp, dst)
		}
		// A concurrent Delete may remove the empty folder at any time; a few retries are enough.
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrExist) {
			break
		}
	}
	if err != nil {
		return err
	}
	if err = disk.Sync(folder); errors.Is(err, fs.ErrNotExist) {
		return nil // already deleted again
	}
	return err
}

// Fetch places the object at dst, by a hard link if the file system allows it, otherwise by a copy.
func (d *Dir) Fetch(ctx context.Context, key, dst string) error {
	if err := CheckKey(key); err != nil {
		return err
	}
	src := d.path(key)
	if _, err := d.stat(key); err != nil {
		return fmt.Errorf("fetch %s: %w", key, err)
	}
	part := dst + ".part"
	if err := disk.Remove(part); err != nil {
		return fmt.Errorf("fetch %s: %w", key, err)
	}
	defer os.Remove(part)
	if err := disk.Link(ctx, src, part); err != nil {
		if _, gone := d.stat(key); errors.Is(gone, ErrNotFound) {
			err = gone
		}
		return fmt.Errorf("fetch %s: %w", key, err)
	}
	if err := os.Rename(part, dst); err != nil {
		return fmt.Errorf("fetch %s: %w", key, err)
	}
	return nil
}

// Open opens the object's file.
func (d *Dir) Open(_ context.Context, key string) (Object, error) { return d.open(key, nil) }

// OpenKnown opens the object's file and trusts the caller's description of it.
func (d *Dir) OpenKnown(_ context.Context, info Info) (Object, error) { return d.open(info.Key, &info) }

func (d *Dir) open(key string, known *Info) (Object, error) {
	if err := CheckKey(key); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(d.path(key), os.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", key, notFound(err))
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = ErrNotFound
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("open %s: %w", key, err)
	}
	if known != nil {
		return &fileObject{f, *known}, nil
	}
	return &fileObject{f, fileInfo(key, st)}, nil
}

type fileObject struct {
	*os.File
	info Info
}

func (o *fileObject) Info() Info { return o.info }

// Expect does nothing: reading a local file needs no announcement.
func (o *fileObject) Expect(...Span) {}

// Stat describes the object.
func (d *Dir) Stat(_ context.Context, key string) (Info, error) {
	if err := CheckKey(key); err != nil {
		return Info{}, err
	}
	info, err := d.stat(key)
	if err != nil {
		return Info{}, fmt.Errorf("stat %s: %w", key, err)
	}
	return info, nil
}

func (d *Dir) stat(key string) (Info, error) {
	st, err := os.Lstat(d.path(key))
	if err != nil {
		return Info{}, notFound(err)
	}
	if !st.Mode().IsRegular() {
		return Info{}, ErrNotFound
	}
	return fileInfo(key, st), nil
}

// Delete removes the objects and the folders that become empty.
func (d *Dir) Delete(ctx context.Context, keys ...string) error {
	var errs []error
	for _, key := range keys {
		if err := ctx.Err(); err != nil {
			return errors.Join(append(errs, err)...)
		}
		if err := CheckKey(key); err != nil {
			errs = append(errs, err)
			continue
		}
		if err := d.remove(key); err != nil {
			errs = append(errs, fmt.Errorf("delete %s: %w", key, err))
		}
	}
	return errors.Join(errs...)
}

func (d *Dir) remove(key string) error {
	if _, err := d.stat(key); errors.Is(err, ErrNotFound) {
		return nil // os.Remove would remove an empty folder
	} else if err != nil {
		return err
	}
	path := d.path(key)
	if err := disk.Remove(path); err != nil {
		return err
	}
	for dir := filepath.Dir(path); len(dir) > len(d.root); dir = filepath.Dir(dir) {
		if os.Remove(dir) != nil {
			break // not empty, or a concurrent Delete removed it
		}
	}
	return nil
}

// List walks the files below the longest folder in prefix.
func (d *Dir) List(ctx context.Context, prefix string, each func(Info) error) error {
	if err := checkPrefix(prefix); err != nil {
		return err
	}
	start := d.root
	if i := strings.LastIndexByte(prefix, '/'); i >= 0 {
		start = d.path(prefix[:i])
	}
	err := filepath.WalkDir(start, func(path string, e fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			if errors.Is(notFound(err), ErrNotFound) {
				return nil // deleted while walking
			}
			return err
		}
		if e.IsDir() {
			if path == d.temp {
				return fs.SkipDir
			}
			return nil
		}
		rel, err := filepath.Rel(d.root, path)
		if err != nil {
			return err
		}
		key := filepath.ToSlash(rel)
		if !strings.HasPrefix(key, prefix) || !e.Type().IsRegular() || CheckKey(key) != nil {
			return nil
		}
		st, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		return each(fileInfo(key, st))
	})
	if err != nil {
		return fmt.Errorf("list %s*: %w", prefix, err)
	}
	return nil
}

func fileInfo(key string, st fs.FileInfo) Info {
	return Info{
		Key:         key,
		SizeBytes:   st.Size(),
		ModTime:     st.ModTime(),
		ETag:        `"` + strconv.FormatInt(st.ModTime().UnixNano(), 36) + "-" + strconv.FormatInt(st.Size(), 36) + `"`,
		ContentType: ContentType(key),
	}
}

// notFound maps the errors of an unusable path to ErrNotFound: ENOTDIR means that "a" of "a/b" is an object, ELOOP a
// symbolic link, which this package never creates.
func notFound(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP) {
		return ErrNotFound
	}
	return err
}
