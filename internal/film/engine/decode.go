// Which ranges of a source's sound are decoded, and the ffmpeg passes that decode them to PCM; then the ranges that are
// stretched.

package engine

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"cutroom/internal/film/audio"
	"cutroom/internal/film/media"
)

// audioVersion is part of every key. Raise it when decoding the same source gives different samples.
const audioVersion = 8

// decodedAudio is one source's sound, decoded once and without interruption to 48 kHz stereo. Cuts are reads at exact
// offsets.
type decodedAudio struct {
	Key  string
	File string // in the job's folder: interleaved little-endian float32

	// The file contains the source's samples [From, To) at 48 kHz, with silence before its sound begins; sample 0
	// plays at the source's time 0. At the end it may be shorter than To.
	From, To int64

	source *Source
	need   []span // what the timeline plays, in source samples
	task   *task  // its share of the progress
}

const (
	// wholeAudio is the maximum length of a sound that is always decoded entirely. That is cheap, and later edits find
	// it in the cache.
	wholeAudio = 3 * time.Minute
	// maxWholeAudio is the maximum length of a sound that is decoded entirely if a quarter of it is used.
	maxWholeAudio = 15 * time.Minute
	// windowGrid is the grid, in samples, to which windows are rounded outwards, so that a slightly different trim
	// still finds them in the cache.
	windowGrid = 10 * sampleRate
	// readMargin is how many samples are read before and after what plays, because a stretch searches around its ends
	// for the best place to join.
	readMargin = sampleRate / 4
)

// planDecodes decides what to decode of each source, in the order of first use.
func planDecodes(uses []audioUse) []*decodedAudio {
	needs := map[*Source][]span{}
	for _, u := range uses {
		needs[u.source] = append(needs[u.source], u.window())
	}
	var all []*decodedAudio
	for _, u := range uses {
		need := needs[u.source]
		if need == nil {
			continue // planned with an earlier use
		}
		delete(needs, u.source)
		for _, w := range windows(need, samplesOf(u.source.info.Audio.End)) {
			s := &decodedAudio{File: fmt.Sprintf("sound%03d.f32", len(all)), From: w.from, To: w.to, source: u.source}
			for _, n := range need {
				if n.from < w.to && n.to > w.from {
					s.need = append(s.need, n)
				}
			}
			s.Key = newKey("sound").
				add("version", audioVersion).add("source", s.source.SHA256).add("stream", s.source.info.Audio.Index).
				add("from", s.From).add("to", s.To).String() + ".f32"
			all = append(all, s)
		}
	}
	return all
}

// window is the range of the source that the use reads.
func (u audioUse) window() span {
	from := int64(math.Floor(u.from))
	s := span{from, from + int64(math.Ceil(u.stretch().Source(float64(u.length))))}
	if u.turned {
		s = span{u.last - s.to + 1, u.last - s.from + 1}
	}
	return s
}

// holding returns the decode that contains what the use reads.
func holding(all []*decodedAudio, u audioUse) *decodedAudio {
	w := u.window()
	var last *decodedAudio
	for _, s := range all {
		if s.source != u.source {
			continue
		}
		if w.from < s.To && w.to > s.From {
			return s
		}
		last = s
	}
	return last // the use lies outside the source's sound: any decode returns silence
}

// windows decides what to decode of a source whose sound ends at length.
func windows(needs []span, length int64) []span {
	whole := []span{{0, length}}
	if length <= samplesOf(wholeAudio) {
		return whole
	}
	var wide []span
	for _, n := range needs {
		w := span{max(0, n.from-readMargin), min(length, n.to+readMargin)}
		w.from = w.from / windowGrid * windowGrid
		w.to = min(length, roundUp(w.to, windowGrid))
		if w.from < w.to {
			wide = append(wide, w)
		}
	}
	all := merged(wide)
	used := int64(0)
	for _, w := range all {
		used += w.to - w.from
	}
	if len(all) == 0 || length <= samplesOf(maxWholeAudio) && used >= length/4 {
		return whole
	}
	return all
}

// merged sorts spans and joins those that touch or overlap.
func merged(spans []span) []span {
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	var all []span
	for _, s := range spans {
		if n := len(all); n > 0 && s.from <= all[n-1].to {
			all[n-1].to = max(all[n-1].to, s.to)
		} else {
			all = append(all, s)
		}
	}
	return all
}

// sound returns the window of the source's sound.
func (s *decodedAudio) sound() media.Sound {
	info := s.source.info
	return media.Sound{Path: s.source.Path, Kind: info.Kind, Stream: &info.Audio.AudioStream, Zero: info.Zero,
		From: samplesDuration(s.From), To: samplesDuration(s.To), SampleRate: sampleRate, Layout: "stereo", Log: true,
		First: info.Audio.First, End: info.Audio.End, Clockless: info.Audio.Clockless}
}

// pass returns the ffmpeg run that decodes the sound into out and writes the times of all decoded packets to log (see
// coverage).
func (s *decodedAudio) pass(out, log string) media.Pass {
	pass := s.counting()
	pass.Args = append(s.sound().Args(),
		"-c:a", "pcm_f32le", "-f", "f32le", out,
		"-map", "[log]", "-c:a", "pcm_s16le", "-f", "mkvtimestamp_v2", log)
	return pass
}

// counting returns the ffmpeg run that decodes the sound without its clock, see media.Runner.Count.
func (s *decodedAudio) counting() media.Pass {
	return media.Pass{Name: fmt.Sprintf("decode the sound of %s", s.source.user), Inputs: []string{s.source.Path},
		Timeout: passTimeout(samplesDuration(s.To-s.From), 0.5)}
}

// Raise stretchVersion when stretching the same samples gives a different result.
const stretchVersion = 3

// stretchedAudio is a range of a sound at another tempo but the same pitch, or backwards.
type stretchedAudio struct {
	Key  string
	File string // in the job's folder

	Audio *decodedAudio
	audio.Stretch
	task *task // its share of the progress
}

func newStretch(sound *decodedAudio, u audioUse) *stretchedAudio {
	s := &stretchedAudio{Audio: sound, Stretch: u.stretch()}
	k := newKey("stretch").
		add("version", stretchVersion).add("sound", audioVersion).
		add("source", sound.source.SHA256).add("stream", sound.source.info.Audio.Index).
		add("from", decimal(u.from)).add("tempo", decimal(u.tempo)).add("length", u.length)
	if u.pace != nil {
		k = k.add("pace", *u.pace)
	}
	if u.turned {
		k = k.add("backwardsFrom", u.last)
	}
	s.Key = k.String() + ".f32"
	return s
}
