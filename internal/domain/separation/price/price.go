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

	"cutroom/internal/base/fault"
	"cutroom/internal/domain/credit"
	"cutroom/internal/film/media"
	"cutroom/internal/film/media/container"
	"cutroom/internal/storage/staging"
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
		DecodedLength(ctx context.Context, path string, kind container.Kind, stream int, limit time.Duration,
			opts media.MeasureOptions) (time.Duration, error)
	}
	Slots *media.FairSlots // for the uploads of each user
	Wait  time.Duration    // for a slot
	Log   *slog.Logger
}

// SlotWait is how long an upload waits for a slot, and how long a refused client should wait before it tries again.
const SlotWait = 20 * time.Second

// The limits of an upload, in addition to media.AnalysisLimits. Two million packets are almost twelve hours of AAC at
// 48 kHz.
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
	errUndecodable = fault.Invalidf("file: the sound cannot be decoded: the file is damaged")
	errTooShort    = fault.Invalidf("file: the sound is shorter than a millisecond")
	errUnopened    = fault.Invalidf("file: the m4a file cannot be opened: it is damaged or incomplete")
	errExhausted   = fault.Invalidf("file: the analysis takes too much time or memory; convert it to a plain m4a, mp3 or wav file")
)

// Measure accepts m4a, mp3 and wav by their content. The name decides only if the content is of the right family but
// cannot be read. If a file declares more than the owner's balance can pay for, Measure returns [credit.Insufficient]
// without reading it. If no slot becomes free, it returns fault.Unavailable.
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
	length, err := m.length(ctx, f.Path, class.Kind, balance)
	if err == nil && length < time.Millisecond {
		return Sound{}, errTooShort
	}
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

// Files with an index of up to longIndex packets are simply read, in a second at most, so that the answer names the
// exact price.
const longIndex = 250_000

// checkTables refuses an mp4 that would take long to read and then be refused. Its index declares a length that the
// balance cannot pay for, even if each packet holds half the usual number of samples, or declares no length.
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
			return errUncounted // ffprobe reports neither the number of packets nor their lengths
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

// maxPacketRate is more packets a second than any encoder makes, including AAC at 96 kHz in its shortest frames and PCM
// at 192 kHz. WAV is bounded by its size.
const maxPacketRate = 512

// packetBudget is how many packets of a file to read. The index may hide packets, so the budget is what the balance
// could pay for.
func packetBudget(kind container.Kind, balance int64) int64 {
	if kind == container.WAV || balance > maxPackets/maxPacketRate {
		return maxPackets
	}
	return min(maxPackets, max(longIndex, balance*credit.BillableBlockMs/1000*maxPacketRate))
}

// refused is the answer to a file whose analysis did not finish. It is nil for a damaged file, which is priced by its
// size.
func refused(err error, kind container.Kind, balance int64) error {
	blame := media.BlameFor(err)
	switch {
	case errors.Is(err, media.ErrTooLong), errors.Is(err, media.ErrTooManyPackets) && packetBudget(kind, balance) < maxPackets:
		return credit.Insufficient(balance+1, balance).WithCause(err)
	case errors.Is(err, media.ErrTooManyPackets):
		return errTooMany.WithCause(err)
	case errors.Is(err, media.ErrTooManyStreams):
		return errTracks.WithCause(err)
	case blame == media.BlameMachine:
		return errBusy.WithCause(err)
	case blame == media.BlameCost:
		return errExhausted.WithCause(err)
	case errors.Is(err, errUnsupported), errors.Is(err, errUncounted), errors.Is(err, errUndecodable):
		return err
	}
	return nil
}

// paddingSamples is more than encoders put before and after the audio: up to 4095 samples each in the fields of MP3,
// about 3000 together in AAC. At low rates encoders add less than these would last.
const (
	paddingSamples = 8192
	maxPadding     = 400 * time.Millisecond
)

// maxDecoded is the length up to which the sound is decoded to measure it, which takes seven seconds of processor
// time. The packets of longer files are counted, if they can be.
const maxDecoded = 2 * time.Hour

