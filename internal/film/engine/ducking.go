package engine

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"cutroom/internal/film/audio"
	"cutroom/internal/film/timeline"
)

// isVoice reports whether a selection plays speech.
func isVoice(s timeline.Selection) bool {
	return s.StemID == "voice_all" || strings.HasPrefix(s.StemID, "speaker_")
}

// hasVoice reports whether a clip is a voice or a directive selects a voice stem, at any volume. If not, the
// segments' own sound is the voice.
func hasVoice(t timeline.Timeline) bool {
	selectsVoice := func(d timeline.Directive) bool { return slices.ContainsFunc(d.Selections, isVoice) }
	return slices.ContainsFunc(t.Directives, selectsVoice) ||
		slices.ContainsFunc(t.Clips, func(c timeline.Clip) bool { return c.Voice })
}

// duck lowers the music under voices. The whole film is known, so the music is already down when a voice begins.
func (r *run) duck(ctx context.Context) error {
	ducked := slices.DeleteFunc(slices.Clone(r.plan.Regions), func(x *region) bool { return x.ducking == nil })
	if len(ducked) == 0 {
		return nil
	}
	voices, err := r.voicePresence(ctx)
	if err != nil {
		return err
	}
	for _, region := range ducked {
		if c := duckingCurve(voices, *region.ducking); len(c) > 0 {
			region.Curves = append(region.Curves, c)
		}
	}
	return nil
}

// voicePresence returns where the film's voices are present.
func (r *run) voicePresence(ctx context.Context) ([]audio.Span, error) {
	voices := slices.DeleteFunc(slices.Clone(r.plan.Regions), func(x *region) bool { return !x.voice })
	mix := audio.NewMixer(r.work, played(voices), r.plan.Samples, audio.Untouched)
	found := audio.NewPresenceDetector()
	if _, err := io.Copy(found, ending{ctx, mix}); err != nil {
		return nil, fmt.Errorf("look for voices: %w", err)
	}
	return found.Spans(), nil
}

// ending is a reader that fails when its context ends.
type ending struct {
	ctx context.Context
	io.Reader
}

func (e ending) Read(p []byte) (int, error) {
	if e.ctx.Err() != nil {
		return 0, context.Cause(e.ctx)
	}
	return e.Reader.Read(p)
}

// duckingCurve falls before each voice begins and rises after it ends. If a pause is too short for both, the rise ends
// where it meets the next fall.
func duckingCurve(voices []audio.Span, d timeline.Ducking) audio.Curve {
	if d.AmountDB == 0 {
		return nil
	}
	attack, release := float64(samplesOf(d.Attack)), float64(samplesOf(d.Release))
	low := fromDB(-d.AmountDB)
	var c audio.Curve
	for i, v := range voices {
		begin, end := float64(v.Start), float64(v.End)
		if i == 0 {
			c = append(c, audio.Knot{At: begin - attack, Gain: 1, Shape: audio.Decibels})
		}
		c = append(c, audio.Knot{At: begin, Gain: low}, audio.Knot{At: end, Gain: low, Shape: audio.Decibels})
		if i == len(voices)-1 {
			c = append(c, audio.Knot{At: end + release, Gain: 1})
			continue
		}
		next := float64(voices[i+1].Start)
		if pause := next - end; pause < attack+release {
			share := pause / (attack + release) // fraction of the way up that the pause allows, in decibels
			c = append(c, audio.Knot{At: end + share*release, Gain: math.Pow(low, 1-share), Shape: audio.Decibels})
			continue
		}
		c = append(c, audio.Knot{At: end + release, Gain: 1}, audio.Knot{At: next - attack, Gain: 1, Shape: audio.Decibels})
	}
	return c
}
