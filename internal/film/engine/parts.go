// Makes the video parts and the sounds that the cache lacks: several at once, with a retry at other settings if a
// source needs that, and with a count of what could be decoded.

package engine

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"cutroom/internal/base/rescue"
	"cutroom/internal/film/audio"
	"cutroom/internal/film/media"
	"cutroom/internal/film/media/container"
)

// mostExpensiveFirst orders by cost.
func mostExpensiveFirst[T interface{ cost() float64 }](a, b T) int {
	return cmp.Compare(b.cost(), a.cost())
}

// makeParts makes every video part and every sound that the cache lacks. Cores and memory limit how many video parts
// are made at once (see machine.go). The most expensive parts go first, so that small ones fill the gaps at the end.
// Sounds need little CPU and memory, so they are made alongside the video parts.
func (r *run) makeParts(ctx context.Context) error {
	missing := r.missingParts(ctx)
	if err := r.reserveSpace(); err != nil {
		return err
	}
	slices.SortStableFunc(missing, mostExpensiveFirst)
	var parts []Part
	for _, p := range missing {
		p.task = r.meter.work(p.cost() / float64(r.machine().atOnce(r.plan, missing[0].threads)))
		parts = append(parts, Part{p.Key, p.threads})
	}
	group, ctx := errgroup.WithContext(ctx)
	if len(missing) > 0 {
		group.Go(rescue.Func(func() error { return r.partLoop().All(ctx, parts) }))
	}
	audioLanes := 1
	if len(missing) == 0 {
		audioLanes = r.cfg.Cores
	}
	decodes, stretches := r.missingSounds(ctx, audioLanes)
	group.Go(rescue.Func(func() error {
		if err := each(ctx, audioLanes, decodes, r.decodeAudio); err != nil {
			return err
		}
		return each(ctx, audioLanes, stretches, r.makeStretch)
	}))
	if err := group.Wait(); err != nil {
		return err
	}
	for _, p := range r.plan.Parts {
		if p.decoded != nil {
			r.stats.FramesEncoded += p.Frames
		}
	}
	return r.checkDamage()
}

// missingParts returns the parts that the cache lacks.
func (r *run) missingParts(ctx context.Context) (missing []*videoPart) {
	for _, p := range r.plan.Parts {
		if !r.fetchPart(ctx, p) {
			missing = append(missing, p)
		}
	}
	r.stats.VideoParts, r.stats.VideoPartsReused = len(r.plan.Parts), len(r.plan.Parts)-len(missing)
	if len(missing) > 0 {
		planThreads(r.plan, missing, r.machine())
	}
	return missing
}

// missingSounds returns the sounds that the cache lacks, the longest first. Stretches read what the decodes write.
func (r *run) missingSounds(ctx context.Context, lanes int) (decodes []*decodedAudio, stretches []*stretchedAudio) {
	needed := map[*decodedAudio]bool{}
	for _, s := range r.plan.Stretches {
		if !r.fetch(ctx, s.Key, r.path(s.File)) {
			s.task = r.meter.work(s.cost() / float64(lanes))
			stretches = append(stretches, s)
			needed[s.Audio] = true
		}
	}
	for _, s := range r.plan.Audio {
		if (needed[s] || r.heard(s)) && !r.fetch(ctx, s.Key, r.path(s.File)) {
			s.task = r.meter.work(s.cost() / float64(lanes))
			decodes = append(decodes, s)
		}
	}
	slices.SortStableFunc(decodes, mostExpensiveFirst)
	slices.SortStableFunc(stretches, mostExpensiveFirst)
	return decodes, stretches
}

// each calls do for all entries in their order, up to parallel at once.
func each[T any](ctx context.Context, parallel int, all []T, do func(context.Context, T) error) error {
	lanes, ctx := errgroup.WithContext(ctx)
	lanes.SetLimit(parallel)
	for _, x := range all {
		lanes.Go(rescue.Func(func() error {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return do(ctx, x)
		}))
	}
	return lanes.Wait()
}

// heard reports whether the mix reads the sound itself, not only stretches of it.
func (r *run) heard(s *decodedAudio) bool {
	return slices.ContainsFunc(r.plan.Regions, func(p *region) bool { return p.File == s.File })
}

