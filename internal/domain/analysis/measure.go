// Measures one file: ffmpeg decodes its sound once, through all meters (loudness, onsets, waveform), and the headers
// describe its pictures.

package analysis

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"cutroom/internal/film/audio"
	"cutroom/internal/film/media"
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

// listen decodes the sound once, for all measurements. If the sound turns out to change midway, listen decodes it again
// by counting samples. Sound without a single decodable sample counts as no sound.
func (s *Service) listen(ctx context.Context, file string, p media.Probe, timeout time.Duration) (*Sound, error) {
	sound := p.Sound(file)
	sound.SampleRate = audio.SampleRate
	layout, channels := layoutFor(p.Audio.Channels)
	pass := media.Pass{Name: "analyse sound", Inputs: []string{file}, MaxMemoryBytes: s.limits.MaxMemoryBytes,
		Timeout: max(timeout, time.Millisecond)}
	if !p.Clockless {
		sound.Layout = layout
		m := newMeters(p, channels)
		pass.Args, pass.Stdout = append(sound.Args(), "-c:a", "pcm_f32le", "-f", "f32le", "pipe:1"), m
		if _, err := s.o.Media.Encode(ctx, pass); err != nil {
			return nil, fmt.Errorf("analyse sound: %w", err)
		}
		if !sound.Rebuilt(m.bytes / 4 / int64(channels)) {
			return m.sound(), nil
		}
	}
	if layout == "" {
		layout, channels = "stereo", 2
	}
	sound.Layout = layout
	m := newMeters(p, channels)
	if _, err := s.o.Media.Count(ctx, sound, pass, m); err != nil {
		return nil, fmt.Errorf("analyse sound: %w", err)
	}
	return m.sound(), nil
}

// meters measure sound as it is decoded.
type meters struct {
	loudness *audio.LoudnessMeter
	onsets   *audio.RhythmDetector
	waveform *audio.WaveformDrawer
	all      io.Writer
	bytes    int64
}

func newMeters(p media.Probe, channels int) *meters {
	m := &meters{loudness: audio.NewLoudnessMeter(channels), onsets: audio.NewRhythmDetector(channels),
		waveform: audio.NewFloatWaveformDrawer(audio.SampleRate, channels)}
	late := media.MulDiv(int64(max(0, p.AudioPackets.First-p.Zero())), audio.SampleRate, int64(time.Second))
	begun := &skipper{m.loudness, late * 4 * int64(channels)}
	m.all = io.MultiWriter(begun, m.onsets, m.waveform)
	return m
}

func (m *meters) Write(p []byte) (int, error) {
	m.bytes += int64(len(p))
	return m.all.Write(p)
}

// sound returns what was measured, or nil if there was nothing.
func (m *meters) sound() *Sound {
	found := &Sound{Peaks: m.waveform.Waveform(), OnsetsMs: []int64{}}
	if found.Peaks.Len() == 0 {
		return nil
	}
	if l, ok := m.loudness.Integrated(); ok {
		found.Loudness = rounded(l)
	}
	if peak := m.loudness.TruePeak(); peak > 0 {
		found.TruePeak = rounded(20 * math.Log10(peak))
	}
	for _, at := range m.onsets.Onsets() {
		found.OnsetsMs = append(found.OnsetsMs, at*1000/audio.SampleRate)
	}
	found.OnsetsMs = slices.Compact(found.OnsetsMs)
	return found
}

// skipper drops the first bytes written to it and passes on the rest. The silence before a film's sound begins would
// lower the measured loudness, because it fills parts of gating blocks.
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

// layoutFor returns the layout in which to measure sound with that many channels, and the number of channels of the
// layout. The name is "" for sound that needs no conversion. With more than two channels, loudness depends on the
// position of each channel, such as the centre or the LFE.
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

// rounded rounds a level to a hundredth of a decibel.
func rounded(db float64) *float64 { return new(math.Round(db*100) / 100) }
