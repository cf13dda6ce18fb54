// Uploads on their way in: full and broken disks, flat memory, and the sweep beside living and dead processes.

package staging_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"golang.org/x/sys/unix"

	"cutroom/internal/storage/disk"
	"cutroom/internal/storage/staging"
)

func newArea(t *testing.T) (*staging.Area, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "deep", "uploads")
	a, err := staging.New(dir)
	must(t, err)
	return a, dir
}

func newBatch(t *testing.T, a *staging.Area) *staging.Batch {
	t.Helper()
	b, err := a.Batch()
	must(t, err)
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// files counts the received files below dir.
func files(t *testing.T, dir string) int {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*", "[0-9]*"))
	must(t, err)
	return len(paths)
}

func TestReceive(t *testing.T) {
	a, dir := newArea(t)
	b, err := a.Batch()
	must(t, err)
	want := bytes.Repeat([]byte("cutroom "), 100_000)
	sum := sha256.Sum256(want)
	// A file name that would escape the folder if it were used for one.
	f, err := b.Receive("video_0", "../../../etc/passwd", iotest.HalfReader(bytes.NewReader(want)), int64(len(want)))
	must(t, err)
	if f.Name != "video_0" || f.FileName != "../../../etc/passwd" || f.SizeBytes != int64(len(want)) || f.SHA256 != hex.EncodeToString(sum[:]) {
		t.Errorf("Receive = %+v", f)
	}
	if rel, err := filepath.Rel(dir, f.Path); err != nil || strings.HasPrefix(rel, "..") || !filepath.IsAbs(f.Path) {
		t.Errorf("the file is at %s", f.Path)
	}
	empty, err := b.Receive("video_0", "", strings.NewReader(""), 10)
	if err != nil || empty.SizeBytes != 0 || empty.Path == f.Path {
		t.Errorf("an empty part of the same name = %+v, %v", empty, err)
	}
	// Close removes what was not moved away.
	kept := filepath.Join(t.TempDir(), "kept")
	must(t, os.Rename(f.Path, kept))
	must(t, b.Close())
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("Close left %v, %v", left, err)
	}
	if got, err := os.ReadFile(kept); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the moved file holds %d other bytes, %v", len(got), err)
	}
	if _, err := b.Receive("c", "", strings.NewReader("x"), 10); err == nil {
		t.Error("a closed batch received a file")
	}
}

func TestABodyThatIsNotReceivedLeavesNoFile(t *testing.T) {
	broken := errors.New("connection lost")
	for _, c := range []struct {
		size  int
		end   error // of the body
		limit int64
		want  error
	}{
		{10, io.EOF, 10, nil}, {11, io.EOF, 10, staging.ErrTooLarge}, {0, io.EOF, 0, nil}, {1, io.EOF, 0, staging.ErrTooLarge},
		{0, io.EOF, -1, staging.ErrTooLarge}, {256 << 10, io.EOF, 256 << 10, nil}, {256<<10 + 1, io.EOF, 256 << 10, staging.ErrTooLarge},
		{1 << 20, io.EOF, 1<<20 - 1, staging.ErrTooLarge}, {4, broken, 1000, broken},
	} {
		a, dir := newArea(t)
		b := newBatch(t, a)
		body := bytes.NewReader(make([]byte, c.size+1000))
		_, err := b.Receive("a", "", io.MultiReader(io.LimitReader(body, int64(c.size)), iotest.ErrReader(c.end)), c.limit)
		if disk := (*staging.DiskError)(nil); !errors.Is(err, c.want) || errors.As(err, &disk) {
			t.Errorf("%d bytes with limit %d: %v, want %v", c.size, c.limit, err, c.want)
		}
		if want := map[bool]int{true: 1, false: 0}[c.want == nil]; files(t, dir) != want {
			t.Errorf("%d bytes with limit %d: %d files are left, want %d", c.size, c.limit, files(t, dir), want)
		}
		if read := int64(c.size+1000) - int64(body.Len()); c.want != nil && read > max(c.limit, 0)+1 {
			t.Errorf("%d bytes with limit %d: %d were read", c.size, c.limit, read)
		}
	}
}