// makePart encodes one video part. It caches the part and reports true if all of it could be decoded.
func (r *run) makePart(ctx context.Context, p *videoPart) (whole bool, err error) {
	out := unfinished(p.File)
	if err := r.reserveSpace(); err != nil {
		return false, err
	}
	got, err := r.encodeWithRetries(ctx, p, out)
	if err != nil {
		return false, r.blameEncoder(ctx, err, p)
	}
	for i, c := range got {
		if c.got == 0 || c.noise {
			return false, undecoded(p.shots[i].what())
		}
	}
	if err := container.Neutralize(r.path(out)); err != nil {
		return false, fmt.Errorf("%s: %w", p.Name, err)
	}
	if err := p.check(r.path(out)); err != nil {
		return false, err
	}
	p.decoded = got
	whole = !slices.ContainsFunc(got, func(c coverage) bool { return !c.complete() })
	if err := r.finish(ctx, p.Key, p.File, whole); err != nil {
		return false, err
	}
	p.task.finish()
	return whole, nil
}

// what names the shot's pictures in a message.
func (s *shot) what() string { return fmt.Sprintf("segments[%d]: the video", s.segment) }

// encodeWithRetries encodes a part, and again if its sources need special treatment. It returns how much of each
// source was decoded in the end.
func (r *run) encodeWithRetries(ctx context.Context, p *videoPart, out string) ([]coverage, error) {
	keys := p.keyframes(0)
	got, err := r.encodePart(ctx, p, out, keys)
	if refusedSize(err) || err == nil && p.rebuilt(r.path(out)) {
		r.log.Info("the picture changes its size or format", "part", p.Name)
		for _, s := range p.shots {
			s.uneven = true
		}
		got, err = r.encodePart(ctx, p, out, keys)
	}
	// Some decoders lose frames after a seek, and broken indexes make seeks land anywhere. Starting earlier, and
	// finally at the start of the file, shows whether the file itself is broken.
	earlier := p.keyframes(3)
	lossy := func(i int) bool { return got[i].missing > 0 && keys[i] > 0 }
	if err == nil && replaceWhere(keys, earlier, lossy) {
		r.log.Info("frames are missing after a seek", "part", p.Name)
		got, err = r.encodePart(ctx, p, out, keys)
	}
	damaged := func(i int) bool { return !got[i].complete() && earlier[i] > 0 }
	if err == nil && replaceWhere(keys, make([]float64, len(keys)), damaged) {
		got, err = r.encodePart(ctx, p, out, keys)
	}
	return got, err
}

// replaceWhere replaces the entries that meet the condition, and reports whether there were any.
func replaceWhere(entries, by []float64, condition func(i int) bool) bool {
	any := false
	for i := range entries {
		if condition(i) {
			entries[i], any = by[i], true
		}
	}
	return any
}

// encodePart runs the part's pass and returns how much of each shot's source was decoded.
func (r *run) encodePart(ctx context.Context, p *videoPart, out string, keys []float64) ([]coverage, error) {
	pass := p.pass(out, keys)
	pass.OnProgress = func(now media.Progress) { p.task.reached(float64(now.Frames) / float64(p.Frames)) }
	for i := range p.shots {
		if err := os.Remove(r.path(p.log(i))); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("render: %w", err)
		}
	}
	corrupt, err := r.encode(ctx, pass)
	if err != nil {
		return nil, err
	}
	got := make([]coverage, len(p.shots))
	frames := 0
	for i, s := range p.shots {
		times, err := readTimes(r.path(p.log(i)))
		if err != nil {
			return nil, err
		}
		got[i] = s.decoded(times)
		frames += s.last + 1 - s.source.info.Video.visibleAt(keys[i], 0)
	}
	for i := range got {
		got[i].noise = 2*corrupt > frames
	}
	return got, nil
}

// blameEncoder returns why a part could not be made. Only a source of which no frame was decoded is to blame.
func (r *run) blameEncoder(ctx context.Context, err error, p *videoPart) error {
	for i, s := range p.shots {
		if times, readErr := readTimes(r.path(p.log(i))); readErr != nil || len(times) == 0 {
			return r.blame(ctx, err, s.what(), undecoded(s.what()))
		}
	}
	if p.memory(p.threads) > r.cfg.Media.MaxMemory()/2 {
		return r.blame(ctx, err, p.shots[0].what(), p.tooLarge())
	}
	return r.blame(ctx, err, p.shots[0].what(), nil)
}

