package separator

import (
	"archive/tar"
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"cutroom/internal/media/container"
)

// archiveLimits bound the cost of an archive.
type archiveLimits struct {
	entries    int   // of any kind
	entryBytes int64 // of one file
	totalBytes int64 // of all files, and of the archive itself when decompressed
}

// unpack writes the audio files of a tar archive, plain or gzipped, to dir as speaker_0, speaker_1, ... with
// the extension of their content, in the natural order of their names in the archive.
//
// The archive is hostile input. Its names determine only the order, never a path. unpack skips entries that are
// not regular files or not audio. If the archive is broken or exceeds the limits, it returns an *Error and
// leaves nothing in dir.
func unpack(ctx context.Context, archive, dir string, limits archiveLimits) (stems []Stem, err error) {
	f, err := os.Open(archive)
	if err != nil {
		return nil, fmt.Errorf("unpack: %w", err)
	}
	defer f.Close()
	content, err := tarStream(ctx, f, limits.totalBytes)
	if err != nil {
		return nil, err
	}
	tracks, err := extract(ctx, tar.NewReader(content), dir, limits)
	defer func() {
		if err != nil {
			for _, t := range tracks {
				os.Remove(t.path) // fails if it was renamed, which is fine
			}
			for _, s := range stems {
				os.Remove(s.Path)
			}
			stems = nil
		}
	}()
	if err != nil {
		if ctx.Err() != nil {
			return nil, &Error{Transient: true, Err: context.Cause(ctx)}
		}
		return nil, err
	}
	slices.SortStableFunc(tracks, func(a, b track) int { return compareNatural(a.name, b.name) })
	for i, t := range tracks {
		path := filepath.Join(dir, fmt.Sprintf("speaker_%d.%s", i, t.kind.AudioExt()))
		if err := os.Rename(t.path, path); err != nil {
			return stems, fmt.Errorf("unpack: %w", err)
		}
		stems = append(stems, Stem{path, t.kind})
	}
	return stems, nil
}

// track is an audio file from the archive, not yet under its final name.
type track struct {
	name, path string
	kind       container.Kind
}

// tarStream returns the tar in f, decompressed if it is gzipped. Reading fails beyond maxBytes and when ctx
// ends. The stream is not seekable, so skipping an entry reads and counts it.
func tarStream(ctx context.Context, f *os.File, maxBytes int64) (io.Reader, error) {
	// Below gzip, because one read of gzip may go through any number of empty members.
	in := bufio.NewReaderSize(endingReader{ctx, f}, 64<<10)
	var r io.Reader = in
	if magic, err := in.Peek(2); err == nil && magic[0] == 0x1f && magic[1] == 0x8b {
		if r, err = gzip.NewReader(in); err != nil {
			return nil, malformed("archive is broken")
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
		return 0, oversize("archive unpacks to too much")
	}
	n, err := b.r.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

// extract writes every audio file of the tar under a generated name, in the archive's order. On failure it
// returns the files written so far.
func extract(ctx context.Context, r *tar.Reader, dir string, limits archiveLimits) (tracks []track, err error) {
	left := limits.totalBytes
	head := make([]byte, container.HeadBytes)
	for entries := 1; ; entries++ {
		h, err := r.Next()
		if err == io.EOF {
			return tracks, nil
		}
		// With ErrInsecurePath the header is still usable, and names do not matter.
		if err != nil && !errors.Is(err, tar.ErrInsecurePath) {
			return tracks, brokenArchive(err)
		}
		if entries > limits.entries {
			return tracks, oversize("archive has more than %d entries", limits.entries)
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		n, err := io.ReadFull(r, head)
		if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
			return tracks, brokenArchive(err)
		}
		class, err := container.Sniff(bytes.NewReader(head[:n]))
		if err != nil || !isAudio(class.Kind) && !class.Tagged {
			continue
		}
		if h.Size > min(limits.entryBytes, left) {
			return tracks, oversize("archive unpacks to too much")
		}
		left -= h.Size
		t := track{name: h.Name, path: filepath.Join(dir, fmt.Sprintf("speaker_%d.part", len(tracks))), kind: class.Kind}
		tracks = append(tracks, t)
		if err := writeTrack(t.path, head[:n], endingReader{ctx, r}, h.Size); err != nil {
			return tracks, err
		}
		if isAudio(t.kind) {
			continue
		}
		// A tag can be larger than the head, so look at the content after it.
		if class, err = container.SniffFile(t.path); err != nil {
			return tracks, fmt.Errorf("unpack: %w", err)
		}
		tracks[len(tracks)-1].kind = class.Kind
		if !isAudio(class.Kind) {
			os.Remove(t.path) // harmless if it fails: the job's folder is deleted in any case
			tracks = tracks[:len(tracks)-1]
		}
	}
}

func writeTrack(path string, head []byte, rest io.Reader, size int64) error {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("unpack: %w", err)
	}
	defer f.Close() // a second Close after success is harmless
	if _, err := f.Write(head); err != nil {
		return fmt.Errorf("unpack: %w", err)
	}
	// Copy through a plain writer, so that the hole of a sparse entry is read and written
	// as zeros. Otherwise it would bypass rest, which ends with the caller's context.
	from := &erroringReader{r: rest}
	n, err := io.Copy(struct{ io.Writer }{f}, from)
	switch {
	case from.err != nil:
		return brokenArchive(from.err)
	case err != nil:
		return fmt.Errorf("unpack: %w", err)
	case n+int64(len(head)) != size:
		return malformed("archive is broken")
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("unpack: %w", err)
	}
	return nil
}

// erroringReader remembers read errors, which io.Copy does not distinguish from write
// errors.
type erroringReader struct {
	r   io.Reader
	err error
}

func (e *erroringReader) Read(p []byte) (int, error) {
	n, err := e.r.Read(p)
	if err != nil && err != io.EOF {
		e.err = err
	}
	return n, err
}

// brokenArchive returns an *Error from our own limits unchanged. Any other error is the provider's fault,
// because the file was downloaded completely.
func brokenArchive(err error) error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return malformed("archive is broken")
}

// isAudio reports whether a file has one of the provider's formats.
func isAudio(kind container.Kind) bool {
	return kind != container.Unknown && kind != container.Matroska
}

// compareNatural orders names as a person would: runs of digits by value, letters ignoring case. Names that are
// equal so far are ordered by their bytes, so the order is total.
func compareNatural(a, b string) int {
	x, y := a, b
	for x != "" && y != "" {
		if digits(x) > 0 && digits(y) > 0 {
			n, m := x[:digits(x)], y[:digits(y)]
			x, y = x[len(n):], y[len(m):]
			n, m = strings.TrimLeft(n, "0"), strings.TrimLeft(m, "0")
			if c := cmp.Or(cmp.Compare(len(n), len(m)), cmp.Compare(n, m)); c != 0 {
				return c
			}
			continue
		}
		if c := cmp.Compare(lower(x[0]), lower(y[0])); c != 0 {
			return c
		}
		x, y = x[1:], y[1:]
	}
	return cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(a, b))
}

// digits returns the length of the run of digits at the start of s.
func digits(s string) int {
	n := 0
	for n < len(s) && '0' <= s[n] && s[n] <= '9' {
		n++
	}
	return n
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}
