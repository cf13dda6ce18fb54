// The end of a job that the provider has finished: the stems are downloaded, measured, converted and stored, and the
// job is READY.

package separation

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"cutroom/internal/base/db"
	"cutroom/internal/film/media"
	"cutroom/internal/film/media/container"
	"cutroom/internal/storage/disk"
	"cutroom/internal/storage/objectstore"
	"cutroom/internal/upstream/separator"
	"cutroom/internal/work/job"
)

// encodeTimeout bounds one conversion of a stem; it runs hundreds of times faster than the audio plays.
const encodeTimeout = 10 * time.Minute

// stem is a stem file of a job on its way into the store.
type stem struct {
	id string
	separator.Stem
	audio      *media.Measured
	sha256     string
	sizeBytes  int64
	durationMs int64
	peaksKey   string // "" if they could not be made
}

func (t stem) ext() string { return t.Kind.AudioExt() }

// collect fetches the stems of a finished project, stores them and makes the job READY. Everything before the last
// transaction may be repeated.
func (s *Service) collect(ctx context.Context, j *claimedJob, dir string) error {
	var got separator.Stems
	err := s.untilAnswered(ctx, j, func() (err error) {
		got, err = s.Provider.Download(ctx, j.ProjectID.Int64, dir)
		return err
	})
	if err != nil {
		return fmt.Errorf("download stems: %w", err)
	}
	sent, err := s.measureAll(ctx, got)
	if err != nil {
		return err
	}
	if got.Voice.Path == "" {
		sum, err := s.toFLAC(ctx, dir, stemVoice, sent[:len(got.Speakers)])
		if err != nil {
			return fmt.Errorf("sum speakers: %w", err)
		}
		sent = slices.Insert(sent, 0, sum)
	}
	var stems []stem
	for i, t := range sent {
		err := s.prepare(ctx, dir, &t)
		if errors.Is(err, errEmptyStem) && i > 0 {
			s.jobs.AttemptLog(j.Claim).Warn("separation provider sent a stem without sound", "stem", t.id)
			continue
		}
		if err != nil {
			return fmt.Errorf("prepare %s: %w", t.id, err)
		}
		stems = append(stems, t)
	}
	if length := stems[0].durationMs; !j.covers(length) {
		s.jobs.AttemptLog(j.Claim).Warn("stems are longer than what was paid for", "stem_ms", length, "source_ms",
			j.DurationMs, "credits", j.Credits)
	}
	for _, t := range stems {
		if err := job.Retry(ctx, func() error {
			return s.Store.Put(ctx, stemKey(j.ID, t.id, t.ext()), t.Path, objectstore.ContentType("."+t.ext()))
		}); err != nil {
			return fmt.Errorf("store %s: %w", t.id, err)
		}
	}
	if err := s.addPeaks(ctx, j, dir, stems); err != nil {
		return err
	}
	if err := s.ready(ctx, j, stems); err != nil {
		return err
	}
	j.State = StateReady
	s.dropSource(context.WithoutCancel(ctx), j.SourceKey)
	return nil
}

// measureAll measures what the provider sent, in the order of the stems. A stem that cannot be read is the provider's
// fault.
func (s *Service) measureAll(ctx context.Context, got separator.Stems) ([]stem, error) {
	stems := []stem{{id: stemVoice, Stem: got.Voice}}
	for i, f := range got.Speakers {
		stems = append(stems, stem{id: speakerPrefix + strconv.Itoa(i), Stem: f})
	}
	stems = append(stems, stem{id: stemBackground, Stem: got.Background})
	stems = slices.DeleteFunc(stems, func(t stem) bool { return t.Path == "" })
	for i, t := range stems {
		audio, err := s.audioOf(ctx, t.Stem)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err != nil {
			return nil, fmt.Errorf("measure %s: %w: %w", t.id, errProviderFailed, err)
		}
		stems[i].audio = audio
	}
	return stems, nil
}

