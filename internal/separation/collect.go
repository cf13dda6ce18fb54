package separation

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"cutroom/internal/db"
	"cutroom/internal/disk"
	"cutroom/internal/job"
	"cutroom/internal/media"
	"cutroom/internal/media/container"
	"cutroom/internal/objectstore"
	"cutroom/internal/upstream/separator"
)

// encodeTimeout bounds one conversion of a stem; it runs hundreds of times
// faster than the audio plays.
const encodeTimeout = 10 * time.Minute

// stem is a stem file of a job on its way into the store.
type stem struct {
	id, path, ext string
	sha256        string
	sizeBytes     int64
	durationMs    int64
}

// collect fetches the stems of a finished project, stores them and makes the
// job READY. Everything before the last transaction may be repeated.
func (s *Service) collect(ctx context.Context, j *claimedJob, dir string) error {
	var got separator.Stems
	err := s.untilAnswered(ctx, j, func() (err error) {
		got, err = s.Provider.Download(ctx, j.ProjectID.Int64, dir)
		return err
	})
	if err != nil {
		return fmt.Errorf("download stems: %w", err)
	}
	if got.Voice == "" && len(got.Speakers) == 0 {
		return errNoVoice
	}
	if got.Voice == "" {
		if got.Voice, err = s.sumSpeakers(ctx, dir, got.Speakers); err != nil {
			return err
		}
	}
	stems := []stem{{id: stemVoice, path: got.Voice}}
	for i, p := range got.Speakers {
		stems = append(stems, stem{id: speakerPrefix + strconv.Itoa(i), path: p})
	}
	if got.Background != "" {
		stems = append(stems, stem{id: stemBackground, path: got.Background})
	}
	for i := range stems {
		err := s.prepare(ctx, dir, &stems[i])
		if errors.Is(err, errEmptyStem) && i > 0 {
			s.jobLog(*j).Warn("separation provider sent a stem without sound", "stem", stems[i].id)
			continue
		}
		if err != nil {
			return fmt.Errorf("prepare %s: %w", stems[i].id, err)
		}
	}
	if length := stems[0].durationMs; !j.covers(length) {
		s.jobLog(*j).Warn("stems are longer than what was paid for", "stem_ms", length, "source_ms", j.DurationMs, "credits", j.Credits)
	}
	stems = slices.DeleteFunc(stems, func(t stem) bool { return t.durationMs == 0 })
	for _, t := range stems {
		if err := retry(ctx, func() error {
			return s.Store.Put(ctx, stemKey(j.ID, t.id, t.ext), t.path, objectstore.ContentType("."+t.ext))
		}); err != nil {
			return fmt.Errorf("store %s: %w", t.id, err)
		}
	}
	if err := retry(ctx, func() error { return s.ready(ctx, j, stems) }); err != nil {
		return err
	}
	j.State = StateReady
	s.dropSource(context.WithoutCancel(ctx), j.SourceKey)
	return nil
}

// ready writes the stems and moves PROCESSING to READY.
func (s *Service) ready(ctx context.Context, j *claimedJob, stems []stem) error {
	return s.db.InTx(ctx, func(tx *db.Tx) error {
		err := job.Guarded(ctx, tx, `UPDATE separation_jobs SET state = 'READY', progress = 100,
				actual_duration_ms = $3, ready_at = now_ms(), finished_at = now_ms(), replica = lease_owner, lease_owner = NULL, lease_until = NULL
			WHERE id = $1 AND fence = $2 AND state = 'PROCESSING'`, j.ID, j.Fence, stems[0].durationMs)
		if err != nil {
			return err
		}
		for i, t := range stems {
			if _, err := tx.Exec(ctx, `INSERT INTO separation_stems (job_id, stem_id, ordinal, object_key, content_type, size_bytes, duration_ms, sha256)
				VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`, j.ID, t.id, i, stemKey(j.ID, t.id, t.ext),
				objectstore.ContentType("."+t.ext), t.sizeBytes, t.durationMs, t.sha256); err != nil {
				return fmt.Errorf("insert stem: %w", err)
			}
		}
		return tx.Notify(ctx, topic)
	})
}

