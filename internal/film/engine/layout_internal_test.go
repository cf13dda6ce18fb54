// The layout as numbers, without ffmpeg: frame rates, samples, runs, chunks, windows of sound, and threads.

package engine

import (
	"cmp"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"cutroom/internal/film/media"
	"cutroom/internal/film/media/container"
	"cutroom/internal/film/timeline"
)

// fakeVideo is a source of n frames at an even rate that begins at start ticks of a 90 kHz clock, with sound of the
// same length.
func fakeVideo(rate media.Rational, n int, start int64) *Info {
	v := &videoInfo{Packets: int64(n)}
	v.TimeBase = media.Rational{Num: 1, Den: 90000}
	v.AvgFrameRate, v.FrameRate = rate, rate
	v.Width, v.Height, v.DisplayWidth, v.DisplayHeight = 320, 180, 320, 180
	v.SAR, v.PixelFormat = media.Rational{Num: 1, Den: 1}, "yuv420p"
	for i := range n {
		v.Starts = append(v.Starts, start+media.MulDiv(int64(i), 90000*rate.Den, rate.Num))
	}
	v.End = framesDuration(int64(n), rate) + time.Duration(start)*time.Second/90000
	v.ClaimedEnd = v.End
	a := &audioInfo{Packets: int64(n), End: v.End, ClaimedEnd: v.End}
	a.Index, a.Channels, a.SampleRate = 1, 2, 48000
	return &Info{Kind: container.MP4, Streams: 2, Video: v, Audio: a}
}

func r(num, den int64) media.Rational { return media.Rational{Num: num, Den: den} }

// ms is a range in milliseconds of the source "s".
func ms(from, to int64) timeline.Segment {
	return timeline.Segment{SourceKey: "s", Duration: time.Hour, TrimStart: timeline.Milliseconds(from), TrimEnd: timeline.Milliseconds(to),
		Volume: 1, Speed: 1}
}

// of lets a segment play another source.
func of(key string, s timeline.Segment) timeline.Segment {
	s.SourceKey = key
	return s
}

// filmOf is a film of the segments in this order, at their own speed unless they state another.
func filmOf(segments ...timeline.Segment) timeline.Timeline {
	segments = slices.Clone(segments)
	for i := range segments {
		segments[i].Order, segments[i].Speed = int64(i), cmp.Or(segments[i].Speed, 1)
	}
	return timeline.Timeline{Segments: segments, OutputKind: timeline.Video, Quality: timeline.Low}
}

// twoCores is a machine on which two small encoders run at once.
var twoCores = Machine{Cores: 2, MemoryBytes: 600 << 20}

// plan plans a film of analysed sources.
func plan(tl timeline.Timeline, infos map[string]*Info, limits Limits) (*Plan, error) {
	sources := map[string]*Source{}
	for key, info := range infos {
		sources[key] = &Source{Path: "/" + key, SHA256: key, info: info}
	}
	return makePlan(tl, sources, limits.withDefaults(), twoCores)
}

