package engine_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"cutroom/internal/engine"
	"cutroom/internal/mediatest"
	"cutroom/internal/timeline"
)

// board is a coordinator in memory.
type board struct {
	mu    sync.Mutex
	order []string
	state map[string]string // OPEN, MAKING, MADE, FAILED
	moved chan struct{}     // closed and replaced at each change
	first chan string       // a part that the assistant claims at the announcement
}

func newBoard() *board {
	return &board{state: map[string]string{}, moved: make(chan struct{}), first: make(chan string, 1)}
}

func (b *board) set(key, state string) {
	b.state[key] = state
	close(b.moved)
	b.moved = make(chan struct{})
}

func (b *board) Announce(_ context.Context, keys []string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.order = keys
	for _, k := range keys {
		b.set(k, "OPEN")
	}
	b.set(keys[0], "MAKING")
	b.first <- keys[0]
	return nil
}

func (b *board) Next(context.Context) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, key := range b.order {
		if b.state[key] == "OPEN" {
			b.set(key, "MAKING")
			return key, nil
		}
	}
	return "", nil
}

func (b *board) End(_ context.Context, key string, made bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.set(key, map[bool]string{true: "MADE", false: "FAILED"}[made])
	return nil
}

func (b *board) Await(ctx context.Context, keys []string) (map[string]bool, error) {
	for {
		b.mu.Lock()
		ended, moved := map[string]bool{}, b.moved
		for _, key := range keys {
			if state := b.state[key]; state != "MAKING" {
				ended[key] = state == "MADE"
			}
		}
		b.mu.Unlock()
		if len(ended) > 0 {
			return ended, nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// TestSharedRendersMakeTheSameFilm renders with an assistant and alone. Every frame and
// every sample must be the same, and the assistant must have made a part.
func TestSharedRendersMakeTheSameFilm(t *testing.T) {
	t.Parallel()
	const parts = 4
	var specs []mediatest.Spec
	for i := range parts {
		specs = append(specs, mediatest.Spec{Width: 160, Height: 90, Tone: 300 + 50*float64(i)})
	}
	var segments []timeline.Segment
	for _, path := range mediatest.Clips(t, specs...) {
		segments = append(segments, cut(path, 0, 0))
	}
	tl := film(segments...)
	e, b := newBench(t).engine, newBoard()
	job := func() engine.Job {
		return engine.Job{Dir: t.TempDir(), Timeline: tl, Sources: sources(tl), CacheScope: "u", Coordinator: b}
	}
	var shared engine.Output
	assisted := 0
	group, ctx := errgroup.WithContext(t.Context())
	group.Go(func() (err error) { shared, err = e.Render(ctx, job()); return err })
	group.Go(func() (err error) { assisted, err = e.Assist(ctx, job(), <-b.first); return err })
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	if assisted == 0 || assisted == parts {
		t.Errorf("the assistant made %d of %d parts", assisted, parts)
	}
	alone := newBench(t).render(t, tl)
	mediatest.ConstantRate(t, shared.Path, 30, parts*30, time.Millisecond)
	if mediatest.Digest(t, shared.Path) != mediatest.Digest(t, alone.Path) {
		t.Error("the shared film differs from the one made alone")
	}
}
