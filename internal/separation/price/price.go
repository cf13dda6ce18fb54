// Package price finds out what kind of sound file an upload is, and how long its sound is. That decides what a
// separation costs, so no header, clock or edit list may declare less than what the file holds.
package price

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"cutroom/internal/credit"
	"cutroom/internal/fault"
	"cutroom/internal/media"
	"cutroom/internal/media/container"
	"cutroom/internal/staging"
)

// Sound is the kind and length of an upload.
type Sound struct {
	Ext        string // m4a, mp3 or wav
	DurationMs int64
}

// Meter measures uploads. It is safe for concurrent use.
type Meter struct {
	Media interface {
		Measure(ctx context.Context, path string, kind container.Kind, opts media.MeasureOptions) ([]media.Measured, error)
	}
	Slots *media.FairSlots // for the uploads of each user
	Wait  time.Duration    // for a slot
	Log   *slog.Logger
}

// SlotWait is how long an upload waits for a slot, and a refused client before it tries again.
const SlotWait = 20 * time.Second

// The limits of an upload beside media.AnalysisLimits. Two million packets are more than twelve hours
// of AAC.
const (
	maxPackets = 2_000_000
	maxTracks  = 32
)

var (
	errUnsupported = fault.New(fault.Invalid, "unsupported_audio_format")
	errBusy        = fault.Busy(SlotWait)
	errTooMany     = fault.Invalidf("file has more than %d packets of sound", maxPackets)
	errTracks      = fault.Invalidf("file has more than %d tracks: send one track of sound", maxTracks)
	errUncounted   = fault.Invalidf("file: the length of the sound cannot be counted: convert the file to AAC, MP3 or PCM")
	errExhausted   = fault.Invalidf("file: the analysis takes too much time or memory; convert it to a plain m4a, mp3 or wav file")
)

// Measure accepts m4a, mp3 and wav by their content. The name decides only if the content is of the right family but
// cannot be read. A file that declares more than the owner's balance can pay for is [credit.Insufficient] before it
// is read; without a free slot it returns fault.Unavailable.
func (m *Meter) Measure(ctx context.Context, owner string, balance int64, f staging.File) (Sound, error) {
	class, err := container.SniffFile(f.Path)
	if err != nil {
		return Sound{}, err
	}
	if class.Kind == container.Unknown {
		return m.priceBySize(f, class, nil)
	}
	if class.Kind != container.MP4 && class.Kind != container.MP3 && class.Kind != container.WAV {
		return Sound{}, errUnsupported
	}
	// There is a slot per core, each user holds at most one, and users take turns.
	release, err := m.Slots.AcquireWithin(ctx, owner, m.Wait, errBusy)
	if err != nil {
		return Sound{}, err
	}
	defer release()
	if class.Kind == container.MP4 {
		if err := checkTables(f.Path, balance); err != nil {
			return Sound{}, err
		}
	}
	length, err := m.length(ctx, f.Path, class.Kind, packetBudget(class.Kind, balance))
	if err == nil {
		return Sound{class.Kind.AudioExt(), length.Milliseconds()}, nil
	}
	if ctx.Err() != nil {
		return Sound{}, context.Cause(ctx)
	}
	if refusal := refused(err, class.Kind, balance); refusal != nil {
		return Sound{}, refusal
	}
	return m.priceBySize(f, class, err)
}

// Files with an index of up to longIndex packets are simply read, in a second at
// most, so that the answer names the exact price.
const longIndex = 250_000

// checkTables refuses an mp4 that would take long to read and then be refused. Its index
// declares a length that the balance cannot pay for, even if each packet holds half the
// usual number of samples, or declares no length.
func checkTables(path string, balance int64) error {
	index, err := container.ReadTables(path)
	switch {
	case errors.Is(err, container.ErrTooManyBoxes):
		return errExhausted.WithCause(err)
	case err != nil:
		return err
	case len(index.Tracks) > maxTracks:
		return errTracks
	case index.Compressed:
		return errUncounted
	}
	var packets, others, seconds int64
	for _, t := range index.Tracks {
		length, counted := t.Seconds()
		if packets += t.Packets(); t.Sound && counted {
			seconds = max(seconds, length)
		} else {
			others += t.Packets()
		}
		if t.Chunked() || t.Sound && t.Codec == "alac" && !counted {
			return errUncounted // ffprobe tells neither how many packets there are nor how long they are
		}
	}
	price := credit.Price(seconds * 1000)
	switch {
	case others > longIndex:
		return errUncounted
	case packets > maxPackets:
		return errTooMany
	case packets > longIndex && price > 2*balance:
		return credit.Insufficient(price, balance)
	}
	return nil
}

// maxPacketRate is more packets a second than any encoder makes, AAC at 96 kHz in
// its shortest frames and PCM at 192 kHz among them. WAV is bounded by its size.
const maxPacketRate = 512

// packetBudget is how many packets of a file to read. The index may hide packets, so the
// budget is what the balance could pay for.
func packetBudget(kind container.Kind, balance int64) int64 {
	if kind == container.WAV || balance > maxPackets/maxPacketRate {
		return maxPackets
	}
	return min(maxPackets, max(longIndex, balance*credit.BillableBlockMs/1000*maxPacketRate))
}