// extensions of what the provider may send, by content.
var stemExtensions = map[container.Kind]string{
	container.MP4: "m4a", container.MP3: "mp3", container.FLAC: "flac", container.Ogg: "ogg",
	container.AAC: "aac", container.Matroska: "webm",
}

// prepare turns PCM into FLAC, which is lossless and half the size, leaves
// anything else byte for byte as it came, and measures the result.
func (s *Service) prepare(ctx context.Context, dir string, t *stem) error {
	class, err := container.SniffFile(t.path)
	if err != nil {
		return err
	}
	kind := class.Kind
	if kind == container.WAV {
		flac := filepath.Join(dir, t.id+".flac")
		if err := s.toFLAC(ctx, dir, []string{t.path}, flac); err != nil {
			return err
		}
		t.path, kind = flac, container.FLAC
	}
	var ok bool
	if t.ext, ok = stemExtensions[kind]; !ok {
		return fmt.Errorf("%w: not audio", errProviderFailed)
	}
	sound, err := s.stemSound(ctx, t.path, kind)
	if err != nil {
		return err
	}
	if t.durationMs = sound.Duration().Milliseconds(); t.durationMs <= 0 {
		t.durationMs = 0
		return errEmptyStem
	}
	t.sha256, t.sizeBytes, err = disk.Digest(ctx, t.path)
	return err
}

// stemSound measures the sound of a file that the provider sent.
func (s *Service) stemSound(ctx context.Context, path string, kind container.Kind) (media.Measured, error) {
	all, err := s.Media.Measure(ctx, path, kind, media.MeasureOptions{})
	if err != nil {
		return media.Measured{}, providerMedia(ctx, err)
	}
	for _, m := range all {
		if m.Type == "audio" && m.Codec != "" && m.SampleRate > 0 {
			return m, nil
		}
	}
	return media.Measured{}, fmt.Errorf("%w: no audio stream", errProviderFailed)
}

// errEmptyStem is a stem without a single sample.
var errEmptyStem = fmt.Errorf("%w: no sound", errProviderFailed)

// providerMedia blames the provider for a stem that cannot be read, unless it
// is the service that stops.
func providerMedia(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return errors.Join(errProviderFailed, err)
}

// sumSpeakers adds the speakers up to the voice that the provider did not send.
func (s *Service) sumSpeakers(ctx context.Context, dir string, speakers []string) (string, error) {
	sum := filepath.Join(dir, "voice-sum.flac")
	if err := s.toFLAC(ctx, dir, speakers, sum); err != nil {
		return "", fmt.Errorf("sum speakers: %w", err)
	}
	return sum, nil
}

// toFLAC encodes one input, or the plain sum of several, losslessly. Samples of
// 16 bits stay 16 bits; everything else becomes 24.
func (s *Service) toFLAC(ctx context.Context, dir string, inputs []string, out string) error {
	args := []string{}
	wide := false
	for _, in := range inputs {
		class, err := container.SniffFile(in)
		if err != nil {
			return err
		}
		sound, err := s.stemSound(ctx, in, class.Kind)
		if err != nil {
			return err
		}
		wide = wide || sound.Codec != "pcm_s16le"
		args = append(args, media.InputArgs(class.Kind, in)...)
	}
	if len(inputs) == 1 {
		args = append(args, "-map", "0:a:0")
	} else {
		// normalize=0: amix otherwise divides by the input count, and the
		// voice would come out quieter than it was.
		graph := fmt.Sprintf("amix=inputs=%d:normalize=0:duration=longest", len(inputs))
		args = append(args, "-filter_complex", graph)
	}
	format := "s16"
	if wide {
		format = "s32"
	}
	args = append(args, "-map_metadata", "-1", "-c:a", "flac", "-sample_fmt", format, "-f", "flac", "file:"+out)
	_, err := s.Media.Encode(ctx, media.Pass{Name: "stem to flac", Args: args, Dir: dir, Inputs: inputs, Timeout: encodeTimeout})
	var exit *media.ExitError
	if errors.As(err, &exit) {
		return providerMedia(ctx, err)
	}
	return err
}
