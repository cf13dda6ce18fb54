package engine_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"cutroom/internal/film/audio"
	"cutroom/internal/film/timeline"
	"cutroom/internal/testkit/mediatest"
)

// loudnessOf measures a file: LUFS and dBTP. ok is false if it has no loudness.
func loudnessOf(t *testing.T, path string) (lufs, peak float64, ok bool) {
	t.Helper()
	meter := audio.NewLoudnessMeter(2)
	sides := mediatest.Samples(t, path)
	var b []byte
	for i := range sides[0] {
		for side := range 2 {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(sides[side][i])))
		}
	}
	if _, err := meter.Write(b); err != nil {
		t.Fatal(err)
	}
	lufs, ok = meter.Integrated()
	return lufs, 20 * math.Log10(meter.TruePeak()), ok
}

// The delivered film has the requested loudness, unless its true peak reaches the limit first.
func TestLoudnessIsMet(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	dir := t.TempDir()
	var in, encode []string
	signal := func(name, graph string) string {
		path := filepath.Join(dir, name+".wav")
		encode = append(encode, "-map", fmt.Sprint(len(in)/4), "-ac", "2", "-ar", "48000", "-c:a", "pcm_f32le", path)
		in = append(in, "-f", "lavfi", "-i", graph)
		return path
	}
	speech := signal("speech", "aevalsrc=exprs='0.2*(sin(2*PI*180*t)+0.6*sin(2*PI*720*t)+0.3*sin(2*PI*2600*t))*pow(abs(sin(2*PI*1.7*t)),2)*lt(mod(t,3),2.2)':s=48000:d=3")
	music := signal("music", "aevalsrc=exprs='0.12*(sin(2*PI*220*t)+sin(2*PI*277*t)+sin(2*PI*330*t))*exp(-2*mod(t,0.5))+0.02*sin(2*PI*6000*t)':s=48000:d=3")
	loud := signal("loud", "anoisesrc=d=3:c=pink:r=48000:a=1:seed=4")
	clicks := signal("clicks", "aevalsrc=exprs='0.6*lt(mod(t,1),0.002)*sin(2*PI*900*t)+0.01*sin(2*PI*300*t)':s=48000:d=3")
	mediatest.FFmpeg(t, append(in, encode...)...)
	for name, tt := range map[string]struct {
		source string
		want   timeline.Loudness
	}{
		"speech":                {speech, timeline.DefaultLoudness},
		"music, turned down":    {music, timeline.Loudness{TargetLUFS: -31, MaxTruePeakDB: 0}},
		"loud, up to the brim":  {loud, timeline.Loudness{TargetLUFS: -9, MaxTruePeakDB: 0}},
		"clicks: the peak ends": {clicks, timeline.Loudness{TargetLUFS: -9, MaxTruePeakDB: -9}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tl := sound(cut(tt.source, 0, 0))
			tl.Loudness = &tt.want
			out := b.render(t, tl)
			lufs, peak, _ := loudnessOf(t, out.Path)
			t.Logf("%.2f LUFS, %.2f dBTP", lufs, peak)
			if peak > tt.want.MaxTruePeakDB+0.5 || peak > 0.05 {
				t.Errorf("true peak %.2f dB, at most %.2f was asked for", peak, tt.want.MaxTruePeakDB)
			}
			if math.Abs(lufs-tt.want.TargetLUFS) > 0.5 && !(lufs < tt.want.TargetLUFS && peak > tt.want.MaxTruePeakDB-0.5) {
				t.Errorf("%.2f LUFS with a true peak of %.2f dB, want %+v", lufs, peak, tt.want)
			}
		})
	}
	t.Run("what has none", func(t *testing.T) {
		t.Parallel()
		tl := sound(cut(music, 0, 390))
		plain := b.render(t, tl)
		tl.Loudness = &timeline.DefaultLoudness
		if given := b.render(t, tl); !reflect.DeepEqual(mediatest.Samples(t, given.Path), mediatest.Samples(t, plain.Path)) {
			t.Error("a sound shorter than a block is changed")
		}
	})
	t.Run("film", func(t *testing.T) {
		t.Parallel()
		clip := mediatest.Clip(t, mediatest.Spec{Width: 160, Height: 120, Duration: 2 * time.Second, Tone: 440, Amplitude: 0.05})
		tl := film(cut(clip, 0, 0))
		tl.Loudness = &timeline.Loudness{TargetLUFS: -20, MaxTruePeakDB: -1}
		tl.Segments[0].Points = []timeline.Point{{At: 0, Volume: 0.5}}
		tl.Clips = []timeline.Clip{{SourceKey: clip, Volume: 0.1, Speed: 1, FadeIn: time.Second, Loop: true, Ducking: &timeline.DefaultDucking}}
		if lufs, _, _ := loudnessOf(t, b.render(t, tl).Path); math.Abs(lufs+20) > 0.5 {
			t.Errorf("%.2f LUFS", lufs)
		}
	})
}
