package separation

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"cutroom/internal/credit"
	"cutroom/internal/fault"
	"cutroom/internal/media"
	"cutroom/internal/media/container"
	"cutroom/internal/staging"
)

// classified is what classifying an upload found.
type classified struct {
	ext        string // m4a, mp3 or wav
	durationMs int64
}

// What the analysis of one upload may cost. Two million packets are more than
// twelve hours of AAC.
const (
	analysisMemory  = 512 << 20
	analysisTimeout = 60 * time.Second
	maxPackets      = 2_000_000
	analysisWait    = 20 * time.Second // for a place, while others are analysed
)

var (
	errUnsupported = fault.New(fault.Invalid, "unsupported_audio_format")
	errBusy        = &fault.Error{Kind: fault.Unavailable, Code: "unavailable", RetryAfter: analysisWait}
)

// classify accepts m4a, mp3 and wav, by content first, and by name only where the
// content is of the right family but cannot be read.
func (s *Service) classify(ctx context.Context, f staging.File) (classified, error) {
	class, err := container.SniffFile(f.Path)
	if err != nil {
		return classified{}, err
	}
	if class.Kind == container.Unknown {
		return s.classifyUnread(f, class, nil)
	}
	if class.Kind != container.MP4 && class.Kind != container.MP3 && class.Kind != container.WAV {
		return classified{}, errUnsupported
	}
	release, err := s.analysisSlot(ctx)
	if err != nil {
		return classified{}, err
	}
	defer release()
	length, err := s.length(ctx, f.Path, class.Kind)
	switch {
	case err == nil:
		return classified{class.Kind.AudioExt(), length.Milliseconds()}, nil
	case ctx.Err() != nil:
		return classified{}, context.Cause(ctx)
	case errors.Is(err, media.ErrTooManyPackets):
		return classified{}, fault.Invalidf("file has more than %d packets of sound", maxPackets).WithCause(err)
	case errors.Is(err, errUnsupported):
		return classified{}, err
	}
	return s.classifyUnread(f, class, err)
}

// analysisSlot waits for one of the places at which uploads are analysed: as
// many as there are cores, however many uploads come in.
func (s *Service) analysisSlot(ctx context.Context) (release func(), err error) {
	wait, cancel := context.WithTimeoutCause(ctx, s.analysisWait, errBusy)
	defer cancel()
	return s.analyses.Acquire(wait)
}

// paddingSamples is more than encoders put before and behind the audio: up to
// 4095 samples each in the fields of MP3, about 3000 together in AAC. At low rates
// encoders add less than these would last.
const (
	paddingSamples = 8192
	maxPadding     = 400 * time.Millisecond
)

// length is what the audio of a file lasts, and is priced by. Headers lie, and
// clocks and edit lists hide; the packets and their samples do not. What an
// encoder added is left out as far as it is plausible. Of several tracks the
// longest counts: the provider gets all of them.
func (s *Service) length(ctx context.Context, path string, kind container.Kind) (time.Duration, error) {
	tracks, err := s.tracks(ctx, path, kind, media.MeasureOptions{IgnoreEdits: true})
	if err != nil {
		return 0, err
	}
	var extent, bare, heard time.Duration
	for _, t := range tracks {
		extent = max(extent, t.Extent)
		bare = max(bare, t.Extent-min(maxPadding, paddingSamples*time.Second/time.Duration(t.SampleRate)))
		heard = max(heard, t.Duration())
	}
	// Only the edit list of an mp4 knows its encoder's padding. It is asked where
	// that could tip the price.
	if kind == container.MP4 && credit.Price(extent.Milliseconds()) != credit.Price(bare.Milliseconds()) {
		if tracks, err = s.tracks(ctx, path, kind, media.MeasureOptions{}); err != nil {
			return 0, err
		}
		heard = 0
		for _, t := range tracks {
			heard = max(heard, t.Duration())
		}
	}
	if extent <= 0 {
		return 0, errNoSound
	}
	return max(heard, bare), nil
}

var errNoSound = errors.New("no packets of sound")

// tracks measures the audio of a file that holds nothing else, covers aside.
func (s *Service) tracks(ctx context.Context, path string, kind container.Kind, opts media.MeasureOptions) ([]media.Measured, error) {
	opts.MaxPackets, opts.MaxMemoryBytes, opts.Timeout = maxPackets, analysisMemory, analysisTimeout
	all, err := s.Media.Measure(ctx, path, kind, opts)
	if err != nil {
		return nil, err
	}
	var tracks []media.Measured
	for _, m := range all {
		if m.Type == "video" && !m.Cover && m.Packets > 0 {
			return nil, errUnsupported
		}
		if m.Type == "audio" && m.Codec != "" && m.SampleRate > 0 {
			tracks = append(tracks, m)
		}
	}
	if len(tracks) == 0 {
		return nil, errUnsupported
	}
	return tracks, nil
}

// classifyUnread decides on a file that could not be measured, and prices it by
// its size. What the content leaves open its name must settle: a damaged mp4
// may hold video, and a lone frame header may be chance.
func (s *Service) classifyUnread(f staging.File, class container.Class, cause error) (classified, error) {
	kind, named := class.Kind, strings.TrimPrefix(strings.ToLower(filepath.Ext(f.FileName)), ".")
	var index container.Index
	var accepted bool
	var err error
	switch {
	case kind == container.WAV, kind == container.MP3:
		accepted = true
	case kind == container.MP4:
		if index, err = container.ReadIndex(f.Path); err != nil {
			return classified{}, fmt.Errorf("read index of upload: %w", err)
		}
		branded := class.Brand == "M4A " || class.Brand == "M4B "
		accepted = !index.Video && (named == "m4a" && (branded || index.Media) || named == "" && branded)
	case class.Tagged, class.Synced:
		kind = container.MP3
		accepted = named == "mp3" || named == "" && class.Tagged
	}
	if !accepted {
		return classified{}, errUnsupported
	}
	walked, err := container.FramesDuration(f.Path, kind)
	if err != nil {
		return classified{}, err
	}
	s.log.Info("length of an upload cannot be measured; its size decides", "bytes", f.SizeBytes, "err", cause)
	return classified{kind.AudioExt(), max(f.SizeBytes*1000/fallbackBytesPerSecond, walked.Milliseconds(),
		index.Samples*1000*aacFrame/maxAACRate)}, nil
}

// What prices audio that cannot be measured. 64 kbit/s is less than almost all
// audio has, so the length comes out on the long side; packets that an index
// declares are taken for the shortest of the usual ones.
const (
	fallbackBytesPerSecond = 8000
	aacFrame, maxAACRate   = 1024, 48000
)