// refused is the answer to a file whose analysis did not finish. It is nil for a damaged
// file, which is priced by its size.
func refused(err error, kind container.Kind, balance int64) error {
	blame := media.BlameFor(err)
	switch {
	case errors.Is(err, media.ErrTooManyPackets) && packetBudget(kind, balance) < maxPackets:
		return credit.Insufficient(balance+1, balance).WithCause(err)
	case errors.Is(err, media.ErrTooManyPackets):
		return errTooMany.WithCause(err)
	case errors.Is(err, media.ErrTooManyStreams):
		return errTracks.WithCause(err)
	case blame == media.BlameMachine:
		return errBusy.WithCause(err)
	case blame == media.BlameCost:
		return errExhausted.WithCause(err)
	case errors.Is(err, errUnsupported), errors.Is(err, errUncounted):
		return err
	}
	return nil
}

// paddingSamples is more than encoders put before and behind the audio: up to
// 4095 samples each in the fields of MP3, about 3000 together in AAC. At low rates
// encoders add less than these would last.
const (
	paddingSamples = 8192
	maxPadding     = 400 * time.Millisecond
)

// length measures the longest track of a file, for its price. It counts the packets and their samples, because
// headers, clocks and edit lists can declare too little, and leaves out a plausible amount of encoder padding.
func (m *Meter) length(ctx context.Context, path string, kind container.Kind, packets int64) (time.Duration, error) {
	tracks, err := m.tracks(ctx, path, kind, media.MeasureOptions{IgnoreEdits: true, MaxPackets: packets})
	if err != nil {
		return 0, err
	}
	var extent, bare, heard time.Duration
	for _, t := range tracks {
		extent = max(extent, t.Extent)
		bare = max(bare, t.Extent-min(maxPadding, paddingSamples*time.Second/time.Duration(t.SampleRate)))
		heard = max(heard, t.Duration())
	}
	// Only the edit list of an mp4 declares its encoder's padding. Read it if the padding
	// could change the price.
	if kind == container.MP4 && credit.Price(extent.Milliseconds()) != credit.Price(bare.Milliseconds()) {
		if tracks, err = m.tracks(ctx, path, kind, media.MeasureOptions{MaxPackets: packets}); err != nil {
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
	hidden, err := undeclared(path, kind, tracks)
	return max(heard, bare) + hidden, err
}

// undeclared is the length of the sound behind a WAV file's data chunk, if that declares too little.
func undeclared(path string, kind container.Kind, tracks []media.Measured) (length time.Duration, err error) {
	if kind != container.WAV {
		return 0, nil
	}
	unclaimed, err := container.UnclaimedWAV(path)
	for _, t := range tracks {
		if t.Bytes > 0 {
			length = max(length, time.Duration(float64(t.Extent)*float64(unclaimed)/float64(t.Bytes)))
		}
	}
	return length, err
}

var errNoSound = errors.New("no packets of sound")

// tracks measures the audio of a file that holds nothing else, covers aside.
func (m *Meter) tracks(ctx context.Context, path string, kind container.Kind, opts media.MeasureOptions) ([]media.Measured, error) {
	opts.MaxStreams, opts.MaxMemoryBytes, opts.Timeout = maxTracks, media.AnalysisLimits.MaxMemoryBytes, media.AnalysisLimits.Timeout
	all, err := m.Media.Measure(ctx, path, kind, opts)
	if err != nil {
		return nil, err
	}
	var tracks []media.Measured
	for _, m := range all {
		if m.Type == "video" && !m.Cover && m.Packets > 0 {
			return nil, errUnsupported
		}
		if m.Type != "audio" {
			continue
		}
		if m.Packets+m.Discarded > 0 && (!m.Counted || m.SampleRate == 0) {
			return nil, errUncounted
		}
		if m.SampleRate > 0 {
			tracks = append(tracks, m)
		}
	}
	if len(tracks) == 0 {
		return nil, errUnsupported
	}
	return tracks, nil
}

// priceBySize prices a file that could not be measured by its size. Where the content is ambiguous, the name must
// decide: a damaged mp4 may hold video, and random bytes may look like a frame header.
func (m *Meter) priceBySize(f staging.File, class container.Class, cause error) (Sound, error) {
	kind, named := class.Kind, strings.TrimPrefix(strings.ToLower(filepath.Ext(f.FileName)), ".")
	var index container.Index
	var accepted bool
	var err error
	switch {
	case kind == container.WAV, kind == container.MP3:
		accepted = true
	case kind == container.MP4:
		if index, err = container.ReadIndex(f.Path); err != nil {
			return Sound{}, fmt.Errorf("read index of upload: %w", err)
		}
		branded := class.Brand == "M4A " || class.Brand == "M4B "
		accepted = !index.Video && (named == "m4a" && (branded || index.Media) || named == "" && branded)
	case class.Tagged, class.Synced:
		kind = container.MP3
		accepted = named == "mp3" || named == "" && class.Tagged
	}
	if !accepted {
		return Sound{}, errUnsupported
	}
	walked, err := container.FramesDuration(f.Path, kind)
	if err != nil {
		return Sound{}, err
	}
	m.Log.Info("length of an upload cannot be measured; its size decides", "bytes", f.SizeBytes, "err", cause)
	return Sound{kind.AudioExt(), max(f.SizeBytes*1000/fallbackBytesPerSecond, walked.Milliseconds(),
		index.Samples*1000*aacFrame/maxAACRate)}, nil
}

// The price of audio that cannot be measured. Almost all audio has more than 64 kbit/s,
// so the estimated length is rather too long. Packets that an index declares count as
// the shortest usual ones.
const (
	fallbackBytesPerSecond = 8000
	aacFrame, maxAACRate   = 1024, 48000
)
