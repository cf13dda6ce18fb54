package separation

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"cutroom/internal/fault"
	"cutroom/internal/media"
	"cutroom/internal/staging"
)

// audio is what judging an upload found.
type audio struct {
	ext        string // m4a, mp3 or wav
	durationMs int64
}

// fallbackBytesPerSecond prices audio whose length cannot be measured. 64 kbit/s
// is less than almost all audio has, so the length comes out on the long side.
const fallbackBytesPerSecond = 8000

var errUnsupported = fault.New(fault.Invalid, "unsupported_audio_format")

// judge accepts m4a, mp3 and wav, by content first, and by name only where the
// content is of the right family but cannot be read.
func (s *Service) judge(ctx context.Context, f staging.File) (audio, error) {
	kind, err := media.Sniff(f.Path)
	if err != nil {
		return audio{}, fmt.Errorf("sniff upload: %w", err)
	}
	if kind == media.KindUnknown {
		return s.judgeUnread(f, kind, nil)
	}
	ext := extensions[kind]
	if ext == "" {
		return audio{}, errUnsupported
	}
	probe, err := s.Media.Probe(ctx, f.Path)
	switch {
	case err != nil && ctx.Err() != nil:
		return audio{}, context.Cause(ctx)
	case err != nil:
		return s.judgeUnread(f, kind, err)
	case probe.Video != nil || probe.Audio == nil:
		return audio{}, errUnsupported
	}
	// Headers lie about the length; the packets do not. Of several tracks the
	// longest counts: the provider gets all of them.
	tracks, err := s.Media.MeasureAll(ctx, f.Path, media.MeasureOptions{})
	var longest time.Duration
	for _, t := range tracks {
		if t.Type == "audio" {
			longest = max(longest, t.End-t.First)
		}
	}
	if err != nil || longest <= 0 {
		if ctx.Err() != nil {
			return audio{}, context.Cause(ctx)
		}
		return bySize(ext, f), nil
	}
	return audio{ext, longest.Milliseconds()}, nil
}

// extensions are the formats that are accepted.
var extensions = map[media.Kind]string{media.KindMP4: "m4a", media.KindMP3: "mp3", media.KindWAV: "wav"}

// bySize prices audio by its size.
func bySize(ext string, f staging.File) audio {
	return audio{ext, f.SizeBytes * 1000 / fallbackBytesPerSecond}
}

// judgeUnread decides on a file that could not be probed, kind being what its
// content is. What the content leaves open its name must settle: a damaged mp4
// may be a film, and a lone frame header may be chance.
func (s *Service) judgeUnread(f staging.File, kind media.Kind, cause error) (audio, error) {
	claimed, err := media.Claims(f.Path)
	if err != nil {
		return audio{}, fmt.Errorf("sniff upload: %w", err)
	}
	named := strings.TrimPrefix(strings.ToLower(filepath.Ext(f.FileName)), ".")
	accepted := false
	switch {
	case kind == media.KindWAV, kind == media.KindMP3:
		accepted = true
	case claimed == media.KindMP4: // under an audio brand
		accepted = (named == "m4a" || named == "") && !holdsVideo(f.Path)
	case kind == media.KindMP4:
		accepted = named == "m4a" && holdsMedia(f.Path) && !holdsVideo(f.Path)
	case claimed == media.KindMP3:
		accepted = named == "mp3" || named == "" && isTagged(f.Path)
	}
	if !accepted {
		return audio{}, errUnsupported
	}
	if kind == media.KindUnknown {
		kind = claimed
	}
	s.log.Info("length of an upload cannot be probed; its size decides", "bytes", f.SizeBytes, "err", cause)
	return bySize(extensions[kind], f), nil
}

// isTagged reports whether a file begins with the letters of an ID3 tag.
func isTagged(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	var head [3]byte
	_, err = io.ReadFull(f, head[:])
	return err == nil && string(head[:]) == "ID3"
}

// holdsMedia reports whether a file of the mov family has a box with media or
// an index at its top level.
func holdsMedia(path string) bool {
	found := false
	topBoxes(path, func(name string, _ *io.SectionReader) bool {
		found = name == "mdat" || name == "moov" || name == "moof"
		return !found
	})
	return found
}

// maxIndexBytes is how much of an index is searched for video; that of a film
// of hours is smaller.
const maxIndexBytes = 16 << 20

// holdsVideo reports whether an index of a file of the mov family, as far as it
// is there, declares a video track.
func holdsVideo(path string) bool {
	found := false
	topBoxes(path, func(name string, box *io.SectionReader) bool {
		if name == "moov" {
			index, err := io.ReadAll(io.LimitReader(box, maxIndexBytes))
			found = err != nil || declaresVideo(index)
		}
		return !found
	})
	return found
}

// declaresVideo looks for a handler box of type vide: its name, version, flags
// and four reserved bytes, then the type.
func declaresVideo(index []byte) bool {
	for {
		i := bytes.Index(index, []byte("hdlr"))
		if i < 0 || len(index) < i+16 {
			return false
		}
		if string(index[i+12:i+16]) == "vide" {
			return true
		}
		index = index[i+4:]
	}
}

// topBoxes calls visit with the name and content of each box at the top level
// of a file of the mov family, as far as they can be followed, until visit
// returns false. A box that claims more than there is ends with the file.
func topBoxes(path string, visit func(name string, content *io.SectionReader) bool) {
	f, err := os.Open(path)
	if err != nil {
		return
	}
	defer f.Close()
	var header [16]byte
	for at, boxes := int64(0), 0; boxes < 64; boxes++ {
		n, err := f.ReadAt(header[:], at)
		if n < 8 {
			return
		}
		size, head := int64(binary.BigEndian.Uint32(header[:4])), int64(8)
		if size == 1 && n == 16 { // the size follows in 64 bits
			size, head = int64(binary.BigEndian.Uint64(header[8:])&(1<<63-1)), 16
		}
		length := size - head
		if size == 0 { // to the end of the file
			length = 1<<63 - 1 - at - head
		}
		if !visit(string(header[4:8]), io.NewSectionReader(f, at+head, max(0, length))) {
			return
		}
		if size < head || err != nil && n < 16 || size > 1<<62 {
			return
		}
		at += size
	}
}
