package separation

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"cutroom/internal/asset"
	"cutroom/internal/media"
	"cutroom/internal/media/container"
	"cutroom/internal/objectstore"
)

const (
	// headBytes is how much of the beginning of an asset is fetched first. It holds the
	// index of most videos, or their first packets.
	headBytes = 2 << 20
	// maxOutline is more than head and outline of an mp4 together.
	maxOutline = 48 << 20
	// minSaving is how many times smaller than the asset the fetched parts must be.
	minSaving = 2
)

// fetchStretch fetches only the parts of an asset that are needed to decode a stretch of
// its sound: the index, and the packets that the index names. The decoded samples are
// the same as those of the whole file. The error is asset.ErrWhole if that is impossible or
// saves too little.
func (s *Service) fetchStretch(ctx context.Context, path string, ref Reference, made *newJob) (stretch, error) {
	if err := s.room(ctx, maxOutline); err != nil {
		return stretch{}, err
	}
	part, err := s.Assets.OpenPartial(ctx, made.used[0], path)
	if err != nil {
		return stretch{}, err
	}
	found, err := s.fillStretch(ctx, part, path, ref, made)
	if err = errors.Join(err, part.Close()); errors.Is(err, asset.ErrWhole) {
		err = errors.Join(err, os.Remove(path))
	}
	return found, err
}

func (s *Service) fillStretch(ctx context.Context, part *asset.Partial, path string, ref Reference, made *newJob) (stretch, error) {
	size := made.used[0].SizeBytes
	if err := part.Fetch(objectstore.Span{To: min(size, headBytes)}); err != nil {
		return stretch{}, err
	}
	outline, err := container.Outline(part, size)
	if errors.Is(err, container.ErrDamaged) {
		return stretch{}, whole(err)
	}
	if err == nil {
		err = part.Fetch(spansOf(outline)...)
	}
	if err != nil {
		return stretch{}, err
	}
	// ffprobe needs the first packets, too. If they were missing, fetch them and probe
	// again.
	for range 2 {
		probe, err := s.probe(ctx, made.owner, path, true)
		switch {
		case errors.Is(err, media.ErrNotMedia):
			return stretch{}, whole(err)
		case err != nil:
			return stretch{}, assetRefused(err)
		case mute(path):
			return stretch{}, errSilentAsset
		case !locatable(probe):
			return stretch{}, whole(nil)
		}
		if first := spansOf([]container.Span{probe.AudioPackets.Runs[0].Bytes}); !part.Has(first[0]) {
			if err := part.Fetch(first...); err != nil {
				return stretch{}, err
			}
			continue
		}
		found, err := s.plan(ctx, made.owner, probe, ref)
		if err != nil {
			return stretch{}, err
		}
		spans := spansOf(probe.SoundSpans(found.window))
		cost := part.Cost(spans...)
		if cost > size/minSaving {
			return stretch{}, whole(fmt.Errorf("%d bytes of it are needed", cost))
		}
		if err := s.room(ctx, cost); err != nil {
			return stretch{}, err
		}
		return found, part.Fetch(spans...)
	}
	return stretch{}, whole(nil)
}

// mute reports whether the index of an mp4 declares no audio track.
func mute(path string) bool {
	index, err := container.ReadTables(path)
	return err == nil && !index.Compressed && !slices.ContainsFunc(index.Tracks, func(t container.SampleTable) bool { return t.Sound })
}

// locatable reports whether the index alone gives the place of every audio packet: the
// demuxer must not need their content to find where one ends.
func locatable(p media.Probe) bool {
	return p.Audio != nil && len(p.AudioPackets.Runs) > 0 &&
		(p.Audio.Codec == "aac" || p.Audio.Codec == "alac" || strings.HasPrefix(p.Audio.Codec, "pcm_"))
}

func whole(cause error) error {
	if cause == nil {
		return asset.ErrWhole
	}
	return fmt.Errorf("%w: %w", asset.ErrWhole, cause)
}

func spansOf(spans []container.Span) []objectstore.Span {
	all := make([]objectstore.Span, len(spans))
	for i, s := range spans {
		all[i] = objectstore.Span(s)
	}
	return all
}
