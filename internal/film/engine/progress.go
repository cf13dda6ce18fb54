package engine

import "sync"

// meter combines the progress of many passes into one percentage that never falls. Weights are estimates of wall
// time.
type meter struct {
	notify func(int)

	mu    sync.Mutex
	total float64
	done  float64
	shown int // last percentage reported; -1 before the first
}

// work adds work of the given weight. If it is added late, the percentage pauses.
func (m *meter) work(weight float64) *task {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.total += weight
	return &task{meter: m, weight: weight}
}

// task is one piece of a meter's work. A nil task ignores progress.
type task struct {
	meter  *meter
	weight float64
	part   float64 // 0..1
}

// reached sets the finished fraction of the task, 0..1. It ignores values lower than earlier ones.
func (t *task) reached(part float64) {
	if t == nil {
		return
	}
	m := t.meter
	m.mu.Lock()
	defer m.mu.Unlock()
	part = min(1, part)
	if part <= t.part {
		return
	}
	m.done += (part - t.part) * t.weight
	t.part = part
	if m.notify == nil {
		return
	}
	// The caller reports 100 percent when the output is stored.
	if percent := min(99, int(100*m.done/m.total)); percent > m.shown {
		m.shown = percent
		m.notify(percent)
	}
}

func (t *task) finish() { t.reached(1) }
