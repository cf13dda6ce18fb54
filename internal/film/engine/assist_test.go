package engine_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"cutroom/internal/film/engine"
	"cutroom/internal/film/timeline"
	"cutroom/internal/testkit/mediatest"
)

// assisted is a coordinator that lets another machine make the parts for which wants is true, before the machine that
// renders the film claims any.
type assisted struct {
	assist func(ctx context.Context, first engine.Part) error
	wants  func(engine.Part) bool

	mu   sync.Mutex
	open []engine.Part
	made map[string]bool
}

func (c *assisted) Announce(ctx context.Context, parts []engine.Part) ([]engine.Part, error) {
	var rest []engine.Part
	for _, part := range parts {
		if c.wants(part) {
			c.open = append(c.open, part)
		} else {
			rest = append(rest, part)
		}
	}
	first, _ := c.Next(ctx)
	err := c.assist(ctx, first)
	c.open = rest
	return parts, err
}

func (c *assisted) Next(context.Context) (part engine.Part, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.open) > 0 {
		part, c.open = c.open[0], c.open[1:]
	}
	return part, nil
}

func (c *assisted) End(_ context.Context, key string, made bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.made[key] = made
	return nil
}

func (c *assisted) Await(_ context.Context, keys []string) (map[string]bool, error) {
	ended := map[string]bool{}
	for _, key := range keys {
		if made, over := c.made[key]; over {
			ended[key] = made
		}
	}
	return ended, nil
}

// A film is the same whether one machine makes it alone or another machine, with a different number of cores, makes
// half of its parts, dissolves among them.
func TestAnAssistantsPartsMakeTheSameFilm(t *testing.T) {
	t.Parallel()
	clips := mediatest.Clips(t, mediatest.Spec{Width: 160, Height: 90, Duration: 3 * time.Second, Tone: 440},
		mediatest.Spec{Width: 160, Height: 90, Duration: 3 * time.Second, Tone: 660})
	tl := film(cut(clips[0], 0, 2000), cut(clips[1], 500, 2500), cut(clips[0], 1000, 2700))
	for i := range tl.Segments {
		tl.Segments[i].Transition = &timeline.Transition{Kind: timeline.Dissolve, Duration: 600 * time.Millisecond}
	}
	alone := mediatest.Digest(t, newBench(t).render(t, tl).Path)
	for half := range 2 {
		b := newBench(t)
		helper := newBench(t, func(c *engine.Config) { c.Cores, c.Cache = 3, b.cache })
		made, n := 0, 0
		job := engine.Job{Dir: t.TempDir(), Timeline: tl, Sources: sources(tl), CacheScope: "user"}
		c := &assisted{made: map[string]bool{}, wants: func(engine.Part) bool { n++; return n%2 == half }}
		c.assist = func(ctx context.Context, first engine.Part) (err error) {
			helped := job
			helped.Dir, helped.Coordinator = t.TempDir(), c
			made, err = helper.engine.Assist(ctx, helped, first)
			return err
		}
		job.Coordinator = c
		out, err := b.engine.Render(t.Context(), job)
		if err != nil {
			t.Fatal(err)
		}
		if made < 2 || out.Stats.VideoParts != 5 || n != 5 {
			t.Errorf("the other machine made %d of %d parts", made, out.Stats.VideoParts)
		}
		if mediatest.Digest(t, out.Path) != alone {
			t.Errorf("another film if an assistant makes %d parts", made)
		}
	}
}
