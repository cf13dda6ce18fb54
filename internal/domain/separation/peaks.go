// The files derived from a stem: its waveform, drawn when the job ends, and its WAV file, made on the first request.

package separation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"cutroom/internal/base/db"
	"cutroom/internal/base/fault"
	"cutroom/internal/film/audio"
	"cutroom/internal/film/media"
	"cutroom/internal/film/media/container"
	"cutroom/internal/storage/objectstore"
	"cutroom/internal/upstream/separator"
	"cutroom/internal/work/derived"
	"cutroom/internal/work/job"
)

var errInvalidPoints = fault.New(fault.Invalid, "invalid_points")

// Peaks finds a stem by its signed token and returns its waveform with at most the given number of points. The job does
// not count as collected. If the stem has no peaks after a failure, Peaks makes and stores them.
func (s *Service) Peaks(ctx context.Context, jobID, stemID, token string, points int) (audio.Waveform, error) {
	t, err := s.findStem(ctx, jobID, stemID, token)
	if err != nil {
		return audio.Waveform{}, err
	}
	if points < audio.MinPoints || points > audio.MaxPoints {
		return audio.Waveform{}, errInvalidPoints
	}
	key := stemKey(jobID, stemID, "peaks")
	w, err := derived.Get(ctx, s.OnDemand, jobID, key, func() (audio.Waveform, error) { return s.readPeaks(ctx, key) },
		func(ctx context.Context) error { return s.makePeaks(ctx, t) })
	if errors.Is(err, objectstore.ErrNotFound) { // removed in the meantime
		return w, ErrNoStem.WithCause(err)
	}
	return w.Coarser(points), err
}

func (s *Service) readPeaks(ctx context.Context, key string) (w audio.Waveform, err error) {
	obj, err := s.Store.Open(ctx, key)
	if err != nil {
		return w, fmt.Errorf("open peaks: %w", err)
	}
	defer obj.Close()
	b, err := io.ReadAll(obj)
	if err == nil {
		err = w.UnmarshalBinary(b)
	}
	if err != nil {
		return w, fmt.Errorf("read peaks: %w", err)
	}
	return w, nil
}

// makePeaks draws a stored stem and records the peaks in its row.
func (s *Service) makePeaks(ctx context.Context, t storedStem) error {
	return s.deriveFromStem(ctx, t, "peaks", t.sizeBytes, func(dir string, stored *stem) (_ int64, err error) {
		if stored.audio, err = s.audioOf(ctx, stored.Stem); err != nil {
			return 0, err
		}
		return 0, s.storePeaks(ctx, dir, t.jobID, stored)
	})
}

// deriveFromStem makes an object from a stored stem, and records its key and, for a WAV file, the bytes that count
// against the limit of the job's owner.
func (s *Service) deriveFromStem(ctx context.Context, t storedStem, what string, bytes int64,
	derive func(dir string, stored *stem) (counted int64, err error)) error {
	key, counted := stemKey(t.jobID, t.stemID, what), int64(0)
	return derived.Recipe{Store: s.Store, Space: s.OnDemand.Space, Bytes: bytes, Source: t.key, Key: key,
		Folder: filepath.Join(s.WorkDir, t.jobID+"-"+what+"-*"),
		Make: func(source, dir string) error {
			class, err := container.SniffFile(source)
			if err != nil {
				return err
			}
			counted, err = derive(dir, &stem{id: t.stemID, Stem: separator.Stem{Path: source, Kind: class.Kind}})
			return err
		},
		Note: func() (rows int64, err error) {
			err = s.DB.InTx(ctx, func(tx *db.Tx) error {
				rows = 0
				if ok, err := keepStems(ctx, tx, t.jobID); err != nil || !ok {
					return err
				}
				if rows, err = tx.Exec(ctx, `UPDATE separation_stems SET `+what+`_key = $3,
					wav_size_bytes = CASE WHEN CAST($4 AS BIGINT) > 0 THEN $4 ELSE wav_size_bytes END
					WHERE job_id = $1 AND stem_id = $2`, t.jobID, t.stemID, key, counted); err != nil {
					return err
				}
				var bytes int64
				if err := tx.QueryRow(ctx, `SELECT CAST(SUM(size_bytes + wav_size_bytes) AS BIGINT)
					FROM separation_stems WHERE job_id = $1`, t.jobID).Scan(&bytes); err != nil {
					return err
				}
				return job.CountBytes(ctx, tx, t.jobID, bytes)
			})
			return rows, err
		}}.Run(ctx)
}

