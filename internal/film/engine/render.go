// One run of a render from start to finish: analyse, plan, make the parts, join and mix. It also decides which failures
// are the file's fault.

package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"cutroom/internal/base/fault"
	"cutroom/internal/film/media"
)

// Raise infoVersion when the analysis of the same file gives a different result.
const infoVersion = 9

// Render makes the film. It returns after every process it started has ended.
//
// The error is a *fault.Error if the client's media or timeline is to blame (or the disk is full), wraps ctx's cause if
// ctx ended, and is internal otherwise. Rendering the same job again after an interruption continues from the parts in
// the cache and gives the same film.
func (e *Engine) Render(ctx context.Context, job Job) (Output, error) {
	r := e.newRun(job)
	defer r.close()
	out, err := r.render(ctx)
	if err != nil && ctx.Err() != nil && fault.As(err) == nil {
		return Output{}, fmt.Errorf("render: %w", context.Cause(ctx))
	}
	return out, err
}

// run is one run of Render or Assist.
type run struct {
	*Engine
	job   Job
	log   *slog.Logger
	work  string // folder of the intermediate files, see close
	meter *meter
	plan  *Plan
	stats Stats
}

func (e *Engine) newRun(job Job) *run {
	return &run{Engine: e, job: job, log: cmp.Or(job.Log, slog.New(slog.DiscardHandler)), work: filepath.Join(job.Dir, "work"),
		meter: &meter{notify: job.OnProgress, shown: -1}}
}

// close removes the intermediate files and releases their disk space.
func (r *run) close() {
	os.RemoveAll(r.work)
	r.scratch.release(r.work)
}

func (r *run) path(name string) string { return filepath.Join(r.work, name) }

// open empties the working folder and plans.
func (r *run) open(ctx context.Context) error {
	// Never write into the files of an earlier attempt: they may be hard links to the cache.
	if err := os.RemoveAll(r.work); err != nil {
		return fmt.Errorf("render: %w", err)
	}
	if err := os.MkdirAll(r.work, 0o750); err != nil {
		return fmt.Errorf("render: %w", noSpace(err))
	}
	sources, err := r.analyseAll(ctx)
	if err != nil {
		return err
	}
	r.plan, err = makePlan(r.job.Timeline, sources, r.cfg.Limits, r.machine())
	return err
}

func (r *run) render(ctx context.Context) (Output, error) {
	begin := time.Now()
	if err := r.open(ctx); err != nil {
		return Output{}, err
	}
	r.stats.Analyse = time.Since(begin)
	if r.job.OnPlanned != nil {
		r.job.OnPlanned(framesDuration(r.plan.Frames, r.plan.Canvas.Rate))
	}

	begin = time.Now()
	if err := r.makeParts(ctx); err != nil {
		return Output{}, err
	}
	r.stats.Parts = time.Since(begin)

	begin = time.Now()
	out, err := r.final(ctx)
	r.stats.Final = time.Since(begin)
	out.Stats = r.stats
	return out, err
}

// analyseAll analyses every distinct content of the job once. It returns the sources by their timeline keys.
func (r *run) analyseAll(ctx context.Context) (map[string]*Source, error) {
	byKey, byContent := map[string]*Source{}, map[string]*Source{}
	for _, u := range uses(r.job.Timeline) {
		s := r.job.Sources[u.key]
		if s.SHA256 == "" {
			return nil, fmt.Errorf("render: no file and digest for source %q", u.key)
		}
		if byContent[s.SHA256] == nil {
			s.user = u.name
			byContent[s.SHA256] = &s
		}
		byKey[u.key] = byContent[s.SHA256]
	}
	return byKey, each(ctx, r.cfg.Cores, slices.Collect(maps.Values(byContent)), r.analyse)
}

// analyse sets a source's analysis, which it makes unless the cache has it.
func (r *run) analyse(ctx context.Context, s *Source) error {
	key := newKey(kindInfo).add("version", infoVersion).add("source", s.SHA256).String() + ".json"
	s.info = &Info{}
	if r.fetchJSON(ctx, key, s.info) {
		return nil
	}
	var err error
	s.info, err = analyse(ctx, r.cfg.Media, s.Path)
	large, tooLarge := errors.AsType[*media.PictureError](err)
	sound, wrongSound := errors.AsType[*media.SoundError](err)
	switch {
	case err == nil:
		return r.keepJSON(ctx, key, s.info)
	case tooLarge:
		return r.cfg.Limits.tooManyPixels(s.user, large.Width, large.Height).WithCause(err)
	case errors.Is(err, media.ErrTimeout):
		return r.blame(ctx, err, s.user, nil)
	case errors.Is(err, media.ErrEncrypted):
		return fault.Failedf(fault.SourceProtected, "%s: the file is encrypted", s.user).WithCause(err)
	case wrongSound:
		return fault.Failedf(fault.SourceUnreadable, "%s: the file %s", s.user, sound.Reason).WithCause(err)
	case errors.Is(err, media.ErrNotMedia):
		return fault.Failedf(fault.SourceUnreadable, "%s: the file is not a video or sound that can be opened", s.user).WithCause(err)
	}
	return err
}

// encode runs a pass in the working folder. corrupt counts the frames that were decoded with errors.
func (r *run) encode(ctx context.Context, pass media.Pass) (corrupt int, err error) {
	pass.Dir, pass.Watch = r.work, r.watch
	corrupt, err = r.cfg.Media.Encode(ctx, pass)
	return corrupt, noSpace(err)
}

// blame turns the failure of a pass over a client's file into a sentence about the file. what names the field and the
// stream: "segments[2]: the video". ended is the fault if ffmpeg itself failed, or nil if that is an internal error.
// The file is not to blame for a full disk or a killed process.
func (r *run) blame(ctx context.Context, err error, what string, ended *fault.Error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if r.diskFull() {
		return ErrNoSpace.WithCause(err)
	}
	if errors.Is(err, media.ErrTimeout) {
		return fault.Failedf(fault.TimedOut, "%s took too long to process", what).WithCause(err)
	}
	if exit, ok := errors.AsType[*media.ExitError](err); ok && exit.Signal == 0 && ended != nil {
		return ended.WithCause(err)
	}
	return err
}

func undecoded(what string) *fault.Error {
	return fault.Failedf(fault.SourceUnreadable, "%s could not be decoded", what)
}
