package analysis

import (
	"context"
	"errors"
	"fmt"
	"time"

	"cutroom/internal/base/fault"
	"cutroom/internal/domain/asset"
	"cutroom/internal/film/media"
	"cutroom/internal/film/media/container"
	"cutroom/internal/storage/objectstore"
)

// Extent describes the sound of an asset, measured by its packets.
type Extent struct {
	From, To   time.Duration // when it begins and ends, counted from the asset's time 0
	Claimed    time.Duration // when it would end if the file were whole; at least To
	SampleRate int           // Hz
	Channels   int
	// Declared is the length that a long file declares. If it is set, everything else is 0: the packets were not read,
	// because no owner who asked could pay for the sound.
	Declared time.Duration
}

// Sound measures the sound of an asset. Before it reads every packet of a long file, it calls worthwhile with the
// length that the file declares, and returns its error. If that is of the kind PaymentRequired, Sound stores the
// declared length, so that later requests are checked against it without fetching the file. field names the asset in
// errors. Like every analysis, this one is made once for each asset, for all accounts.
func (s *Service) Sound(ctx context.Context, owner string, a asset.Found, field string,
	worthwhile func(declared time.Duration) error) (Extent, error) {
	src, key := source{a, owner, field}, a.Key.Derived("sound.json")
	known := func() (Extent, error) {
		found, err := read[Extent](ctx, s, key)
		if err == nil && found.Declared > 0 {
			if err = worthwhile(found.Declared); err == nil {
				err = fmt.Errorf("sound is not measured yet: %w", objectstore.ErrNotFound)
			}
		}
		return found, err
	}
	// Another request may have stopped at the declared length while we waited for it.
	for range 3 {
		found, err := once(ctx, s, src, key, known, func(ctx context.Context, file string) (Extent, error) {
			return s.extent(ctx, file, worthwhile)
		})
		if errors.Is(err, objectstore.ErrNotFound) && fault.As(err) == nil {
			continue
		}
		if errors.Is(err, errNotMedia) {
			return Extent{}, fault.Invalidf("%s names a file without readable sound", field).WithCause(err)
		}
		return found, src.refusal(err)
	}
	return Extent{}, errBusy
}

// longFile is the declared length from which a file is first priced by its header. Shorter files are read at once,
// which takes at most a second, and get their exact price.
const longFile = time.Hour

// extent measures the sound of a local file.
func (s *Service) extent(ctx context.Context, file string, worthwhile func(time.Duration) error) (Extent, error) {
	declared, err := declaredLength(file)
	if err != nil {
		return Extent{}, err
	}
	if declared > longFile {
		err := worthwhile(declared)
		if f := fault.As(err); f != nil && f.Kind == fault.PaymentRequired {
			return Extent{Declared: declared}, nil
		}
		if err != nil { // it is unknown whether reading on is worthwhile
			return Extent{}, err
		}
	}
	p, err := s.o.Media.ProbeWithin(ctx, file, s.limits)
	if err != nil {
		return Extent{}, blame(err)
	}
	if p.Audio == nil || p.AudioPackets.Packets == 0 {
		return Extent{}, errNotMedia
	}
	share, err := container.PresentShare(file, p.Kind)
	if err != nil {
		return Extent{}, fmt.Errorf("measure sound: %w", err)
	}
	channels := p.Audio.Channels
	if p.Clockless {
		channels = max(2, channels) // the header describes only the first of the joined files
	}
	return Extent{From: p.AudioPackets.First - p.Zero(), To: p.AudioPackets.End - p.Zero(), Claimed: p.ClaimedSound(share),
		SampleRate: p.Audio.SampleRate, Channels: channels}, nil
}

// declaredLength returns the minimum length of a file's sound according to its frames or tables, or 0 if they do not
// state one.
func declaredLength(file string) (time.Duration, error) {
	class, err := container.SniffFile(file)
	if err != nil {
		return 0, err
	}
	switch class.Kind {
	case container.MP3, container.AAC:
		frames, err := container.ReadFrames(file, class.Kind)
		return frames.Duration, err
	case container.MP4:
		tables, err := container.ReadTables(file)
		if errors.Is(err, container.ErrTooManyBoxes) {
			return 0, fmt.Errorf("%w: %w", errExhausted, err)
		}
		if err != nil {
			return 0, err
		}
		var packets, seconds int64
		for _, t := range tables.Tracks {
			packets += t.Packets()
			if n, counted := t.Seconds(); t.Sound && counted {
				seconds = max(seconds, n/2) // packets may hold half of the usual number of samples
			}
		}
		if packets > media.AnalysisLimits.MaxPackets {
			return 0, fmt.Errorf("%w: %d packets", errExhausted, packets)
		}
		return time.Duration(min(seconds, maxSeconds)) * time.Second, nil
	}
	return 0, nil
}

// maxSeconds keeps a declared length within a Duration.
const maxSeconds = 1 << 31
