package media

import (
	"testing"
	"time"
)

// If late packets are soon on time again, the clock jitters. Packets that stay late follow a pause, wherever it lies.
func TestJitterIsNoPause(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for name, tt := range map[string]struct {
		late    func(i int) time.Duration // of packet i of 200, which last 1024 samples each
		jitters bool
		at      time.Duration // where the first packet begins
	}{
		"steady":                     {func(int) time.Duration { return 0 }, false, 0},
		"a little":                   {func(i int) time.Duration { return time.Duration(i%3) * 9 * ms }, false, 0},
		"alternating":                {func(i int) time.Duration { return time.Duration(2*(i%2)-1) * 30 * ms }, true, 0},
		"one late":                   {func(i int) time.Duration { return time.Duration(i%151/150) * 60 * ms }, true, 0},
		"four at once":               {func(i int) time.Duration { return -time.Duration(i%4) * 20 * ms }, true, -30 * ms},
		"a pause in the middle":      {func(i int) time.Duration { return time.Duration(i/100) * 60 * ms }, false, 0},
		"a pause near the end":       {func(i int) time.Duration { return time.Duration(i/180) * 60 * ms }, false, 0},
		"a long pause at the end":    {func(i int) time.Duration { return time.Duration(i/195) * 500 * ms }, false, 0},
		"a long pause at the start":  {func(i int) time.Duration { return time.Duration(min(i/5, 1)) * 500 * ms }, false, 0},
		"a slow clock":               {func(i int) time.Duration { return time.Duration(i) * ms }, false, 0},
		"behind a long first packet": {func(i int) time.Duration { return time.Duration(min(i, 1)) * 60 * ms }, false, 0},
	} {
		s := streamScan{header: header{"codec_name": "aac", "profile": "LC", "sample_rate": "48000"}, packets: 200}
		for i := range 200 {
			s.heard = append(s.heard, int64(i*1024)+int64(tt.late(i)*48/ms))
		}
		at, jitters := s.steadyStart(Rational{1, 48000})
		if jitters != tt.jitters || jitters && (at-tt.at).Abs() > 2*ms {
			t.Errorf("%s: %v from %v, want %v from %v", name, jitters, at, tt.jitters, tt.at)
		}
	}
}
