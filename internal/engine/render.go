package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"cutroom/internal/disk"
	"cutroom/internal/fault"
	"cutroom/internal/media"
	"cutroom/internal/timeline"
)

// infoVersion is raised when analysing the same file would say something else.
const infoVersion = 3

// Render makes the film. It returns when every process it started is gone.
//
// The error is a *fault.Error when the client's media or timeline is to blame
// (or the disk is full), wraps ctx's cause when ctx ended, and is internal
// otherwise. Rendering the same job again after an interruption continues from
// the parts in the cache and gives the same film.
func (e *Engine) Render(ctx context.Context, job Job) (Output, error) {
	r := &run{
		Engine: e, job: job, log: e.logOf(job), work: filepath.Join(job.Dir, "work"),
		meter: newMeter(job.OnProgress),
	}
	// What an earlier attempt left must not be written into: parts in the folder
	// may be the very files of the cache.
	if err := os.RemoveAll(r.work); err != nil {
		return Output{}, fmt.Errorf("render: %w", err)
	}
	if err := os.MkdirAll(r.work, 0o750); err != nil {
		return Output{}, fmt.Errorf("render: %w", noSpace(err))
	}
	defer os.RemoveAll(r.work)
	out, err := r.run(ctx)
	if err != nil && ctx.Err() != nil && fault.As(err) == nil {
		return Output{}, fmt.Errorf("render: %w", context.Cause(ctx))
	}
	return out, err
}

// run is one run of Render.
type run struct {
	*Engine
	job   Job
	log   *slog.Logger
	work  string
	meter *meter
	plan  *Plan

	mu     sync.Mutex
	stats  Stats
	yields map[*VideoPart]coverage
	others []*VideoPart // made elsewhere
}

func (r *run) path(name string) string { return filepath.Join(r.work, name) }

