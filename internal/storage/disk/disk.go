// Package disk has small file helpers for several packages: digest, link or copy, sync, remove, and free space.
package disk

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ErrFull is the error of a disk that has no more room.
var ErrFull error = unix.ENOSPC

// IsFull reports whether err means that a disk or a quota on it is full.
func IsFull(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// Usage returns the size and the number of the files in a folder, not in its subfolders. It skips files that have just
// been removed.
func Usage(dir string) (sizeBytes int64, files int) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if st, err := e.Info(); err == nil {
			sizeBytes += st.Size()
			files++
		}
	}
	return sizeBytes, files
}

// step is how many bytes are read or copied between two checks of the context.
const step = 64 << 20

// Digest returns the SHA-256 of a file in hex, and its size.
func Digest(ctx context.Context, path string) (sum string, sizeBytes int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", 0, err
	}
	defer f.Close()
	h := sha256.New()
	if sizeBytes, err = copySteps(ctx, h, f); err != nil {
		return "", 0, err
	}
	return hex.EncodeToString(h.Sum(nil)), sizeBytes, nil
}

// Link creates dst, which must not exist, with the bytes of src: by a hard link if the file system allows it,
// otherwise by a copy. Neither file may be written to afterwards. A failure leaves no dst behind.
func Link(ctx context.Context, src, dst string) error {
	st, err := os.Lstat(src)
	if err != nil {
		return err
	}
	if st.Mode().IsRegular() {
		err := os.Link(src, dst)
		if err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return copyFile(ctx, src, dst)
}

func copyFile(ctx context.Context, src, dst string) (err error) {
	in, err := os.Open(src)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(dst, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o640)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := out.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			os.Remove(dst) // report the first failure
		}
	}()
	_, err = copySteps(ctx, out, in)
	return err
}

// copySteps copies until from ends or ctx is done. io.CopyN lets the kernel copy between files.
func copySteps(ctx context.Context, to io.Writer, from io.Reader) (n int64, err error) {
	for {
		if ctx.Err() != nil {
			return n, context.Cause(ctx)
		}
		m, err := io.CopyN(to, from, step)
		n += m
		if err == io.EOF {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
}

// Sync flushes a file or folder to the disk.
func Sync(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

// Remove removes a file. A missing file is not an error.
func Remove(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// RemoveOld removes the files and folders in dir whose names begin with prefix and that have not been modified for
// longer than age.
func RemoveOld(dir, prefix string, age time.Duration) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !strings.HasPrefix(e.Name(), prefix) || time.Since(info.ModTime()) < age {
			continue // or one that was removed in the meantime
		}
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// Reserve is how many bytes of free space a replica leaves on its disk. With less it claims no jobs.
const Reserve = 512 << 20

// Free returns how many bytes an unprivileged user may still write to the disk that holds dir.
func Free(dir string) (int64, error) {
	st, err := statfs(dir)
	return int64(st.Bavail) * st.Bsize, err
}

// Size returns the size of the disk that holds dir, in bytes.
func Size(dir string) (int64, error) {
	st, err := statfs(dir)
	return int64(st.Blocks) * st.Bsize, err
}

func statfs(dir string) (st unix.Statfs_t, err error) {
	if err = unix.Statfs(dir, &st); err != nil {
		err = fmt.Errorf("space of the disk: %w", err)
	}
	return st, err
}