// checkDamage adds up how much of each segment its parts could decode.
func (r *run) checkDamage() error {
	sums := make([]coverage, len(r.job.Timeline.Segments))
	for _, p := range r.plan.Sequence {
		length := framesDuration(p.Frames, p.canvas.Rate)
		for i, s := range p.shots {
			made := coverage{got: length, wanted: length} // the cache keeps only complete parts
			if p.decoded != nil {
				made = p.decoded[i]
			}
			sums[s.segment].got += made.got
			sums[s.segment].wanted += made.wanted
		}
	}
	for i, c := range sums {
		if !c.complete() {
			return damageFault(fmt.Sprintf("segments[%d]", i), c.got, c.wanted)
		}
	}
	return nil
}

// errNoClock reports that the clock of a sound does not tell where its samples belong.
var errNoClock = errors.New("the sound changes or begins again on the way")

// decodeAudio decodes one source's sound.
func (r *run) decodeAudio(ctx context.Context, s *decodedAudio) error {
	what := s.source.user + ": the sound"
	c, err := r.decodeByClock(ctx, s)
	if noClock := errors.Is(err, errNoClock); noClock || err == nil && !c.complete() {
		var end time.Duration
		switch end, err = r.decodeByCount(ctx, s); {
		case err != nil:
		case s.sound().Whole(end):
			c = s.counted(end)
		case noClock: // a count cannot tell where something is missing
			a := s.source.info.Audio
			return damageFault(s.source.user, end-a.First, a.End-a.First)
		}
	}
	if err != nil {
		return r.blame(ctx, err, what, undecoded(what))
	}
	switch {
	case c.wanted > 0 && c.got == 0:
		return undecoded(what)
	case !c.complete():
		return damageFault(s.source.user, c.got, c.wanted)
	}
	s.task.finish()
	return r.finish(ctx, s.Key, s.File, true)
}

// decodeByClock decodes a source's sound by the times of its packets, or returns errNoClock.
func (r *run) decodeByClock(ctx context.Context, s *decodedAudio) (c coverage, err error) {
	if s.source.info.Audio.Clockless {
		return c, errNoClock
	}
	out, log := unfinished(s.File), s.File+".log"
	pass := s.pass(out, log)
	pass.OnProgress = func(now media.Progress) {
		s.task.reached(now.OutTime.Seconds() * sampleRate / float64(max(1, s.To-s.From)))
	}
	if _, err := r.encode(ctx, pass); err != nil {
		return c, err
	}
	st, err := os.Stat(r.path(out))
	if err != nil {
		return c, fmt.Errorf("render: %w", err)
	}
	if s.sound().Rebuilt(st.Size() / audio.FrameBytes) {
		r.log.Info("the sound changes on the way", "source", s.source.user)
		return c, errNoClock
	}
	times, err := readTimes(r.path(log))
	if err != nil {
		return c, err
	}
	return s.decoded(times), nil
}

// decodeByCount decodes a source's sound by counting its samples, and returns where they end.
func (r *run) decodeByCount(ctx context.Context, s *decodedAudio) (end time.Duration, err error) {
	file, err := os.Create(r.path(unfinished(s.File)))
	if err != nil {
		return 0, fmt.Errorf("render: %w", noSpace(err))
	}
	pass := s.counting()
	pass.Dir, pass.Watch = r.work, r.watch
	out := bufio.NewWriterSize(file, 256<<10)
	end, err = r.cfg.Media.Count(ctx, s.sound(), pass, out)
	return end, noSpace(cmp.Or(err, out.Flush(), file.Close()))
}

// makeStretch stretches a range of a sound to its tempo.
func (r *run) makeStretch(ctx context.Context, s *stretchedAudio) error {
	if err := s.Write(ctx, r.path(s.Audio.File), s.Audio.From, r.path(unfinished(s.File))); err != nil {
		return noSpace(err)
	}
	s.task.finish()
	return r.finish(ctx, s.Key, s.File, true)
}

// cost estimates the CPU seconds of a decode; only proportions matter.
func (s *decodedAudio) cost() float64 {
	return 0.1 + 0.006*float64(s.To-s.From)/sampleRate
}

// cost estimates the CPU seconds of a stretch.
func (s *stretchedAudio) cost() float64 { return 0.02 * float64(s.Length) / sampleRate }
