package jobtest

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"cutroom/internal/engine"
)

// Engine simulates renders, which take a fixed time and no CPU. It shares parts through the
// coordinator as the real engine does, with one encoder.
type Engine struct {
	Takes time.Duration // time to make a film, or each of its parts
	Parts int           // parts in a film; 0 makes films in one piece, without a coordinator
	// Slowest is the additional time that the first part takes.
	Slowest time.Duration
	// Begin delays the first part until the channel is closed. It may be nil.
	Begin <-chan struct{}
	Cache engine.PartCache // stores the parts
	Fails func() error     // returns the error of a render, if any; may be nil
	Helps func()           // runs before Assist; may be nil

	mu     sync.Mutex
	films  []Film
	made   int // parts of all films
	helped int // parts of other replicas' films
}

// FilmLength is the length of every film.
const FilmLength = 1234 * time.Millisecond

// Film is one call of Render.
type Film struct {
	JobID        string
	Began, Ended time.Time
}

// Films returns the calls of Render in the order in which they began.
func (e *Engine) Films() []Film {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.films)
}

// Made returns the number of parts made, and how many of them were for other replicas' films.
func (e *Engine) Made() (all, helped int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.made, e.helped
}

// Reset clears the records of an idle engine and sets the fields of the same names.
func (e *Engine) Reset(takes, slowest time.Duration, parts int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.Takes, e.Slowest, e.Parts = takes, slowest, parts
	e.films, e.made, e.helped = nil, 0, 0
}

// Render makes a film.
func (e *Engine) Render(ctx context.Context, job engine.Job) (engine.Output, error) {
	folder := filepath.Base(filepath.Dir(job.Dir)) // <job>-<fence>
	e.mu.Lock()
	at := len(e.films)
	e.films = append(e.films, Film{JobID: folder[:strings.LastIndexByte(folder, '-')], Began: time.Now()})
	e.mu.Unlock()
	job.OnPlanned(FilmLength)
	var err error
	if e.Fails != nil {
		err = e.Fails()
	}
	if err == nil {
		err = e.render(ctx, job)
	}
	e.mu.Lock()
	e.films[at].Ended = time.Now()
	e.mu.Unlock()
	if err != nil {
		return engine.Output{}, err
	}
	out := engine.Output{Path: filepath.Join(job.Dir, "output.mp4"), Duration: FilmLength}
	return out, os.WriteFile(out.Path, []byte("a finished film"), 0o600)
}

func (e *Engine) render(ctx context.Context, job engine.Job) error {
	if e.Parts == 0 {
		for percent := range 4 {
			job.OnProgress(25 * percent)
			if err := sleep(ctx, e.Takes/4); err != nil {
				return err
			}
		}
		return nil
	}
	left := map[string]bool{}
	for _, key := range e.keys() {
		left[key] = true
	}
	if err := job.Coordinator.Announce(ctx, e.keys()); err != nil {
		return err
	}
	for open := true; len(left) > 0; {
		if open {
			made, err := e.makeParts(ctx, job, "", func() { job.OnProgress(100 - 100*len(left)/e.Parts) })
			if err != nil {
				return err
			}
			for _, key := range made {
				delete(left, key)
			}
			open = false
			continue
		}
		ended, err := job.Coordinator.Await(ctx, slices.Collect(maps.Keys(left)))
		if err != nil {
			return err
		}
		open = len(ended) == 0
		if err := e.collect(ctx, job, ended); err != nil {
			return err
		}
		for key := range ended {
			delete(left, key)
		}
	}
	return nil
}

// collect fetches the parts that other replicas made, and makes the parts that they gave up.
func (e *Engine) collect(ctx context.Context, job engine.Job, ended map[string]bool) error {
	var group errgroup.Group
	group.SetLimit(8)
	for key, made := range ended {
		group.Go(func() (err error) {
			if made {
				made, err = e.Cache.Get(ctx, job.CacheScope, key, filepath.Join(job.Dir, key))
			}
			if !made && err == nil {
				err = e.makePart(ctx, job, key)
			}
			return err
		})
	}
	return group.Wait()
}

// makeParts claims and makes parts one after another, as the real engine does.
func (e *Engine) makeParts(ctx context.Context, job engine.Job, key string, each func()) (made []string, err error) {
	if key == "" {
		key, err = job.Coordinator.Next(ctx, "")
	}
	for key != "" && err == nil {
		if err = e.makePart(ctx, job, key); err != nil {
			break
		}
		made = append(made, key)
		each()
		key, err = job.Coordinator.Next(ctx, key)
	}
	return made, err
}

// Assist makes parts of another replica's film.
func (e *Engine) Assist(ctx context.Context, job engine.Job, claimed string) (int, error) {
	if e.Helps != nil {
		e.Helps()
	}
	made, err := e.makeParts(ctx, job, claimed, func() {})
	e.mu.Lock()
	defer e.mu.Unlock()
	e.helped += len(made)
	return len(made), err
}

// Poster makes a film's poster.
func (e *Engine) Poster(_ context.Context, film, jpeg string) error {
	return os.WriteFile(jpeg, []byte("a poster"), 0o600)
}

// keys returns the part keys of a plan. The caches separate them by owner.
func (e *Engine) keys() []string {
	keys := make([]string, e.Parts)
	for i := range keys {
		keys[i] = videoPart(i)
	}
	return keys
}

func videoPart(i int) string { return fmt.Sprintf("video-%03d", i) }

func (e *Engine) makePart(ctx context.Context, job engine.Job, key string) error {
	takes := e.Takes
	if key == videoPart(0) {
		takes += e.Slowest
		if e.Begin != nil {
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-e.Begin:
			}
		}
	}
	if err := sleep(ctx, takes); err != nil {
		return err
	}
	path := filepath.Join(job.Dir, key)
	if err := os.WriteFile(path, []byte("a part"), 0o600); err != nil {
		return err
	}
	e.mu.Lock()
	e.made++
	e.mu.Unlock()
	return e.Cache.Put(ctx, job.CacheScope, key, path)
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
