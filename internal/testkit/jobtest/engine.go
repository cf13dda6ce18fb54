// An engine that takes time but no CPU, in place of the real one, for tests of claims, leases and shared parts.

package jobtest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"cutroom/internal/film/engine"
)

// Engine simulates renders, which take a fixed time but no CPU. It shares parts through the real engine's loop, with
// one encoder.
type Engine struct {
	Takes time.Duration    // time to make a film, or each of its parts
	Parts int              // parts in a film; 0 makes films in one piece, without a coordinator
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
func (e *Engine) Reset(takes time.Duration, parts int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.Takes, e.Parts = takes, parts
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
	parts := make([]engine.Part, e.Parts)
	for i := range parts {
		parts[i] = engine.Part{Key: videoPart(i), Threads: 1}
	}
	return e.parts(job).All(ctx, parts)
}

// parts returns the loop over the parts of a film.
func (e *Engine) parts(job engine.Job) engine.PartLoop {
	return engine.PartLoop{
		Coordinator: job.Coordinator, Parallel: func(int) int { return 1 },
		Make: func(ctx context.Context, part engine.Part) (bool, error) { return true, e.makePart(ctx, job, part.Key) },
		Fetch: func(ctx context.Context, key string) bool {
			found, err := e.Cache.Get(ctx, job.CacheScope, key, filepath.Join(job.Dir, key))
			return found && err == nil
		},
	}
}

// Assist makes parts of another replica's film.
func (e *Engine) Assist(ctx context.Context, job engine.Job, claimed engine.Part) (int, error) {
	if e.Helps != nil {
		e.Helps()
	}
	made, err := e.parts(job).Claim(ctx, claimed)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.helped += len(made)
	return len(made), err
}

// Poster makes a film's poster.
func (e *Engine) Poster(_ context.Context, film, jpeg string) error {
	return os.WriteFile(jpeg, []byte("a poster"), 0o600)
}

// videoPart returns the key of a part. Its film does not matter, because caches separate owners.
func videoPart(i int) string { return fmt.Sprintf("video-%03d", i) }

func (e *Engine) makePart(ctx context.Context, job engine.Job, key string) error {
	if err := sleep(ctx, e.Takes); err != nil {
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
