// The last pass of a render: the mix is encoded once and muxed with the copied parts, and the file is checked against
// the plan.

package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"cutroom/internal/base/fault"
	"cutroom/internal/film/media"
	"cutroom/internal/film/media/container"
	"cutroom/internal/film/timeline"
)

const partList = "parts.txt"

// final mixes the sound, encodes it once and muxes it with the copied video.
func (r *run) final(ctx context.Context) (Output, error) {
	p := r.plan
	if err := r.duck(ctx); err != nil {
		return Output{}, r.finalError(ctx, err)
	}
	length := framesDuration(p.Frames, p.Canvas.Rate)
	done := r.meter.work(0.1 + 0.02*length.Seconds())
	name, pass := "output.m4a", media.Pass{Name: "mix to m4a", Timeout: r.cfg.FinalTimeout}
	if p.Kind == timeline.Audio {
		pass.Args = audioPass(p, name, time.Now())
	} else {
		if err := os.WriteFile(r.path(partList), []byte(concatList(p)), 0o640); err != nil {
			return Output{}, fmt.Errorf("render: %w", noSpace(err))
		}
		name, pass.Name = "output.mp4", fmt.Sprintf("concat %d parts, mix, mux", len(p.Sequence))
		pass.Args = videoPass(p, r.sameConfig(), name, time.Now())
	}
	if err := r.encodeAudio(ctx, pass, name, done); err != nil {
		return Output{}, r.finalError(ctx, err)
	}
	if err := r.checkOutput(r.path(name)); err != nil {
		return Output{}, err
	}
	out := Output{
		Path: filepath.Join(r.job.Dir, name), Duration: length, Frames: p.Frames, FrameRate: p.Canvas.Rate,
		Width: p.Canvas.Width, Height: p.Canvas.Height, Samples: p.Samples,
	}
	if err := os.Rename(r.path(name), out.Path); err != nil {
		return Output{}, fmt.Errorf("render: %w", err)
	}
	st, err := os.Stat(out.Path)
	if err != nil {
		return Output{}, fmt.Errorf("render: %w", err)
	}
	out.SizeBytes = st.Size()
	done.finish()
	return out, nil
}

// finalError distinguishes time-outs and a full disk from internal errors. The final pass reads no client's file.
func (r *run) finalError(ctx context.Context, err error) error {
	if ctx.Err() == nil && errors.Is(err, media.ErrTimeout) {
		return fault.Failedf(fault.TimedOut, "the render took longer than the allowed %s", r.cfg.FinalTimeout).WithCause(err)
	}
	return r.blame(ctx, err, "", nil)
}

// mixInput returns the arguments that open the mix.
func mixInput() []string {
	return []string{"-protocol_whitelist", "pipe", "-f", "f32le", "-ar", fmt.Sprint(sampleRate), "-ac", "2", "-i", "pipe:0"}
}

// audioEncoder returns the settings chosen by measurements on speech, music, street noise and mixes of them. Noise
// substitution, noise shaping and intensity stereo save bits that these bitrates do not need to save; without them
// the worst errors fall to a third, at about the same noise. -aac_coder fast cannot encode a loud voice or tone: its
// numbers overflow.
func audioEncoder(p *Plan) []string {
	return []string{"-c:a", "aac", "-profile:a", "aac_low", "-aac_pns", "0", "-aac_tns", "0", "-aac_is", "0", "-b:a", p.Profile.AudioBitrate}
}

// audioPass returns the arguments for the m4a of outputKind audio.
func audioPass(p *Plan, out string, created time.Time) []string {
	return slices.Concat(mixInput(), []string{"-map", "0:a:0"}, audioEncoder(p), movieHeader(created),
		[]string{"-f", "ipod", out})
}

// movieTimescale is a multiple of the sample rate and of the common frame rates, so that headers state exact lengths.
const movieTimescale = 240_000

// movieHeader returns the options for the header of a film: none of the sources' metadata, and when it was made.
func movieHeader(created time.Time) []string {
	return []string{"-map_metadata", "-1", "-metadata", "creation_time=" + created.UTC().Format(time.RFC3339),
		"-movie_timescale", fmt.Sprint(movieTimescale), "-movflags", "+faststart"}
}

// reorderDelay is how many frames decoding runs ahead of display, as x264's B-frame pyramid needs.
const reorderDelay = 2

// videoPass concatenates the parts and adds the mix. If the parts' decoder configurations differ, the stream repeats
// each part's own.
func videoPass(p *Plan, same bool, out string, created time.Time) []string {
	convert := "1"
	if same {
		convert = "0"
	}
	parts := []string{"-protocol_whitelist", "file", "-format_whitelist", "concat,mov", "-f", "concat",
		"-auto_convert", convert, "-i", "file:" + partList}
	// The delay between decoding and display depends on how many frames a part has. Recounting over the whole film
	// makes every frame equally long.
	scale := timescale(p.Canvas.Rate)
	ticks := scale / p.Canvas.Rate.Num * p.Canvas.Rate.Den
	recount := []string{"-bsf:v", fmt.Sprintf("setts=pts=PTS:dts=(N-%d)*%d:duration=%d", reorderDelay, ticks, ticks),
		"-video_track_timescale", fmt.Sprint(scale)}
	return slices.Concat(parts, mixInput(), []string{"-map", "0:v:0", "-map", "1:a:0", "-c:v", "copy"}, audioEncoder(p),
		recount, movieHeader(created), []string{"-f", "mp4", out})
}

// sameConfig reports whether all parts have the same decoder configuration. They do, unless another version of the
// encoder made some of them.
func (r *run) sameConfig() bool {
	for _, p := range r.plan.Parts {
		if p.config != r.plan.Parts[0].config {
			r.log.Warn("parts differ in their encoder's configuration", "part", p.Key)
			return false
		}
	}
	return true
}

// concatList returns the input of the concat demuxer. It states each part's duration, because the container rounds
// durations to a millisecond. They are rounded to microseconds from the running total, so that errors do not add up.
func concatList(p *Plan) string {
	var b strings.Builder
	b.WriteString("ffconcat version 1.0\n")
	var frames int64
	start := time.Duration(0)
	for _, part := range p.Sequence {
		frames += part.Frames
		end := framesDuration(frames, p.Canvas.Rate).Round(time.Microsecond)
		fmt.Fprintf(&b, "file '%s'\nduration %.6f\n", part.File, (end - start).Seconds())
		start = end
	}
	return b.String()
}

// checkOutput makes sure that the output matches the plan.
func (r *run) checkOutput(path string) error {
	const packet = 1024 // the encoder adds a packet at the start and pads the last one
	m, err := container.ReadMovie(path)
	samples := media.MulDiv(m.Audio.Ticks, sampleRate, max(1, m.Audio.Timescale))
	film := r.plan.Kind == timeline.Video
	switch {
	case err != nil:
	case !m.IndexFirst:
		err = errors.New("index after the data")
	case samples < r.plan.Samples || samples > r.plan.Samples+3*packet:
		err = fmt.Errorf("%d samples of sound, %d planned", samples, r.plan.Samples)
	case film && m.Video.Samples != r.plan.Frames:
		err = fmt.Errorf("%d frames, %d planned", m.Video.Samples, r.plan.Frames)
	case film && !m.Video.Uniform:
		err = errors.New("frames of unequal length")
	}
	if err != nil {
		return fmt.Errorf("check output: %w", err)
	}
	return nil
}
