// Unpacks the archive of speaker tracks, which is hostile input: files, bytes and time are bounded, and the names in
// the archive never become paths.

package separator

import (
	"archive/tar"
	"bufio"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"cutroom/internal/film/media/container"
)

// archiveLimits bound the cost of an archive.
type archiveLimits struct {
	entries    int   // of any kind
	entryBytes int64 // of one file
	totalBytes int64 // of all files, and of the archive itself when decompressed
}

// unpack writes the audio files of a tar archive, plain or gzipped, to dir as speaker_0, speaker_1, ... with the
// extension of their content, in the natural order of their names in the archive.
//
// The archive is hostile input. Its names determine only the order, never a path. unpack skips entries that are not
// regular files or not audio. If the archive is broken or exceeds the limits, it returns an *Error and leaves nothing
// in dir.
func unpack(ctx context.Context, archive, dir string, limits archiveLimits) (stems []Stem, err error) {
	f, err := os.Open(archive)
	if err != nil {
		return nil, fmt.Errorf("unpack: %w", err)
	}
	defer f.Close()
	work, err := os.MkdirTemp(dir, "speakers-*")
	if err != nil {
		return nil, fmt.Errorf("unpack: %w", err)
	}
	defer os.RemoveAll(work)
	tracks, err := extract(ctx, f, work, limits)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case isLocal(err):
		return nil, fmt.Errorf("unpack: %w", err)
	case errors.Is(err, errTooMuch):
		return nil, unusable("%w", errTooMuch)
	default:
		return nil, unusable("%w", errBroken)
	}
	slices.SortStableFunc(tracks, func(a, b track) int {
		return cmp.Or(strings.Compare(naturalOrder(a.name), naturalOrder(b.name)), strings.Compare(a.name, b.name))
	})
	for i, t := range tracks {
		path := filepath.Join(dir, fmt.Sprintf("speaker_%d.%s", i, t.kind.AudioExt()))
		if err := os.Rename(t.path, path); err != nil {
			return nil, fmt.Errorf("unpack: %w", err)
		}
		stems = append(stems, Stem{path, t.kind})
	}
	return stems, nil
}

var (
	errBroken  = errors.New("archive is broken")
	errTooMuch = errors.New("archive has too many entries or bytes")
)

// track is an audio file from the archive, not yet under its final name.
type track struct {
	name, path string
	kind       container.Kind
}

// decompressed returns the tar in f, decompressed if it is gzipped. Reading fails beyond maxBytes and when ctx
// ends. The stream is not seekable, so skipping an entry reads and counts it.
func decompressed(ctx context.Context, f *os.File, maxBytes int64) (io.Reader, error) {
	// Check ctx below gzip, because one read of gzip may go through any number of empty members.
	in := bufio.NewReaderSize(endingReader{ctx, f}, 64<<10)
	var r io.Reader = in
	if magic, err := in.Peek(2); err == nil && magic[0] == 0x1f && magic[1] == 0x8b {
		if r, err = gzip.NewReader(in); err != nil {
			return nil, err
		}
	}
	// Headers and padding add to the files' own bytes.
	return &boundedReader{r: r, left: maxBytes + maxBytes/8 + 1<<20}, nil
}

// endingReader fails when ctx ends.
type endingReader struct {
	ctx context.Context
	r   io.Reader
}

func (e endingReader) Read(p []byte) (int, error) {
	if e.ctx.Err() != nil {
		return 0, context.Cause(e.ctx)
	}
	return e.r.Read(p)
}

type boundedReader struct {
	r    io.Reader
	left int64
}

func (b *boundedReader) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errTooMuch
	}
	n, err := b.r.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

// extract writes the audio files of the archive under generated names, in the archive's order.
func extract(ctx context.Context, archive *os.File, dir string, limits archiveLimits) (tracks []track, err error) {
	content, err := decompressed(ctx, archive, limits.totalBytes)
	if err != nil {
		return nil, err
	}
	r, left := tar.NewReader(content), limits.totalBytes
	for entries := 1; ; entries++ {
		h, err := r.Next()
		if err == io.EOF {
			return tracks, nil
		}
		// With ErrInsecurePath the header is still usable, and names do not matter.
		if err != nil && !errors.Is(err, tar.ErrInsecurePath) {
			return nil, err
		}
		if entries > limits.entries {
			return nil, errTooMuch
		}
		if h.Typeflag != tar.TypeReg || h.Size == 0 {
			continue
		}
		if h.Size > min(limits.entryBytes, left) {
			return nil, errTooMuch
		}
		left -= h.Size
		path := filepath.Join(dir, fmt.Sprint(entries))
		if err := writeFile(path, endingReader{ctx, r}, h.Size); err != nil {
			return nil, err
		}
		class, err := container.SniffFile(path)
		if err != nil {
			return nil, err
		}
		if isAudio(class.Kind) {
			tracks = append(tracks, track{h.Name, path, class.Kind})
		}
	}
}

// isAudio reports whether a file has one of the provider's formats.
func isAudio(kind container.Kind) bool {
	return kind != container.Unknown && kind != container.Matroska
}

var digits = regexp.MustCompile(`[0-9]+`)

// naturalOrder returns a text that sorts as a person would sort the name: runs of digits by value, letters ignoring
// case. For a very long name, only its start counts.
func naturalOrder(name string) string {
	name = strings.ToLower(name[:min(len(name), 1024)])
	return digits.ReplaceAllStringFunc(name, func(run string) string {
		run = strings.TrimLeft(run, "0")
		return fmt.Sprintf("%04d", len(run)) + run
	})
}
