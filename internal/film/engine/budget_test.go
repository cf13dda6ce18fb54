package engine_test

import (
	"context"
	"os"
	"sync"
	"testing"
	"time"

	"cutroom/internal/film/engine"
	"cutroom/internal/testkit/mediatest"
)

// watched is a cache that checks the process whenever a part is finished.
type watched struct {
	engine.PartCache
	mu    sync.Mutex
	files int // largest number of open descriptors
	puts  int
}

func (w *watched) Put(ctx context.Context, scope, key, src string) error {
	open, err := os.ReadDir("/proc/self/fd")
	w.mu.Lock()
	w.files, w.puts = max(w.files, len(open)), w.puts+1
	w.mu.Unlock()
	if err != nil {
		return err
	}
	return w.PartCache.Put(ctx, scope, key, src)
}

// Hundreds of stretches that play at once share a few open files. Not parallel, because other tests would open files in
// the same process.
func TestManyStretchesHoldFewFilesOpen(t *testing.T) {
	w := &watched{}
	b := newBench(t, func(c *engine.Config) { w.PartCache, c.Cache = c.Cache, w })
	stem := mediatest.Tone(t, 440, 3*time.Second)
	tl := sound(cut(stem, 0, 2000))
	for i := range int64(64) {
		d := directive(0, 1000, i, 1.01, stem)
		d.Selections[0].Volume = 0.005
		tl.Directives = append(tl.Directives, d)
	}
	before, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	b.render(t, tl)
	if most := w.files - len(before); w.puts < 64 || most > 30 {
		t.Errorf("%d more descriptors were open at once, %d parts finished", most, w.puts)
	}
	made := w.puts
	if b.render(t, tl); w.puts != made {
		t.Errorf("the same film again makes %d parts, want none", w.puts-made)
	}
}
