package test

import (
	"fmt"
	"math"
	"path/filepath"
	"reflect"
	"testing"

	"cutroom/internal/testkit/apitest"
	"cutroom/internal/testkit/mediatest"
)

// gradient is a clip of 160x120 at 30 frames per second, without colour. Its luma identifies each point of each frame:
// from dark it rises by 25 from left to right, by 15 from top to bottom, and by 4 a frame for 5 frames.
func gradient(t testing.TB, dark int, tone float64) string {
	path := filepath.Join(t.TempDir(), "gradient.mp4")
	mediatest.FFmpeg(t, "-f", "lavfi", "-i", fmt.Sprintf("color=black:s=160x120:r=30:d=2,format=yuv420p,"+
		"geq=lum='%d+25*X/160+15*Y/120+4*mod(N,5)':cb=128:cr=128", dark),
		"-f", "lavfi", "-i", fmt.Sprintf("aevalsrc=exprs='0.25*sin(2*PI*%g*t)':s=48000:d=2", tone),
		"-c:v", "libx264", "-preset", "veryfast", "-crf", "1", "-color_range", "tv", "-colorspace", "bt709", "-color_primaries", "bt709",
		"-color_trc", "bt709", "-c:a", "aac", path)
	return path
}

// The first and last frames of a film fade from and to a colour over whatever joins lie there, with the weights of
// the contract, and the whole mix fades with them. All forms of a request take the fades.
func TestRenderBothEnds(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	clip := gradient(t, 100, 440)
	media := []apitest.Part{apitest.File("video_0", clip), apitest.File("bgm_0", music(t))}
	cut := func(order, from, to int) M {
		return apitest.With(apitest.Segment("video_0", order, clipLength), M{"trimStartMs": from, "trimEndMs": to})
	}
	joined := []M{cut(0, 0, 1000), apitest.With(cut(1, 500, 1500), M{"transition": M{"type": "fadeWhite", "durationMs": 400}}),
		apitest.With(cut(2, 200, 1200), M{"transition": M{"type": "dissolve", "durationMs": 400}})}
	for _, tt := range []struct {
		name        string
		config      M
		in, out     int // frames
		first, last int // luma of the colours
		frames      int
	}{
		{"over a fade and a dissolve", M{"segments": joined, "fadeIn": M{"color": "white", "durationMs": 1100}, "fadeOut": M{"durationMs": 1234}},
			33, 37, 235, 16, 78},
		{"with defaults, over music alone", M{"segments": []M{apitest.With(cut(0, 0, 2000), M{"volumeScale": 0})}, "fadeIn": M{}, "fadeOut": M{"color": "white"},
			"bgmClips": []M{{"startMs": 0, "audioFileKey": "bgm_0"}}}, 15, 15, 16, 235, 60},
		{"as long as the film", M{"segments": []M{cut(0, 0, 500)}, "fadeIn": M{"durationMs": 5000}, "fadeOut": M{"durationMs": 5000}},
			7, 7, 16, 16, 15},
		{"at the end", M{"segments": []M{cut(0, 0, 1000)}, "fadeIn": nil, "fadeOut": M{"durationMs": 100}}, 0, 3, 16, 16, 30},
	} {
		t.Run(tt.name, func(t *testing.T) {
			u := apitest.Shared(t).SignIn(t) // a user may submit only a few renders a minute
			tt.config["quality"] = "high"
			plain := apitest.With(tt.config, M{"fadeIn": nil, "fadeOut": nil})
			film, without := u.RenderFilm(t, tt.config, media...), u.RenderFilm(t, plain, media...)
			got, base := mediatest.Lumas(t, film, 160, 120), mediatest.Lumas(t, without, 160, 120)
			if len(got) != tt.frames || len(base) != tt.frames {
				t.Fatalf("%d frames, %d without the fades, want %d", len(got), len(base), tt.frames)
			}
			for n := range got {
				in, out := max(0, float64(tt.in-n)/float64(tt.in)), max(0, float64(tt.out-len(got)+n+1)/float64(tt.out))
				want, tolerance := mixedLuma(base[n], tt.first, in), 6
				if in == 0 {
					want = mixedLuma(base[n], tt.last, out)
				}
				if in == 1 || out == 1 {
					tolerance = 1 // of the encoder; the pictures it gets are pure
				}
				for i, luma := range got[n] {
					if d := math.Abs(float64(luma) - want[i]); d > float64(tolerance) {
						t.Fatalf("frame %d: pixel %d is %d, want %.1f", n, i, luma, want[i])
					}
				}
			}
			sound, unfaded := mediatest.Samples(t, film), mediatest.Samples(t, without)
			total := float64(len(got)) * 1600
			for c := range sound {
				for n := range min(len(sound[c]), len(unfaded[c]), int(total)) {
					gain, at := 1.0, float64(n)+0.5
					if tt.in > 0 {
						gain = min(gain, at/(float64(tt.in)*1600))
					}
					gain = min(gain, (total-at)/(float64(tt.out)*1600))
					if d := math.Abs(sound[c][n] - gain*unfaded[c][n]); d > 0.012 {
						t.Fatalf("sample %d is %.3f, want %.3f of %.3f", n, sound[c][n], gain, unfaded[c][n])
					}
				}
			}
			alone := u.RenderFilm(t, apitest.With(tt.config, M{"outputKind": "audio"}), media...)
			if !reflect.DeepEqual(mediatest.Samples(t, alone), sound) {
				t.Error("the sound alone differs from the film's")
			}
		})
	}

	u := apitest.Shared(t).SignIn(t)
	film := u.RenderFilm(t, M{"videoDurationMs": 1000, "fadeIn": M{"color": "white", "durationMs": 100}}, apitest.File("video", clip))
	if first := mediatest.Lumas(t, film, 160, 120)[0]; first[0] != 235 {
		t.Errorf("legacy mode: the first picture has luma %d, want 235", first[0])
	}
}

// mixedLuma returns the picture mixed with a colour.
func mixedLuma(picture []byte, colour int, weight float64) []float64 {
	mixed := make([]float64, len(picture))
	for i, luma := range picture {
		mixed[i] = float64(luma) + (float64(colour)-float64(luma))*weight
	}
	return mixed
}