func (r *run) run(ctx context.Context) (Output, error) {
	begin := time.Now()
	files, err := r.analyseAll(ctx)
	if err != nil {
		return Output{}, err
	}
	if r.plan, err = MakePlan(r.job.Timeline, files, r.cfg.Limits, r.machine()); err != nil {
		return Output{}, err
	}
	r.stats.Analyse = time.Since(begin)

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

// analyseAll finds out about every distinct content of the job.
func (r *run) analyseAll(ctx context.Context) (map[string]PlanSource, error) {
	users := firstUsers(r.job.Timeline)
	files := map[string]PlanSource{}
	infos := map[string]*Info{}
	var order []string
	for _, key := range r.job.Timeline.SourceKeys() {
		s, ok := r.job.Sources[key]
		if !ok {
			return nil, fmt.Errorf("render: no file for source %q", key)
		}
		if s.SHA256 == "" {
			sum, _, err := disk.Digest(ctx, s.Path)
			if err != nil {
				return nil, fmt.Errorf("render: %w", err)
			}
			s.SHA256 = sum
		}
		files[key] = PlanSource{Path: s.Path, SHA256: s.SHA256}
		if _, known := infos[s.SHA256]; !known {
			infos[s.SHA256] = nil
			order = append(order, key)
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(r.cfg.Cores)
	for _, key := range order {
		file := files[key]
		group.Go(func() error {
			info, err := r.analyse(ctx, file)
			if errors.Is(err, media.ErrEncrypted) {
				return fault.Invalidf("%s: the file is encrypted", users[key]).WithCause(err)
			}
			if errors.Is(err, media.ErrNotMedia) {
				return fault.Invalidf("%s: the file is not a video or sound that can be opened", users[key]).WithCause(err)
			}
			if err != nil {
				return err
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			infos[file.SHA256] = info
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	for key, f := range files {
		f.Info = infos[f.SHA256]
		files[key] = f
	}
	return files, nil
}

// firstUsers names for every source key the first field that uses it.
func firstUsers(t timeline.Timeline) map[string]string {
	users := map[string]string{}
	add := func(key, format string, args ...any) {
		if users[key] == "" {
			users[key] = fmt.Sprintf(format, args...)
		}
	}
	for i, s := range t.Segments {
		add(s.SourceKey, "segments[%d]", i)
	}
	for i, c := range t.Clips {
		add(c.SourceKey, "bgmClips[%d]", i)
	}
	for i, d := range t.Directives {
		for j, s := range d.Selections {
			add(s.SourceKey, "separationDirectives[%d].selections[%d]", i, j)
		}
	}
	return users
}

// analyse returns what the cache knows of a file, or looks.
func (r *run) analyse(ctx context.Context, file PlanSource) (*Info, error) {
	key := newKey("info").add("version", infoVersion).add("source", file.SHA256).String() + ".json"
	path := r.path(key)
	info := &Info{}
	if r.fetch(ctx, key, path) {
		data, err := os.ReadFile(path)
		if err == nil {
			err = json.Unmarshal(data, info)
		}
		if err == nil {
			r.count(&r.stats.Analyses, &r.stats.AnalysesReused, true)
			return info, nil
		}
		r.log.Warn("cached analysis is unreadable", "key", key, "error", err)
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("render: %w", err)
		}
	}
	info, err := analyse(ctx, r.cfg.Media, file.Path)
	if err != nil {
		return nil, err
	}
	r.count(&r.stats.Analyses, &r.stats.AnalysesReused, false)
	data, err := json.Marshal(info)
	if err != nil {
		return nil, fmt.Errorf("render: store analysis: %w", err)
	}
	if err := os.WriteFile(path, data, 0o640); err != nil {
		return nil, fmt.Errorf("render: %w", noSpace(err))
	}
	r.keep(ctx, key, path)
	return info, nil
}

func (r *run) count(all, reused *int, wasReused bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	*all++
	if wasReused {
		*reused++
	}
}

// fetch makes the part appear at path if the cache has it.
func (r *run) fetch(ctx context.Context, key, path string) bool {
	if r.cfg.Cache == nil {
		return false
	}
	found, err := r.cfg.Cache.Get(ctx, r.job.CacheScope, key, path)
	if err != nil && !errors.Is(err, fs.ErrExist) { // made for the same content elsewhere in this film
		r.log.Warn("part cache does not answer", "key", key, "error", err)
	}
	return found
}

// keep puts a finished file into the cache. A render does not fail for a cache
// that does not take it.
func (r *run) keep(ctx context.Context, key, path string) {
	if r.cfg.Cache == nil {
		return
	}
	if err := r.cfg.Cache.Put(ctx, r.job.CacheScope, key, path); err != nil && ctx.Err() == nil {
		r.log.Warn("part cache does not keep", "key", key, "error", err)
	}
}

// encode runs a pass and books what it cost. corrupt is how many frames it decoded
// with errors.
func (r *run) encode(ctx context.Context, pass media.Pass) (corrupt int, err error) {
	pass.Dir = r.work
	result, err := r.cfg.Media.Encode(ctx, pass)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.CPU += result.UserCPU + result.SystemCPU
	r.stats.PeakRSS = max(r.stats.PeakRSS, result.MaxRSSBytes)
	return result.CorruptFrames, noSpace(err)
}

// blame turns the failure of a pass over a client's file into a sentence about
// the file: what names the user and the thing, "segments[2]: the video", and fate
// what became of it, "" where that is our own fault. A full disk and an end from
// outside are not the file's fault.
func (r *run) blame(ctx context.Context, err error, what, fate string) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if space := r.cfg.Limits.checkSpace(r.work, 0); fault.As(space) != nil {
		return fault.As(space).WithCause(err)
	}
	if errors.Is(err, media.ErrTimeout) {
		return fault.Invalidf("%s took too long to process", what).WithCause(err)
	}
	if exit, ok := errors.AsType[*media.ExitError](err); ok && exit.Signal == 0 && fate != "" {
		return fault.Invalidf("%s %s", what, fate).WithCause(err)
	}
	return err
}
