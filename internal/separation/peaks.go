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

	"cutroom/internal/audio"
	"cutroom/internal/fault"
	"cutroom/internal/media"
	"cutroom/internal/media/container"
	"cutroom/internal/objectstore"
	"cutroom/internal/upstream/separator"
)

// The numbers of points that a waveform may have.
const (
	minPoints     = 100
	maxPoints     = 4000
	DefaultPoints = 1000
)

var errInvalidPoints = fault.New(fault.Invalid, "invalid_points")

// Peaks returns the waveform of a stem in at most so many points, by the stem's
// signed token. The job does not count as collected. If the stem has no peaks, after a
// failure or a job of an earlier release, Peaks makes and stores them.
func (s *Service) Peaks(ctx context.Context, jobID, stemID, token string, points int) (audio.Waveform, error) {
	t, err := s.findStem(ctx, jobID, stemID, token)
	if err != nil {
		return audio.Waveform{}, err
	}
	if points < minPoints || points > maxPoints {
		return audio.Waveform{}, errInvalidPoints
	}
	w, err := s.readPeaks(ctx, t.peaksKey)
	if errors.Is(err, objectstore.ErrNotFound) {
		t.peaksKey = peaksKey(jobID, stemID)
		if err = s.OnDemand.Make(ctx, t.peaksKey, func(ctx context.Context) error { return s.makePeaks(ctx, t) }); err == nil {
			w, err = s.readPeaks(ctx, t.peaksKey)
		}
	}
	if errors.Is(err, objectstore.ErrNotFound) { // removed in the meantime
		return w, ErrNoStem.WithCause(err)
	}
	return w.Coarser(points), err
}

// readPeaks reads stored peaks. The key "" gives objectstore.ErrNotFound.
func (s *Service) readPeaks(ctx context.Context, key string) (w audio.Waveform, err error) {
	if key == "" {
		return w, objectstore.ErrNotFound
	}
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
	return s.deriveFromStem(ctx, t, "peaks", func(dir string, made *stem) (string, error) {
		if err := s.measure(ctx, made); err != nil {
			return "", err
		}
		err := s.storePeaks(ctx, dir, t.jobID, made)
		return made.peaksKey, err
	})
}

// deriveFromStem fetches a stored stem, calls derive to store an object made from it, and
// records that object's key in the stem's row. If the job was removed in the meantime,
// deriveFromStem deletes the object.
func (s *Service) deriveFromStem(ctx context.Context, t storedStem, what string,
	derive func(dir string, made *stem) (key string, err error)) error {
	// The name begins with the job's id, so that erasing the job finds the folder.
	dir, err := os.MkdirTemp(s.WorkDir, t.jobID+"-"+what+"-*")
	if err != nil {
		return fmt.Errorf("create work folder: %w", err)
	}
	defer os.RemoveAll(dir)
	// Keep the stem outside the folder that ffmpeg may write to: it may share its bytes
	// with the store.
	file, work := filepath.Join(dir, "stem"), filepath.Join(dir, "job")
	if err := os.Mkdir(work, 0o700); err != nil {
		return fmt.Errorf("create work folder: %w", err)
	}
	if err := s.Store.Fetch(ctx, t.key, file); err != nil {
		return fmt.Errorf("fetch stem: %w", err)
	}
	class, err := container.SniffFile(file)
	if err != nil {
		return err
	}
	key, err := derive(work, &stem{id: t.stemID, Stem: separator.Stem{Path: file, Kind: class.Kind}})
	if err != nil {
		return err
	}
	n, err := s.db.Exec(ctx, `UPDATE separation_stems SET `+what+`_key = $3 WHERE job_id = $1 AND stem_id = $2
		AND EXISTS (SELECT 1 FROM separation_jobs j WHERE j.id = $1 AND `+readable+`)`, t.jobID, t.stemID, key)
	if err != nil {
		return fmt.Errorf("note %s: %w", what, err)
	}
	if n == 0 {
		return s.Store.Delete(ctx, key)
	}
	return nil
}

// addPeaks draws and stores the waveforms of measured stems. A waveform that fails does
// not fail the job: Peaks makes it on request.
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
	key, file := peaksKey(jobID, t.id), filepath.Join(dir, t.id+".peaks")
	if err := os.WriteFile(file, b, 0o600); err != nil {
		return fmt.Errorf("write peaks: %w", err)
	}
	if err := s.Store.Put(ctx, key, file, objectstore.ContentType(key)); err != nil {
		return fmt.Errorf("store peaks: %w", err)
	}
	t.peaksKey = key
	return nil
}

// drawTimeout bounds the decoding of one stem, which runs hundreds of times faster
// than it plays.
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