// addPeaks draws and stores the waveforms of measured stems. A waveform that fails does not fail the job: Peaks makes
// it on request.
func (s *Service) addPeaks(ctx context.Context, j *claimedJob, dir string, stems []stem) error {
	for i := range stems {
		err := s.storePeaks(ctx, dir, j.ID, &stems[i])
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			s.jobs.AttemptLog(j.Claim).Warn("peaks not made; they will be when asked for", "stem", stems[i].id, "err", err)
		}
	}
	return nil
}

// storePeaks draws and stores the waveform of a measured stem.
func (s *Service) storePeaks(ctx context.Context, dir, jobID string, t *stem) error {
	w, err := s.draw(ctx, t)
	if err != nil {
		return fmt.Errorf("draw peaks: %w", err)
	}
	b, err := w.MarshalBinary()
	if err != nil {
		return err
	}
	key, file := stemKey(jobID, t.id, "peaks"), filepath.Join(dir, t.id+".peaks")
	if err := os.WriteFile(file, b, 0o600); err != nil {
		return fmt.Errorf("write peaks: %w", err)
	}
	if err := s.Store.Put(ctx, key, file, objectstore.ContentType(key)); err != nil {
		return fmt.Errorf("store peaks: %w", err)
	}
	t.peaksKey = key
	return nil
}

// drawTimeout bounds the decoding of one stem, which runs hundreds of times faster than it plays.
const drawTimeout = 5 * time.Minute

func (s *Service) draw(ctx context.Context, t *stem) (audio.Waveform, error) {
	rate, channels := int(t.audio.SampleRate), int(max(1, t.audio.Channels))
	d := audio.NewWaveformDrawer(rate, channels)
	args := append([]string{"-vn", "-sn", "-dn"}, media.InputArgs(t.Kind, t.Path)...)
	args = append(args, "-map", "0:a:0", "-c:a", "pcm_s16le", "-ar", strconv.Itoa(rate), "-ac", strconv.Itoa(channels),
		"-f", "s16le", "pipe:1")
	_, err := s.Media.Encode(ctx, media.Pass{Name: "draw " + t.id, Args: args, Inputs: []string{t.Path}, Stdout: d, Timeout: drawTimeout})
	if err != nil {
		return audio.Waveform{}, err
	}
	w := d.Waveform()
	if w.Len() == 0 {
		return w, errEmptyStem
	}
	return w, nil
}

// formatWAV asks for a stem as WAV instead of its stored format, "".
const formatWAV = "wav"

var errFormat = fault.Invalidf("format must be wav or absent")

// openWAV opens the WAV file with the samples of a stem. The file is made on first use.
func (s *Service) openWAV(ctx context.Context, t storedStem) (objectstore.Object, error) {
	key := stemKey(t.jobID, t.stemID, "wav")
	return derived.Get(ctx, s.OnDemand, t.jobID, key, func() (objectstore.Object, error) { return s.Store.Open(ctx, key) },
		func(ctx context.Context) error { return s.makeWAV(ctx, t, key) })
}

// maxWAV is the maximum size of a WAV file in bytes. A larger file would need RF64 (EBU Tech 3306) to state its length.
const maxWAV = 4<<30 - 1<<20

func (s *Service) makeWAV(ctx context.Context, t storedStem, key string) error {
	return s.deriveFromStem(ctx, t, "wav", t.sizeBytes, func(dir string, stored *stem) (int64, error) {
		probe, err := s.Media.Probe(ctx, stored.Path)
		if err != nil {
			return 0, fmt.Errorf("probe stem: %w", err)
		}
		if probe.Audio == nil {
			return 0, errEmptyStem
		}
		codec, sample := "pcm_s16le", int64(2) // also for lossy sound, which has no bit depth
		switch bits := probe.Audio.BitDepth; {
		case bits > 24:
			codec, sample = "pcm_s32le", 4
		case bits > 16:
			codec, sample = "pcm_s24le", 3
		}
		// The stem's own size says little: silence takes next to nothing in FLAC.
		bytes := (t.durationMs + 1) * int64(probe.Audio.SampleRate) / 1000 * int64(probe.Audio.Channels) * sample
		if err := s.Quota.CheckStored(ctx, s.DB, t.owner, bytes); err != nil {
			return 0, err
		}
		release, err := s.OnDemand.Space.Reserve(ctx, bytes)
		if err != nil {
			return 0, err
		}
		defer release()
		file := filepath.Join(dir, "stem.wav")
		args := append([]string{"-vn", "-sn", "-dn"}, media.InputArgs(stored.Kind, stored.Path)...)
		args = append(args, "-map", fmt.Sprintf("0:%d", probe.Audio.Index), "-map_metadata", "-1", "-bitexact", "-c:a", codec)
		if bytes > maxWAV {
			args = append(args, "-rf64", "auto")
		}
		args = append(args, "-f", "wav", "file:"+file)
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
