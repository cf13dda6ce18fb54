// Package staging owns the uploads directory. Request bodies stream into it, are hashed on the way, and are then moved
// to the object store or removed. Files remain only if the process is killed; [Area.Sweep] removes those.
package staging

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"cutroom/internal/storage/disk"
)

// ErrTooLarge is returned for a body longer than its limit. Receive has read at most one byte beyond the limit.
var ErrTooLarge = errors.New("larger than the limit")

// batchPrefix is the prefix of every request's folder.
const batchPrefix = "batch-"

// Area is the uploads directory. It is safe for concurrent use; several processes may share it.
type Area struct {
	dir string
}

// New returns the area in dir, which it creates if missing.
func New(dir string) (*Area, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("uploads directory: %w", err)
	}
	if err := os.MkdirAll(abs, 0o750); err != nil {
		return nil, fmt.Errorf("uploads directory: %w", err)
	}
	return &Area{dir: abs}, nil
}

// Free returns how many bytes the service can still write to the disk of the area.
func (a *Area) Free() (int64, error) { return disk.Free(a.dir) }

// Batch starts the upload of one request. The caller must call Close.
func (a *Area) Batch() (*Batch, error) {
	for {
		dir, err := os.MkdirTemp(a.dir, batchPrefix)
		if err != nil {
			return nil, fmt.Errorf("start upload: %w", diskError(err))
		}
		lock, err := lockNew(filepath.Join(dir, lockName))
		if errors.Is(err, errSwept) {
			continue // another process swept it before it was locked
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("start upload: %w", diskError(err)), os.RemoveAll(dir))
		}
		return &Batch{dir: dir, lock: lock}, nil
	}
}

// lockName is a file in each batch. A lock on it shows that the owning process is alive: the kernel releases the lock
// however the process ends.
const lockName = "lock"

var errSwept = errors.New("batch was swept")

// lockNew creates and locks the file. It returns errSwept if a sweep removed the batch first.
func lockNew(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o640)
	if err != nil {
		return nil, err
	}
	if err = tryLock(f); err == nil {
		if _, err = os.Lstat(path); err == nil {
			return f, nil
		}
	}
	if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, fs.ErrNotExist) {
		err = errSwept
	}
	return nil, errors.Join(err, f.Close())
}

func tryLock(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) }

// Sweep removes the batches of dead processes, and any other file in the directory that is older than olderThan.
func (a *Area) Sweep(olderThan time.Duration) error {
	entries, err := os.ReadDir(a.dir)
	if err != nil {
		return fmt.Errorf("sweep uploads: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if err := sweepEntry(filepath.Join(a.dir, e.Name()), olderThan); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("sweep uploads: %w", err))
		}
	}
	return errors.Join(errs...)
}

func sweepEntry(path string, olderThan time.Duration) error {
	st, err := os.Lstat(path)
	if err != nil {
		return err // closed in the meantime
	}
	lock, err := os.OpenFile(filepath.Join(path, lockName), os.O_RDWR, 0)
	if err != nil {
		if time.Since(st.ModTime()) <= olderThan {
			return nil // about to be locked, or not a batch
		}
		return os.RemoveAll(path)
	}
	defer lock.Close()
	if err := tryLock(lock); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil
		}
		return err
	}
	return os.RemoveAll(path)
}

// File is a received body on disk, complete and closed. It belongs to its batch until it is moved or linked elsewhere.
type File struct {
	Name      string // name of the part, as given to Receive
	FileName  string // the client's name for it; never part of Path
	Path      string // absolute
	SizeBytes int64
	SHA256    string // 64 lower-case hex characters
}

// Batch holds the files of one request. Only one goroutine may use it at a time.
type Batch struct {
	dir    string
	lock   *os.File
	serial int
}

// buffers bounds the memory per upload.
var buffers = sync.Pool{New: func() any { return new([256 << 10]byte) }}

// Receive copies r to a file of the batch. It returns ErrTooLarge after more than limit bytes, a *DiskError if
// writing fails, and r's own error, wrapped, if reading fails. No file is left after an error.
func (b *Batch) Receive(name, fileName string, r io.Reader, limit int64) (File, error) {
	// File names are serial numbers, because the client's names are not trusted.
	b.serial++
	path := filepath.Join(b.dir, strconv.Itoa(b.serial))
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o640)
	if err != nil {
		return File{}, fmt.Errorf("receive: %w", diskError(err))
	}
	size, sum, err := receive(f, r, limit)
	if cerr := f.Close(); err == nil && cerr != nil {
		err = diskError(cerr) // a delayed write may fail only on Close
	}
	if err != nil {
		return File{}, errors.Join(fmt.Errorf("receive: %w", err), os.Remove(path))
	}
	return File{Name: name, FileName: fileName, Path: path, SizeBytes: size, SHA256: sum}, nil
}

// receive copies r to f and returns the length and hash.
func receive(f io.Writer, r io.Reader, limit int64) (int64, string, error) {
	buf := buffers.Get().(*[256 << 10]byte)
	defer buffers.Put(buf)
	hash := sha256.New()
	var size int64
	for {
		// One byte beyond the limit distinguishes too large from exactly full.
		n, err := r.Read(buf[:min(int64(len(buf)), max(limit, 0)-size+1)])
		if size+int64(n) > limit {
			return 0, "", ErrTooLarge
		}
		if n > 0 {
			if _, err := f.Write(buf[:n]); err != nil {
				return 0, "", diskError(err)
			}
			hash.Write(buf[:n]) // never fails
			size += int64(n)
		}
		if err == io.EOF {
			return size, hex.EncodeToString(hash.Sum(nil)), nil
		}
		if err != nil {
			return 0, "", err
		}
	}
}

// Close removes every file of the batch that was not moved away.
func (b *Batch) Close() error {
	if err := errors.Join(os.RemoveAll(b.dir), b.lock.Close()); err != nil {
		return fmt.Errorf("end upload: %w", err)
	}
	return nil
}

// DiskError is a failure of the service's disk, as opposed to the sender's connection.
type DiskError struct{ Err error }

// Error describes the failure.
func (e *DiskError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *DiskError) Unwrap() error { return e.Err }

func diskError(err error) error { return &DiskError{Err: err} }