// length measures the longest track of a file, for its price. The longest counts, because the provider gets all of
// them. It decodes every track, because headers, clocks and edit lists can declare too little, and leaves out a
// plausible amount of encoder padding.
func (m *Meter) length(ctx context.Context, path string, kind container.Kind, balance int64) (time.Duration, error) {
	opts := media.AnalysisLimits
	opts.MaxPackets, opts.MaxStreams, opts.IgnoreEdits = packetBudget(kind, balance), maxTracks, true
	ctx, cancel := context.WithTimeoutCause(ctx, opts.Timeout, media.ErrTimeout)
	defer cancel()
	tracks, err := m.tracks(ctx, path, kind, opts)
	if err != nil {
		return 0, err
	}
	var length time.Duration
	audible := false
	for _, t := range tracks {
		samples, err := m.samples(ctx, path, kind, t, balance, opts)
		if err != nil {
			return 0, err
		}
		audible = audible || samples > 0 || t.Samples > 0 && t.Samples < time.Millisecond
		padding := min(maxPadding, paddingSamples*time.Second/time.Duration(max(1, t.SampleRate)))
		length = max(length, t.Span-padding, samples-padding)
		if kind != container.MP4 {
			length = max(length, t.Duration(), samples)
		}
	}
	if !audible {
		return 0, errUndecodable
	}
	// Only the edit list of an mp4 declares its encoder's padding.
	if kind == container.MP4 {
		opts.IgnoreEdits = false
		if tracks, err = m.tracks(ctx, path, kind, opts); err != nil {
			return 0, err
		}
		for _, t := range tracks {
			length = max(length, t.Duration())
		}
	}
	hidden, err := undeclared(path, kind, tracks)
	return length + hidden, err
}

// samples returns how long the samples of a track last, or 0 if nothing can decode it. If its packets alone already
// cost more than the balance, their length decides.
func (m *Meter) samples(ctx context.Context, path string, kind container.Kind, t media.Measured, balance int64,
	opts media.MeasureOptions) (time.Duration, error) {
	packets := max(t.Span, t.Samples)
	switch {
	case t.Codec == "" || t.Packets+t.Discarded == 0:
		return 0, nil
	case t.Samples > 0 && packets > maxDecoded, credit.Price((packets - maxPadding).Milliseconds()) > balance:
		return packets, nil
	case t.Clockless: // it was decoded to measure it
		return t.Samples, nil
	}
	return m.Media.DecodedLength(ctx, path, kind, t.Index, affordable(balance), opts)
}

// affordable returns a length that exceeds any sound that the balance can pay for.
func affordable(balance int64) time.Duration {
	return time.Duration(min(balance+1, 1<<20)) * credit.BillableBlockMs * time.Millisecond
}

// undeclared returns the length of the sound after a WAV file's data chunk, if the chunk declares too little.
func undeclared(path string, kind container.Kind, tracks []media.Measured) (length time.Duration, err error) {
	if kind != container.WAV {
		return 0, nil
	}
	unclaimed, err := container.UnclaimedWAV(path)
	for _, t := range tracks {
		if t.Bytes > 0 {
			length = max(length, time.Duration(float64(t.Span)*float64(unclaimed)/float64(t.Bytes)))
		}
	}
	return length, err
}

// tracks measures the audio of a file that, apart from cover pictures, holds nothing else.
func (m *Meter) tracks(ctx context.Context, path string, kind container.Kind, opts media.MeasureOptions) ([]media.Measured, error) {
	all, err := m.Media.Measure(ctx, path, kind, opts)
	if err != nil {
		return nil, err
	}
	var tracks []media.Measured
	countable := false
	for _, m := range all {
		if m.Type == "video" && !m.Cover && m.Packets > 0 {
			return nil, errUnsupported
		}
		if m.Type == "audio" {
			tracks = append(tracks, m)
			countable = countable || m.Packets+m.Discarded == 0 || isCountable(m)
		}
	}
	switch {
	case len(tracks) == 0:
		return nil, errUnsupported
	case !countable:
		return nil, errUncounted
	}
	return tracks, nil
}

// isCountable reports whether the packets of a track determine how many samples they contain. Containers state that
// number for the others, such as FLAC, and may state too few.
func isCountable(m media.Measured) bool {
	switch m.Codec {
	case "aac", "opus", "gsm", "gsm_ms":
		return true
	}
	return m.Samples > 0 || strings.HasPrefix(m.Codec, "adpcm_")
}

// priceBySize prices an mp3 or wav that could not be measured: its size determines the price, because a decoder may
// still find sound in it. A damaged mp4 is refused, because no decoder can find sound in it. Where the content is
// ambiguous, the name must decide: a damaged mp4 may hold video, and random bytes may look like a frame header.
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
	switch {
	case !accepted:
		return Sound{}, errUnsupported
	case kind == container.MP4:
		return Sound{}, errUnopened.WithCause(cause)
	}
	walked, err := container.ReadFrames(f.Path, kind)
	if err != nil {
		return Sound{}, err
	}
	m.Log.Info("length of an upload cannot be measured; its size decides", "bytes", f.SizeBytes, "err", cause)
	return Sound{kind.AudioExt(), max(f.SizeBytes*1000/fallbackBytesPerSecond, walked.Duration.Milliseconds())}, nil
}

// fallbackBytesPerSecond prices audio that cannot be measured. Almost all audio has more than 64 kbit/s, so the
// estimate errs on the long side.
const fallbackBytesPerSecond = 8000
