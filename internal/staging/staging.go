// Package staging owns the folder where request bodies wait on their way to
// the object store. It writes them to disk as they arrive, hashing on the way,
// so that memory stays flat whatever their size, and removes what nobody took.
package staging

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// The ways receiving can fail that are not the sender's connection.
var (
	ErrTooLarge = errors.New("staged file is larger than its limit")
	ErrNoSpace  = errors.New("no space left for uploads")
)

// Area is the staging folder. It is safe for concurrent use.
type Area struct{ dir string }

// File is a received file. It belongs to its Batch and goes with it.
type File struct {
	Name      string // the name it was received under, such as a form field
	FileName  string // what the sender called it; a claim, never a path of ours
	Path      string
	SizeBytes int64
	SHA256    string // lower-case hex
}

// New returns the area in dir, which must exist.
func New(dir string) (*Area, error) {
	if info, err := os.Stat(dir); err != nil {
		return nil, fmt.Errorf("staging folder: %w", err)
	} else if !info.IsDir() {
		return nil, errors.New("staging folder: not a folder")
	}
	return &Area{dir: dir}, nil
}

// Batch is the files of one request. It is not safe for concurrent use.
type Batch struct {
	dir string
	n   int
}

// Batch opens a folder for one request. The caller closes it.
func (a *Area) Batch() (*Batch, error) {
	dir, err := os.MkdirTemp(a.dir, "batch-")
	if err != nil {
		return nil, space(fmt.Errorf("open staging batch: %w", err))
	}
	return &Batch{dir: dir}, nil
}

// Receive streams r to disk. Beyond limit bytes it stops with ErrTooLarge and
// reads no further; a full disk is ErrNoSpace. Nothing stays behind then.
// Errors of r itself are returned as they are.
func (b *Batch) Receive(name, fileName string, r io.Reader, limit int64) (File, error) {
	path := filepath.Join(b.dir, fmt.Sprintf("%03d", b.n))
	b.n++
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return File{}, space(fmt.Errorf("create staged file: %w", err))
	}
	h := sha256.New()
	size, err := io.Copy(io.MultiWriter(f, h), io.LimitReader(r, limit+1))
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil && size > limit {
		err = ErrTooLarge
	}
	if err != nil {
		return File{}, errors.Join(space(err), os.Remove(path))
	}
	return File{Name: name, FileName: fileName, Path: path, SizeBytes: size, SHA256: hex.EncodeToString(h.Sum(nil))}, nil
}

func space(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return errors.Join(ErrNoSpace, err)
	}
	return err
}

// Close removes the batch and every file in it.
func (b *Batch) Close() error { return os.RemoveAll(b.dir) }

// Sweep removes batches older than the given age: those of requests that a
// crash cut off.
func (a *Area) Sweep(olderThan time.Duration) error {
	entries, err := os.ReadDir(a.dir)
	if err != nil {
		return fmt.Errorf("sweep staging: %w", err)
	}
	var errs []error
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !strings.HasPrefix(e.Name(), "batch-") || time.Since(info.ModTime()) < olderThan {
			continue
		}
		errs = append(errs, os.RemoveAll(filepath.Join(a.dir, e.Name())))
	}
	return errors.Join(errs...)
}
