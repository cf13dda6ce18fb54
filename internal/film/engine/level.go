package engine

import (
	"cmp"
	"context"
	"io"
	"math"

	"cutroom/internal/film/audio"
	"cutroom/internal/film/media"
	"cutroom/internal/film/media/container"
)

// These limits keep the encoded sound within full scale.
const (
	// usualCeiling is where a peak above full scale ends up: 0.2 dB below full scale, because the AAC encoder raises
	// peaks.
	usualCeiling = 0.977
	// quietPeak is a peak of the mix that no encoder raises above full scale: the worst encoding errors seen were
	// 0.18.
	quietPeak = 0.7
	// encodeTries is how often the mix may be encoded until it decodes within full scale. The first lower ceiling has
	// always been enough; the last one is half.
	encodeTries = 4
	// How many dB a delivered film may be quieter or louder than requested. The API promises 0.5.
	maxTooQuiet, maxTooLoud = 0.4, 0.3
)

// encodeAudio runs the final pass on the mix. AAC is lossy, so the result is measured. If it is out of bounds, the
// mix is made again at another level.
func (r *run) encodeAudio(ctx context.Context, pass media.Pass, name string, done *task) error {
	level := audio.Level{Gain: 1, Threshold: 1, Ceiling: usualCeiling}
	normalised := false
	if r.job.Timeline.Loudness != nil {
		var err error
		if level.Gain, normalised, err = r.loudnessGain(ctx); err != nil {
			return err
		}
	}
	for try := 1; ; try++ {
		peak, err := r.encodeMix(ctx, pass, level, done)
		if err != nil || try == encodeTries {
			return err
		}
		var again audio.Level
		if normalised {
			again, err = r.matchLoudness(ctx, name, level)
		} else {
			again, err = r.withinFullScale(ctx, name, level, peak, try == encodeTries-1)
		}
		if err != nil || again == level {
			return err
		}
		level = again
	}
}

// mixer returns the mix of the film at a level.
func (r *run) mixer(level audio.Level) *audio.Mixer {
	mix := audio.NewMixer(r.work, played(r.plan.Regions), r.plan.Samples, level)
	mix.Gain = r.plan.Gain
	return mix
}

// encodeMix encodes the mix at a level and returns its highest sample before the limiter.
func (r *run) encodeMix(ctx context.Context, pass media.Pass, level audio.Level, done *task) (peak float64, err error) {
	mix := r.mixer(level)
	mix.OnProgress = func(frames int64) { done.reached(float64(frames) / float64(r.plan.Samples)) }
	pass.Stdin = mix
	_, err = r.encode(ctx, pass)
	return mix.Peak(), cmp.Or(mix.Err(), err)
}

// withinFullScale returns the level at which the output decodes within full scale; players would clip anything beyond
// it. peak is the mix's peak; last means that no further level will be tried.
func (r *run) withinFullScale(ctx context.Context, name string, level audio.Level, peak float64, last bool) (audio.Level, error) {
	if peak <= quietPeak {
		return level, nil
	}
	var decoded audio.PeakMeter
	if err := r.decodeOutput(ctx, name, &decoded); err != nil || decoded.Peak() <= 1 {
		return level, err
	}
	level.Ceiling = min(level.Ceiling, peak) / decoded.Peak() * 0.99
	if last {
		level.Ceiling = 0.5
	}
	level.Threshold = level.Ceiling
	r.log.Info("the sound decodes beyond full scale; mixed again", "peak", decoded.Peak(), "ceiling", level.Ceiling)
	return level, nil
}

// loudnessGain measures the mix and returns the gain to its headroom. Sound without a loudness, such as silence, is
// not normalised.
func (r *run) loudnessGain(ctx context.Context) (gain float64, normalised bool, err error) {
	mix := r.mixer(audio.Untouched)
	meter := audio.NewLoudnessMeter(2)
	if _, err := io.Copy(meter, ending{ctx, mix}); err != nil {
		return 1, false, err
	}
	if _, ok := meter.Integrated(); !ok {
		return 1, false, nil
	}
	return fromDB(r.headroom(meter)), true, nil
}

// matchLoudness measures the output and returns another level if it misses the requested loudness: AAC drops the
// highest tones and raises peaks.
func (r *run) matchLoudness(ctx context.Context, name string, level audio.Level) (audio.Level, error) {
	meter := audio.NewLoudnessMeter(2)
	if err := r.decodeOutput(ctx, name, meter); err != nil {
		return level, err
	}
	if _, ok := meter.Integrated(); !ok {
		return level, nil
	}
	change := r.headroom(meter)
	if beyond := toDB(meter.TruePeak()); beyond > 0 { // players would clip it
		change = min(change, -beyond-maxTooLoud)
	}
	if -maxTooLoud <= change && change <= maxTooQuiet {
		return level, nil
	}
	level.Gain *= fromDB(change)
	r.log.Info("the sound misses its loudness; mixed again", "change_db", change)
	return level, nil
}

// headroom returns the gain change, in dB, that brings the measured sound to the requested loudness, or to the
// true-peak limit if it reaches that first.
func (r *run) headroom(meter *audio.LoudnessMeter) float64 {
	want := r.job.Timeline.Loudness
	loudness, _ := meter.Integrated()
	return min(want.TargetLUFS-loudness, want.MaxTruePeakDB-toDB(meter.TruePeak()))
}

func toDB(gain float64) float64 { return 20 * math.Log10(gain) }
func fromDB(db float64) float64 { return math.Pow(10, db/20) }

// decodeOutput writes the samples of the output's sound to a meter.
func (r *run) decodeOutput(ctx context.Context, name string, meter io.Writer) error {
	args := append(media.InputArgs(container.MP4, r.path(name)), "-map", "0:a:0", "-c:a", "pcm_f32le", "-f", "f32le", "pipe:1")
	_, err := r.encode(ctx, media.Pass{Name: "measure the sound", Args: args, Stdout: meter, Timeout: r.cfg.FinalTimeout})
	return err
}
