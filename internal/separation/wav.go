package separation

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"cutroom/internal/derived"
	"cutroom/internal/fault"
	"cutroom/internal/media"
	"cutroom/internal/objectstore"
)

// formatWAV asks for a stem as WAV instead of its stored format, "".
const formatWAV = "wav"

var errFormat = fault.Invalidf("format must be wav or absent")

// openWAV opens the WAV file with the samples of a stem, which is made at first use.
func (s *Service) openWAV(ctx context.Context, t storedStem) (objectstore.Object, error) {
	key := wavKey(t.jobID, t.stemID)
	return derived.Get(ctx, s.OnDemand, t.jobID, key, func() (objectstore.Object, error) { return s.Store.Open(ctx, key) },
		func(ctx context.Context) error { return s.makeWAV(ctx, t, key) })
}

// wavGrowth is how many times the stem's size making its WAV file takes on disk, with a
// copy of the stem. Speech in FLAC has a third of the size of its samples.
const wavGrowth = 4

func (s *Service) makeWAV(ctx context.Context, t storedStem, key string) error {
	return s.deriveFromStem(ctx, t, "wav", key, wavGrowth*t.sizeBytes, func(ctx context.Context, dir string, stored *stem) (int64, error) {
		probe, err := s.Media.Probe(ctx, stored.Path)
		if err != nil {
			return 0, fmt.Errorf("probe stem: %w", err)
		}
		if probe.Audio == nil {
			return 0, errEmptyStem
		}
		file := filepath.Join(dir, "stem.wav")
		args := append([]string{"-vn", "-sn", "-dn"}, media.InputArgs(stored.Kind, stored.Path)...)
		args = append(args, "-map", fmt.Sprintf("0:%d", probe.Audio.Index), "-map_metadata", "-1", "-bitexact", "-c:a",
			pcmCodec(probe.Audio.BitDepth), "-f", "wav", "file:"+file)
		if _, err := s.Media.Encode(ctx, media.Pass{Name: "decode " + t.stemID, Args: args, Dir: dir,
			Inputs: []string{stored.Path}, Timeout: drawTimeout}); err != nil {
			return 0, err
		}
		if err := s.Store.Put(ctx, key, file, objectstore.ContentType(key)); err != nil {
			return 0, fmt.Errorf("store wav: %w", err)
		}
		info, err := os.Stat(file)
		if err != nil {
			return 0, fmt.Errorf("count wav: %w", err)
		}
		return info.Size(), nil
	})
}

// pcmCodec is the encoder that keeps samples of so many bits. Lossy sound has no bit
// depth and gets 16.
func pcmCodec(bits int) string {
	switch {
	case bits > 24:
		return "pcm_s32le"
	case bits > 16:
		return "pcm_s24le"
	}
	return "pcm_s16le"
}