// ready writes the stems and moves PROCESSING to READY.
func (s *Service) ready(ctx context.Context, j *claimedJob, stems []stem) error {
	var bytes int64
	for _, t := range stems {
		bytes += t.sizeBytes
	}
	return s.jobs.Complete(ctx, j.Claim, job.Completion{State: StateReady, StoredBytes: bytes,
		Set: job.SQL(`actual_duration_ms = $1`, stems[0].durationMs),
		Write: func(ctx context.Context, tx *db.Tx) error {
			for i, t := range stems {
				if _, err := tx.Exec(ctx,
					`INSERT INTO separation_stems (job_id, stem_id, ordinal, object_key, content_type, size_bytes, duration_ms, sha256, peaks_key)
					VALUES ($1, $2, $3, $4, $5, $6, $7, $8, NULLIF($9, ''))`, j.ID, t.id, i, stemKey(j.ID, t.id, t.ext()),
					objectstore.ContentType("."+t.ext()), t.sizeBytes, t.durationMs, t.sha256, t.peaksKey); err != nil {
					return fmt.Errorf("insert stem: %w", err)
				}
			}
			return nil
		}})
}

// losslessInFLAC are the WAV codecs that FLAC stores without loss. It would clip floating-point samples above full
// scale, which the stems of a loud mix have.
var losslessInFLAC = []string{"pcm_u8", "pcm_s16le", "pcm_s24le"}

// prepare converts PCM to FLAC, which is half the size, if that loses nothing. It leaves any other file as it is.
func (s *Service) prepare(ctx context.Context, dir string, t *stem) (err error) {
	if t.durationMs = t.audio.Duration().Milliseconds(); t.durationMs <= 0 {
		return errEmptyStem
	}
	if t.Kind == container.WAV && slices.Contains(losslessInFLAC, t.audio.Codec) {
		converted, err := s.toFLAC(ctx, dir, t.id, []stem{*t})
		if err != nil {
			return err
		}
		t.Stem, t.audio = converted.Stem, converted.audio
	}
	t.sha256, t.sizeBytes, err = disk.Digest(ctx, t.Path)
	return err
}

// audioOf measures the first audio stream of a file.
func (s *Service) audioOf(ctx context.Context, file separator.Stem) (*media.Measured, error) {
	all, err := s.Media.Measure(ctx, file.Path, file.Kind, media.MeasureOptions{})
	if err != nil {
		return nil, err
	}
	for _, m := range all {
		if m.Type == "audio" && m.Codec != "" && m.SampleRate > 0 {
			return &m, nil
		}
	}
	return nil, errors.New("no audio stream")
}

// errEmptyStem is a stem without a single sample.
var errEmptyStem = fmt.Errorf("%w: no sound", errProviderFailed)

// maxShort is how much shorter than its PCM a converted stem may be, because a resampler rounds. It is shorter than a
// frame of FLAC, so a missing frame is noticed.
const maxShort = 10 * time.Millisecond

// toFLAC encodes one stem, or the plain sum of several. Samples of 16 bits stay 16 bits; everything else becomes 24.
// The provider is not to blame if that fails: the stems were readable.
func (s *Service) toFLAC(ctx context.Context, dir, name string, stems []stem) (stem, error) {
	out := stem{id: name, Stem: separator.Stem{Path: filepath.Join(dir, name+".flac"), Kind: container.FLAC}}
	var args, inputs []string
	format, lossless, longest := "s16", true, time.Duration(0)
	for _, t := range stems {
		if t.audio.Codec != "pcm_s16le" {
			format = "s32"
		}
		lossless, longest = lossless && strings.HasPrefix(t.audio.Codec, "pcm_"), max(longest, t.audio.Duration())
		args = append(args, media.InputArgs(t.Kind, t.Path)...)
		inputs = append(inputs, t.Path)
	}
	if len(stems) == 1 {
		args = append(args, "-map", "0:a:0")
	} else {
		// Without normalize=0 amix divides by the number of inputs, and the voice would come out quieter.
		graph := fmt.Sprintf("amix=inputs=%d:normalize=0:duration=longest", len(stems))
		args = append(args, "-filter_complex", graph)
	}
	// ffmpeg exits with status 0 if the disk fills up while it closes the file, so let it write each packet at once.
	args = append(args, "-map_metadata", "-1", "-c:a", "flac", "-sample_fmt", format, "-flush_packets", "1", "-f", "flac", "file:"+out.Path)
	_, err := s.Media.Encode(ctx, media.Pass{Name: "stem to flac", Args: args, Dir: dir, Inputs: inputs, Timeout: encodeTimeout})
	if err != nil {
		return out, err
	}
	if out.audio, err = s.audioOf(ctx, out.Stem); err != nil {
		return out, fmt.Errorf("converted stem: %w", err)
	}
	if short := longest - out.audio.Duration(); lossless && short > maxShort {
		return out, fmt.Errorf("converted stem: %v of sound are missing", short)
	}
	return out, nil
}
