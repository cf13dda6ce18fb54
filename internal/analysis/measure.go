package analysis

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"cutroom/internal/audio"
	"cutroom/internal/media"
)

// analyse reads and decodes a local file.
func (s *Service) analyse(ctx context.Context, file string) (Analysis, error) {
	began := time.Now()
	probe, err := s.o.Media.ProbeWithin(ctx, file, s.limits)
	if err != nil {
		return Analysis{}, blame(err)
	}
	if probe.Unshown != "" {
		return Analysis{}, fmt.Errorf("%w: it %s", errNotMedia, probe.Unshown)
	}
	found := Analysis{DurationMs: probe.End().Round(time.Millisecond).Milliseconds(), Video: describeVideo(probe)}
	if probe.AudioPackets.Packets > 0 {
		if found.Sound, err = s.listen(ctx, file, probe, s.limits.Timeout-time.Since(began)); err != nil {
			return Analysis{}, blame(err)
		}
	}
	if found.Video == nil && found.Sound == nil {
		return Analysis{}, errNotMedia
	}
	return found, nil
}

// blame separates failures of the file from our own.
func blame(err error) error {
	switch media.BlameFor(err) {
	case media.BlameMachine:
		return errBusy.WithCause(err)
	case media.BlameCost:
		return fmt.Errorf("%w: %w", errExhausted, err)
	case media.BlameFile:
		return fmt.Errorf("%w: %w", errNotMedia, err)
	}
	return err
}

func describeVideo(p media.Probe) *Video {
	if p.VideoPackets.Packets == 0 {
		return nil
	}
	rate := p.Video.AvgFrameRate
	if !rate.Known() {
		rate = p.Video.FrameRate
	}
	return &Video{Width: p.Video.DisplayWidth, Height: p.Video.DisplayHeight, FrameRate: math.Round(rate.Float()*1000) / 1000}
}

// listen decodes the sound once, for all measurements. Sound without a single decodable
// sample counts as none.
func (s *Service) listen(ctx context.Context, file string, p media.Probe, timeout time.Duration) (*Sound, error) {
	layout, channels := layoutFor(p.Audio.Channels)
	loudness := audio.NewLoudnessMeter(channels)
	onsets := audio.NewRhythmDetector(channels)
	waveform := audio.NewFloatWaveformDrawer(audio.SampleRate, channels)
	late := media.MulDiv(int64(max(0, p.AudioPackets.First-p.Zero())), audio.SampleRate, int64(time.Second))
	begun := &skipper{loudness, late * 4 * int64(channels)}
	sound := p.Sound(file)
	sound.SampleRate, sound.Layout = audio.SampleRate, layout
	_, err := s.o.Media.Encode(ctx, media.Pass{
		Name: "analyse sound", Args: append(sound.Args(), "-c:a", "pcm_f32le", "-f", "f32le", "pipe:1"), Inputs: []string{file},
		Stdout: io.MultiWriter(begun, onsets, waveform), Timeout: max(timeout, time.Millisecond), MaxMemoryBytes: s.limits.MaxMemoryBytes,
	})
	if err != nil {
		return nil, fmt.Errorf("analyse sound: %w", err)
	}
	found := &Sound{Peaks: waveform.Waveform(), OnsetsMs: []int64{}}
	if found.Peaks.Len() == 0 {
		return nil, nil
	}
	if l, ok := loudness.Integrated(); ok {
		found.Loudness = rounded(l)
	}
	if peak := loudness.TruePeak(); peak > 0 {
		found.TruePeak = rounded(20 * math.Log10(peak))
	}
	for _, at := range onsets.Onsets() {
		found.OnsetsMs = append(found.OnsetsMs, at*1000/audio.SampleRate)
	}
	found.OnsetsMs = slices.Compact(found.OnsetsMs)
	return found, nil
}

// skipper drops the first bytes written to it and passes on the rest. The silence before a film's
// sound begins would make the sound quieter, as it fills parts of gating blocks.
type skipper struct {
	io.Writer
	bytes int64 // still to skip
}

func (s *skipper) Write(p []byte) (int, error) {
	skip := min(s.bytes, int64(len(p)))
	s.bytes -= skip
	n, err := s.Writer.Write(p[skip:])
	return int(skip) + n, err
}

// layoutFor returns the layout in which sound of so many channels is measured, and its
// number of channels. It is "" for sound whose channels need no conversion. The loudness of
// the others depends on the place of each channel, such as the centre or the LFE.
func layoutFor(channels int) (name string, n int) {
	switch {
	case channels <= 2:
		return "", channels
	case channels <= 6:
		return "5.1", 6
	case channels <= 8:
		return "7.1", 8
	}
	return "stereo", 2
}

// rounded is a level to a hundredth of a decibel.
func rounded(db float64) *float64 { return new(math.Round(db*100) / 100) }
