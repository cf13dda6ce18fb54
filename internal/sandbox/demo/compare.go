package demo

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"cutroom/internal/sandbox/demo/meter"
)

// separated checks the stems: as long as the service says, and together
// exactly what was sent.
func (j *judge) separated(ctx context.Context) error {
	j.group = "stems"
	original, err := j.decode(ctx, j.audio)
	if err != nil {
		return err
	}
	tracks := map[string]meter.Sound{}
	var speakers []string
	for id, path := range j.stems {
		if tracks[id], err = j.decode(ctx, path); err != nil {
			return err
		}
		if strings.HasPrefix(id, "speaker_") {
			speakers = append(speakers, id)
		}
	}
	slices.Sort(speakers)
	voice, hasVoice := tracks[voiceStem]
	background, hasBackground := tracks[backgroundStem]
	if !hasVoice || !hasBackground {
		j.add("tracks", "voice and background", fmt.Sprintf("%d stems", len(j.stems)), false)
		return nil
	}
	j.span("length of the voice", j.stemLength, voice.Length(), time.Millisecond)
	j.span("length of the original", original.Length(), voice.Length(), 2*aacFrame)
	largest, _ := meter.Difference(original, meter.Sum(voice, background))
	j.add("voice + background = original", fmt.Sprintf("every sample within %.0f steps of 16 bits", sampleWithin*32768),
		fmt.Sprintf("largest difference %.1f steps", largest*32768), largest <= sampleWithin)
	if len(speakers) > 0 {
		sum := tracks[speakers[0]]
		for _, id := range speakers[1:] {
			sum = meter.Sum(sum, tracks[id])
		}
		largest, _ = meter.Difference(voice, sum)
		j.add(strings.ReplaceAll(strings.Join(speakers, " + "), "_", " ")+" = voice", fmt.Sprintf("every sample within %.0f steps of 16 bits", sampleWithin*32768),
			fmt.Sprintf("largest difference %.1f steps", largest*32768), largest <= sampleWithin)
	}
	return nil
}

// byReference checks that both submission paths give the same film.
func (j *judge) byReference(ctx context.Context) error {
	if j.v3 == "" {
		j.group = "film-v3.mp4"
		j.tell("not rendered", "the service has no object store")
		return nil
	}
	if err := j.container(ctx, "film-v3.mp4", j.v3); err != nil {
		return err
	}
	same, err := sameBytes(j.video, j.v3)
	if err != nil {
		return err
	}
	if same {
		j.add("same film as film.mp4", "yes", "yes, to the byte", true)
		return nil
	}
	return j.sameSound(ctx, "same sound as film.mp4", j.v3)
}

// soundOnly checks the render without pictures.
func (j *judge) soundOnly(ctx context.Context) error {
	j.group = "film.m4a"
	m, err := meter.Probe(ctx, j.sound)
	if err != nil {
		return err
	}
	if m.Audio == nil {
		j.add("streams", "audio", "none", false)
		return nil
	}
	codec := m.Audio.Codec
	if m.Video != nil {
		codec += " and " + m.Video.Codec
	}
	j.equal("streams", "aac", codec)
	heard, err := j.decode(ctx, j.sound)
	if err != nil {
		return err
	}
	j.span("length", j.film.length(), heard.Length(), aacFrame+time.Millisecond)
	return j.sameSound(ctx, "same sound as film.mp4", j.sound)
}

// sameSound checks that a render sounds like film.mp4.
func (j *judge) sameSound(ctx context.Context, name, path string) error {
	a, err := j.decode(ctx, j.video)
	if err != nil {
		return err
	}
	b, err := j.decode(ctx, path)
	if err != nil {
		return err
	}
	_, relative := meter.Difference(a, b)
	level := b.Level() - a.Level()
	text := fmt.Sprintf("difference %.0f dB, level %+.2f dB", relative, level)
	if math.IsInf(relative, -1) {
		text = "no difference in any sample"
	}
	j.add(name, fmt.Sprintf("difference at most %.0f dB", j.restAtMost()), text, relative <= j.restAtMost() && math.Abs(level) <= levelWithin)
	return nil
}

func sameBytes(a, b string) (bool, error) {
	left, err := os.ReadFile(a)
	if err != nil {
		return false, fmt.Errorf("compare films: %w", err)
	}
	right, err := os.ReadFile(b)
	if err != nil {
		return false, fmt.Errorf("compare films: %w", err)
	}
	return bytes.Equal(left, right), nil
}