// planOf plans a film of segments, after a change of its timeline.
func planOf(t *testing.T, infos map[string]*Info, change func(*timeline.Timeline), segments ...timeline.Segment) *Plan {
	t.Helper()
	tl := filmOf(segments...)
	if change != nil {
		change(&tl)
	}
	p, err := plan(tl, infos, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// planned lays out segments over one source.
func planned(t *testing.T, info *Info, segments ...timeline.Segment) *layout {
	t.Helper()
	l, err := layOut(filmOf(segments...), map[string]*Source{"s": {SHA256: "s", info: info}})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestCanvasRate(t *testing.T) {
	claims := func(avg, low media.Rational, info *Info) *videoInfo {
		info.Video.AvgFrameRate, info.Video.FrameRate = avg, low
		return info.Video
	}
	irregular := func(steps ...int64) *videoInfo {
		v := fakeVideo(r(30, 1), 1, 0).Video
		for range 20 {
			for _, s := range steps {
				v.Starts = append(v.Starts, v.Starts[len(v.Starts)-1]+s*90) // ms
			}
		}
		return v
	}
	for name, tt := range map[string]struct {
		video *videoInfo
		want  media.Rational
	}{
		"25":                      {fakeVideo(r(25, 1), 50, 0).Video, r(25, 1)},
		"ntsc":                    {fakeVideo(r(30000, 1001), 300, 0).Video, r(30000, 1001)},
		"ntsc as written by some": {claims(r(19001, 634), r(30000, 1001), fakeVideo(r(30000, 1001), 300, 0)), r(30000, 1001)},
		"film ntsc":               {fakeVideo(r(24000, 1001), 300, 0).Video, r(24000, 1001)},
		"film ntsc in matroska":   {claims(r(24000, 1001), r(24000, 1001), &Info{Video: irregular(42, 42, 41, 42, 42, 41, 42)}), r(24000, 1001)},
		"claim is nonsense":       {claims(r(1000, 1), r(90000, 1), fakeVideo(r(24, 1), 300, 0)), r(24, 1)},
		"claim is unknown":        {claims(media.Rational{}, media.Rational{}, fakeVideo(r(50, 1), 300, 0)), r(50, 1)},
		"120":                     {fakeVideo(r(120, 1), 300, 0).Video, r(60, 1)},
		"119.88":                  {fakeVideo(r(120000, 1001), 3000, 0).Video, r(60000, 1001)},
		"100":                     {fakeVideo(r(100, 1), 300, 0).Video, r(50, 1)},
		"90":                      {fakeVideo(r(90, 1), 300, 0).Video, r(60, 1)},
		"1000":                    {fakeVideo(r(1000, 1), 300, 0).Video, r(60, 1)},
		"odd but even":            {fakeVideo(r(27, 2), 300, 0).Video, r(27, 2)},
		"one frame of 25":         {fakeVideo(r(25, 1), 1, 0).Video, r(25, 1)},
		"one frame of nothing":    {claims(media.Rational{}, media.Rational{}, fakeVideo(r(25, 1), 1, 0)), r(30, 1)},
		"a frame every 10 s":      {fakeVideo(r(1, 10), 10, 0).Video, r(1, 1)},
		"phone, variable":         {irregular(33, 33, 34, 33, 66, 33, 34), r(30, 1)},
		"phone in the dark":       {irregular(33, 41, 33, 50, 33, 33, 34, 100), r(30, 1)},
		"variable 60":             {irregular(17, 16, 17, 17, 33), r(60, 1)},
		"variable 24":             {irregular(42, 41, 42, 83), r(24, 1)},
		"a still screen":          {irregular(1000, 33, 67, 500, 1000, 800), r(30, 1)},
		"a lively screen":         {irregular(100, 17, 100, 17, 200, 17), r(60, 1)},
		"a steady 15":             {irregular(66, 67, 67, 66, 68, 60), r(15, 1)},
	} {
		if got := canvasRate(tt.video); got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}

func TestSamplesAtIsExact(t *testing.T) {
	for _, rate := range []media.Rational{r(24, 1), r(25, 1), r(30, 1), r(30000, 1001), r(60000, 1001), r(1000, 1), r(27, 2)} {
		for _, n := range []int64{0, 1, 2, 3, 29, 1000, 1_000_001, 100_000_000} {
			got := samplesAt(n, rate)
			// 2|got*num - n*48000*den| <= num
			diff := got*rate.Num - n*sampleRate*rate.Den
			if 2*diff > rate.Num || -2*diff > rate.Num {
				t.Errorf("samplesAt(%d, %v) = %d", n, rate, got)
			}
		}
	}
	if samplesOf(math.MaxInt64) <= 0 || samplesOf(-time.Second) != -48000 || samplesOf(1234*time.Millisecond) != 59232 {
		t.Error("samplesOf")
	}
	if media.MulDiv(math.MaxInt64, math.MaxInt64, 1) != math.MaxInt64 {
		t.Error("mulDiv does not saturate")
	}
}

// For every timeline, the film is as long as its segments, sound and picture of each segment start together, runs are
// seamless, and stems align with the sound.
func TestLayoutProperties(t *testing.T) {
	rates := []media.Rational{r(24, 1), r(25, 1), r(30, 1), r(30000, 1001), r(50, 1), r(60, 1), r(12, 1), r(10, 1)}
	rapid.Check(t, func(rt *rapid.T) {
		rate := rapid.SampledFrom(rates).Draw(rt, "rate")
		info := fakeVideo(rate, 3000, rapid.Int64Range(0, 90000).Draw(rt, "start"))
		length := info.Duration().Milliseconds()
		var segments []timeline.Segment
		n := rapid.IntRange(1, 30).Draw(rt, "segments")
		for i := range n {
			from := rapid.Int64Range(0, length-2000).Draw(rt, "from")
			if i > 0 && rapid.Bool().Draw(rt, "goes on") {
				from = segments[i-1].TrimEnd.Milliseconds()
			}
			if from >= length-1 {
				from = 0
			}
			s := ms(from, min(length, from+rapid.Int64Range(1, 9000).Draw(rt, "length")))
			s.Speed = rapid.SampledFrom([]float64{1, 1, 1, 0.1, 0.5, 1.37, 2, 10}).Draw(rt, "speed")
			if kind := rapid.SampledFrom([]timeline.TransitionKind{"", "", timeline.Dissolve, timeline.FadeBlack}).Draw(rt, "transition"); kind != "" {
				s = joinedBy(kind, rapid.Int64Range(100, 5000).Draw(rt, "transition ms"), s)
			}
			segments = append(segments, s)
		}
		l := planned(t, info, segments...)
		var exact float64
		var frame int64
		step := 1 / l.rate.Float()
		for k := range l.segments {
			p := &l.segments[k]
			overlap := p.join.Overlap()
			exact += (p.out-p.in).Seconds()/p.segment.Speed - float64(overlap)*step
			frame -= overlap
			if p.frame != frame || p.frames < 0 {
				rt.Fatalf("segment %d begins at frame %d, want %d", k, p.frame, frame)
			}
			frame += p.frames
			lead := (p.in.Seconds() - p.start) / p.segment.Speed
			if p.start > p.in.Seconds() && p.in.Seconds() < step*p.segment.Speed {
				lead = 0 // nothing precedes the source's first frame
			}
			if !p.continues && (lead < -0.0015/p.segment.Speed-1e-9 || lead > step+1e-9) {
				rt.Fatalf("segment %d begins %.4f s before its trim start (a frame is %.4f s)", k, lead, step)
			}
			if p.segment.Speed == 1 {
				if off := math.Abs(float64(p.sample)/sampleRate - p.start); off > 2.0/sampleRate {
					rt.Fatalf("segment %d: sound and picture begin %.6f s apart", k, off)
				}
				// A stem that the client places by the segment's own clock matches the sound to the sample: source time
				// t plays at t - sample, and at shift + the client's t.
				first := samplesAt(p.frame, l.rate)
				client := p.begin*sampleRate + (p.start-p.in.Seconds())*sampleRate
				if d := math.Abs(client + float64(p.shift) - float64(first)); d > 2 {
					rt.Fatalf("segment %d: stems are %.1f samples off", k, d)
				}
			}
			if p.continues && p.segment.Speed == 1 { // a fade does not split the sound of a run
				before := &l.segments[k-1]
				if played := samplesAt(p.frame, l.rate) - samplesAt(before.frame, l.rate); before.sample+played != p.sample {
					rt.Fatalf("segment %d: the sound jumps by %d samples", k, p.sample-before.sample-played)
				}
			}
		}
		// Only segments of less than two frames cannot lose enough of them.
		allowed := step + 1e-6
		for _, p := range l.segments {
			if p.out-p.in < time.Duration(2*step*p.segment.Speed*float64(time.Second)) {
				allowed = 2 * step
			}
		}
		if d := math.Abs(float64(l.frames)*step - exact); d > allowed {
			rt.Fatalf("the film lasts %.4f s, the segments %.4f s", float64(l.frames)*step, exact)
		}
	})
}

// Splitting a segment anywhere keeps its number of frames, whatever surrounds it.
func TestSplittingKeepsTheFrames(t *testing.T) {
	rates := []media.Rational{r(24, 1), r(25, 1), r(30, 1), r(30000, 1001), r(60, 1), r(12, 1)}
	rng := rand.New(rand.NewPCG(3, 4))
	some := func() (all []timeline.Segment) {
		for range rng.IntN(3) {
			from := rng.Int64N(30000)
			all = append(all, ms(from, from+200+rng.Int64N(3000)))
		}
		return all
	}
	for range 3000 {
		info := fakeVideo(rates[rng.IntN(len(rates))], 3000, rng.Int64N(90000))
		from, length := rng.Int64N(20000), 2+rng.Int64N(6000)
		at := from + 1 + rng.Int64N(length-1)
		whole, first, second := ms(from, from+length), ms(from, at), ms(at, from+length)
		whole.Speed = []float64{1, 1, 1, 0.5, 1.37, 2, 0.1, 10}[rng.IntN(8)]
		first.Speed, second.Speed = whole.Speed, whole.Speed
		before, after := some(), some()
		a := planned(t, info, slices.Concat(before, []timeline.Segment{whole}, after)...)
		b := planned(t, info, slices.Concat(before, []timeline.Segment{first, second}, after)...)
		k := len(before)
		// A second half without frames cannot lose one for the drift; the next segment does.
		if one, two := a.segments[k].frames, b.segments[k].frames+b.segments[k+1].frames; one != two && b.segments[k+1].frames > 0 || a.frames != b.frames {
			t.Errorf("%d to %d ms, split at %d, speed %v at %v: %d frames became %d, the film's %d became %d",
				from, from+length, at, whole.Speed, a.rate, one, two, a.frames, b.frames)
		}
	}
}

// Parts depend only on their segment: changing one segment keeps the others' parts.
func TestPartsDoNotKnowTheirNeighbours(t *testing.T) {
	infos := map[string]*Info{"s": fakeVideo(r(30000, 1001), 3000, 0)}
	rng := rand.New(rand.NewPCG(1, 9))
	parts := func(segments []timeline.Segment) map[string]int64 {
		keys := map[string]int64{}
		for _, part := range planOf(t, infos, nil, segments...).Parts {
			keys[part.Key] = part.Frames
		}
		return keys
	}
	again, edits := 0, 500
	for range edits {
		var segments []timeline.Segment
		for range 6 {
			from := rng.Int64N(90000)
			segments = append(segments, ms(from, from+1000+rng.Int64N(5000)))
		}
		before := parts(segments)
		edited := &segments[rng.IntN(6)]
		edited.TrimEnd += timeline.Milliseconds(1 + rng.Int64N(900))
		frames := int64(0)
		for key, n := range parts(segments) {
			if before[key] == 0 {
				frames += n
			}
		}
		own := int64(math.Ceil((edited.TrimEnd - edited.TrimStart).Seconds() * 30))
		if frames > own+6 {
			again++
		}
	}
	if share := float64(again) / float64(edits); share > 0.06 {
		t.Errorf("in %.0f %% of the edits another segment is made again", 100*share)
	}
}

func TestChunksLieOnTheSourcesGrid(t *testing.T) {
	rate := r(30, 1)
	for _, tt := range []struct {
		start  float64
		frames int64
		keys   int64 // seconds between key frames, 0 if there is only one
		want   []span
	}{
		{0, 90, 0, []span{{0, 90}}},
		{0, 269, 0, []span{{0, 269}}},             // 9 s: the rest must be at least 3 s
		{0, 270, 0, []span{{0, 180}, {180, 270}}}, // exactly
		{0, 900, 0, []span{{0, 180}, {180, 360}, {360, 540}, {540, 720}, {720, 900}}},
		{1, 870, 0, []span{{0, 150}, {150, 330}, {330, 510}, {510, 690}, {690, 870}}},
		{5, 850, 0, []span{{0, 210}, {210, 390}, {390, 570}, {570, 750}, {750, 850}}}, // the first second joins the next piece
		{0, 900, 1, []span{{0, 180}, {180, 360}, {360, 540}, {540, 720}, {720, 900}}},
		{0, 900, 8, []span{{0, 240}, {240, 480}, {480, 720}, {720, 900}}}, // where a decoder can begin
		{2, 840, 8, []span{{0, 180}, {180, 420}, {420, 660}, {660, 840}}},
		{0, 0, 0, []span{}},
	} {
		info := fakeVideo(rate, 1200, 0)
		for at := int64(0); tt.keys > 0 && at < 40; at += tt.keys {
			info.Video.Keys = append(info.Video.Keys, time.Duration(at)*time.Second)
		}
		p := &placed{source: &Source{info: info}, segment: timeline.Segment{Speed: 1}, start: tt.start, frames: tt.frames, base: tt.frames, tolerance: tolerance(1/rate.Float(), info.Video)}
		if got := chunks(p, Canvas{Rate: rate}); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%v s, %d frames: %v, want %v", tt.start, tt.frames, got, tt.want)
		}
	}
}

func TestFit(t *testing.T) {
	for _, tt := range [][6]int{
		{320, 180, 320, 180, 320, 180}, {180, 320, 320, 180, 102, 180}, {854, 480, 1280, 720, 1280, 720},
		{640, 480, 1280, 720, 960, 720}, {1, 1000, 320, 180, 2, 180}, {1000, 1, 320, 180, 320, 2}, {641, 361, 640, 360, 640, 360},
	} {
		if w, h := contain(float64(tt[0]), float64(tt[1]), Canvas{Width: tt[2], Height: tt[3]}); w != tt[4] || h != tt[5] {
			t.Errorf("%dx%d into %dx%d: %dx%d, want %dx%d", tt[0], tt[1], tt[2], tt[3], w, h, tt[4], tt[5])
		}
	}
}

func TestWindowsOfLongSounds(t *testing.T) {
	const s = sampleRate
	long := int64(3600 * s)
	for name, tt := range map[string]struct {
		needs  []span
		length int64
		want   []span
	}{
		"short: whole":         {[]span{{5 * s, 6 * s}}, 170 * s, []span{{0, 170 * s}}},
		"long: what is needed": {[]span{{65 * s, 72 * s}}, long, []span{{60 * s, 80 * s}}},
		"neighbours join":      {[]span{{65 * s, 69 * s}, {71 * s, 75 * s}, {500 * s, 501 * s}}, long, []span{{60 * s, 80 * s}, {490 * s, 510 * s}}},
		"much of it: whole":    {[]span{{0, 200 * s}}, 600 * s, []span{{0, 600 * s}}},
		"end":                  {[]span{{3599 * s, 3700 * s}}, long, []span{{3590 * s, long}}},
		"nothing":              {[]span{{-9 * s, -8 * s}}, 600 * s, []span{{0, 600 * s}}},
	} {
		if got := windows(tt.needs, tt.length); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}

func TestEncodersFitTheMachine(t *testing.T) {
	for _, tt := range []struct {
		machine           Machine
		each              int64
		parallel, threads int
	}{
		{Machine{Cores: 1, MemoryBytes: 300 << 20}, 200 << 20, 1, 1},
		{Machine{Cores: 2, MemoryBytes: 600 << 20}, 220 << 20, 2, 2},
		{Machine{Cores: 2, MemoryBytes: 600 << 20}, 400 << 20, 1, 3}, // 1080p
		{Machine{Cores: 2, MemoryBytes: 600 << 20}, 2 << 30, 1, 3},
		{Machine{Cores: 4, MemoryBytes: 1200 << 20}, 220 << 20, 3, 2},
		{Machine{Cores: 4, MemoryBytes: 1200 << 20}, 400 << 20, 3, 2},
		{Machine{Cores: 8, MemoryBytes: 2400 << 20}, 220 << 20, 3, 4},
		{Machine{Cores: 16, MemoryBytes: 4800 << 20}, 400 << 20, 4, 6},
		{Machine{Cores: 64, MemoryBytes: 1 << 40}, 400 << 20, 16, 6},
	} {
		if p, n := tt.machine.encoders(tt.each); p != tt.parallel || n != tt.threads {
			t.Errorf("%+v, %d MB each: %d encoders of %d threads, want %d of %d", tt.machine, tt.each>>20, p, n, tt.parallel, tt.threads)
		}
	}
}

func TestThreadsArePlanned(t *testing.T) {
	infos := map[string]*Info{"s": fakeVideo(r(30, 1), 30000, 0)}
	const megabyte = 1 << 20
	for _, tt := range []struct {
		lengths  []int64 // of the parts, in milliseconds
		memory   int64
		single   int // parts with one thread
		parallel int
	}{
		{slices.Repeat([]int64{2000}, 1), 600 * megabyte, 0, 2},
		{slices.Repeat([]int64{2000}, 2), 600 * megabyte, 2, 2}, // parts of similar cost need only one round
		{slices.Repeat([]int64{2000}, 3), 600 * megabyte, 2, 2},
		{slices.Repeat([]int64{2000}, 4), 600 * megabyte, 4, 2},
		{slices.Repeat([]int64{2000}, 7), 600 * megabyte, 6, 2},
		{[]int64{5900, 1000, 1000}, 600 * megabyte, 0, 2},
		{slices.Repeat([]int64{2000}, 6), 100 * megabyte, 0, 2},
	} {
		var segments []timeline.Segment
		for i, length := range tt.lengths {
			segments = append(segments, ms(int64(i)*10000, int64(i)*10000+length))
		}
		p := planOf(t, infos, nil, segments...)
		machine, single, fewest := Machine{Cores: 2, MemoryBytes: tt.memory}, 0, math.MaxInt
		planThreads(p, p.Parts, machine)
		for _, v := range p.Parts {
			fewest = min(fewest, v.threads)
			if v.threads == 1 {
				single++
			}
		}
		if parallel := machine.atOnce(p, fewest); single != tt.single || parallel != tt.parallel {
			t.Errorf("%+v: %d of one thread, %d at once", tt, single, parallel)
		}
	}
}