// TestFullDisk uploads to a tiny memory file system of its own.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("no file system may be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	a, err := staging.New(dir)
	must(t, err)
	free, err := a.Free()
	if err != nil || free <= 0 || free > 1<<20 {
		t.Errorf("Free = %d, %v, want up to 1 MiB", free, err)
	}
	b := newBatch(t, a)
	_, err = b.Receive("a", "", io.LimitReader(zeros{}, 2<<20), 10<<20)
	if !disk.IsFull(err) {
		t.Errorf("Receive = %v, want a full disk", err)
	}
	if n := files(t, dir); n != 0 {
		t.Errorf("%d files are left", n)
	}
	if _, err := b.Receive("b", "", io.LimitReader(zeros{}, 100<<10), 10<<20); err != nil {
		t.Errorf("after the full disk was freed: %v", err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestBrokenDiskIsNotTheSendersFault(t *testing.T) {
	a, dir := newArea(t)
	b := newBatch(t, a)
	must(t, os.RemoveAll(dir))
	_, err := b.Receive("a", "", strings.NewReader("x"), 10)
	if local := (*staging.DiskError)(nil); !errors.As(err, &local) || disk.IsFull(err) {
		t.Errorf("Receive = %v, want a DiskError", err)
	}
	if _, err := a.Batch(); err == nil {
		t.Error("a batch was started in a folder that is gone")
	}
}

func TestReceiveKeepsMemoryFlat(t *testing.T) {
	a, _ := newArea(t)
	b := newBatch(t, a)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := b.Receive("a", "", io.LimitReader(zeros{}, 64<<20), 64<<20); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > 2<<20 {
		t.Errorf("receiving 64 MB allocated %d KB", used>>10)
	}
}

// TestSweepRemovesFilesOfADeadProcess leaves a batch behind by dying: this test starts itself again in a process of its
// own.
func TestSweepRemovesFilesOfADeadProcess(t *testing.T) {
	if dir := os.Getenv("STAGING_DIE_IN"); dir != "" {
		a, err := staging.New(dir)
		must(t, err)
		b, err := a.Batch()
		must(t, err)
		if _, err := b.Receive("a", "", strings.NewReader("x"), 10); err != nil {
			t.Fatal(err)
		}
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	a, dir := newArea(t)
	alive, err := newBatch(t, a).Receive("a", "", strings.NewReader("x"), 10)
	must(t, err)
	victim := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
	victim.Env = append(os.Environ(), "STAGING_DIE_IN="+dir)
	if out, err := victim.CombinedOutput(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Fatalf("the process ended with %v: %s", err, out)
	}
	if n := files(t, dir); n != 2 {
		t.Fatalf("%d files, want that of the dead and that of the living", n)
	}
	other, err := staging.New(dir) // another process, as far as a lock goes
	must(t, err)
	if err := other.Sweep(6 * time.Hour); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(alive.Path); err != nil || files(t, dir) != 1 {
		t.Errorf("%d files are left, want that of the living: %v", files(t, dir), err)
	}
}

func TestSweepTakesOldStrangers(t *testing.T) {
	a, dir := newArea(t)
	past := time.Now().Add(-7 * time.Hour)
	for name, age := range map[string]time.Time{"batch-unlocked-old": past, "batch-unlocked-new": time.Now()} {
		path := filepath.Join(dir, name)
		must(t, os.Mkdir(path, 0o750))
		must(t, os.WriteFile(path+"-file", []byte("x"), 0o600))
		must(t, errors.Join(os.Chtimes(path, age, age), os.Chtimes(path+"-file", age, age)))
	}
	if err := a.Sweep(6 * time.Hour); err != nil {
		t.Error(err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(left) != 2 || !strings.Contains(left[0], "new") || !strings.Contains(left[1], "new") {
		t.Errorf("left: %v, %v", left, err)
	}
}

// Batches that begin while another process sweeps are never taken.
func TestSweepBesideNewBatches(t *testing.T) {
	a, dir := newArea(t)
	other, err := staging.New(dir)
	must(t, err)
	stop, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		var errs error
		for {
			select {
			case <-stop:
				ended <- errs
				return
			default:
				errs = errors.Join(errs, other.Sweep(time.Hour))
			}
		}
	}()
	for range 300 {
		b, err := a.Batch()
		must(t, err)
		f, err := b.Receive("a", "", strings.NewReader("x"), 10)
		must(t, err)
		if _, err := os.Stat(f.Path); err != nil {
			t.Fatal(err)
		}
		must(t, b.Close())
	}
	close(stop)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
