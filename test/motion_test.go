// Films with reverse, smooth and speedPoints, measured to the frame and to the sound.

package test

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"cutroom/internal/testkit/apitest"
	"cutroom/internal/testkit/mediatest"
)

// shade is the luma of the n-th picture of motionClip. Neighbours differ a lot, and no two pictures are the same.
func shade(n int) float64 { return float64(16 + n*67%219) }

// motionClip has 75 pictures of one shade each, 25 a second, and three tones.
func motionClip(t testing.TB) string {
	return fixture(t, "motion", func(t testing.TB) string {
		path := filepath.Join(t.TempDir(), "motion.mp4")
		sound := "0"
		for _, tone := range motionTones {
			sound += fmt.Sprintf("+between(t,%g,%g)", tone[0], tone[1])
		}
		mediatest.FFmpeg(t, "-f", "lavfi", "-i", "color=black:s=64x64:r=25:d=3,format=yuv420p,geq=lum='16+mod(N*67,219)':cb=128:cr=128",
			"-f", "lavfi", "-i", fmt.Sprintf("aevalsrc='0.4*sin(2*PI*1000*t)*(%s)':d=3:s=48000", sound),
			"-vf", bt709, "-c:v", "libx264", "-qp", "2", "-g", "25", "-c:a", "aac", "-b:a", "192k", path)
		return path
	})
}

var motionTones = [][2]float64{{0.5, 0.7}, {1.5, 1.8}, {2.4, 2.5}}

// tonesAre fails the test unless the middle of every tone of motionClip is heard where at maps it, within 5 ms.
func tonesAre(t testing.TB, film string, at func(source float64) float64) {
	t.Helper()
	samples := mediatest.Mono(t, film)
	for _, tone := range motionTones {
		from, to := min(at(tone[0]), at(tone[1])), max(at(tone[0]), at(tone[1]))
		first, last := -1, 0
		for i := int((from - 0.1) * mediatest.SampleRate); i < int((to+0.1)*mediatest.SampleRate); i++ {
			if math.Abs(samples[i]) > 0.05 {
				if first < 0 {
					first = i
				}
				last = i
			}
		}
		middle := float64(first+last) / 2 / mediatest.SampleRate
		if first < 0 || math.Abs(middle-(from+to)/2) > 0.005 {
			t.Errorf("the tone at %v is heard around %.4f s, want %.4f", tone, middle, (from+to)/2)
		}
	}
}

// Segments play backwards, at a changing speed, and with blended pictures, to the frame and to the sound, alone and
// together. A film of assets equals one of uploads, and an audio-only film has the same sound.
func TestRenderChangesTime(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	u := apitest.Start(t, apitest.Bucket(true)).SignIn(t)
	var told struct{ Features []string }
	u.Get(t, "/api/v2/capabilities").Expect(200).JSON(&told)
	for _, feature := range []string{"reverse", "smooth", "speedPoints"} {
		if !slices.Contains(told.Features, feature) {
			t.Errorf("%s is not among the features", feature)
		}
	}
	segment := func(i int, more M) M {
		return apitest.With(apitest.Segment("video_0", i, time.Second), more)
	}
	points := []M{{"atMs": 0, "speed": 1}, {"atMs": 1000, "speed": 0.25}, {"atMs": 2000, "speed": 2}}
	// The film's time of a source time, by these points.
	paced := func(s float64) float64 {
		t := math.Log(1-0.75*min(s, 1)) / -0.75
		if s > 1 {
			t += math.Log(1+1.75*(min(s, 2)-1)/0.25) / 1.75
		}
		return t + max(0, s-2)/2
	}
	source := func(t float64) float64 {
		low, high := 0.0, 10.0
		for range 60 {
			if middle := (low + high) / 2; paced(middle) < t {
				low = middle
			} else {
				high = middle
			}
		}
		return low
	}
	segments := []M{
		segment(0, M{"reverse": true, "speedPoints": []M{}, "smooth": nil}),
		segment(1, M{"speedPoints": points}),
		segment(2, M{"smooth": true, "speedScale": 0.4, "trimStartMs": 400, "trimEndMs": 1400}),
		segment(3, M{"smooth": true, "speedScale": 0.4, "trimStartMs": 400, "trimEndMs": 1400, "reverse": true}),
		segment(4, M{"reverse": true, "speedPoints": points, "transition": M{"type": "dissolve", "durationMs": 400}}),
	}
	film := u.RenderFilm(t, M{"segments": segments, "quality": "high"}, apitest.File("video_0", motionClip(t)))
	var levels []float64
	for _, p := range mediatest.Lumas(t, film, 64, 64) {
		sum := 0
		for _, y := range p {
			sum += int(y)
		}
		levels = append(levels, float64(sum)/64/64)
	}
	// Played exactly, the segments would take 75, 88.4, 62.5, 62.5 and 88.4 frames. The third and the last have one
	// more than they would have alone, and the last begins 10 frames earlier.
	begins := []int{0, 75, 75 + 88, 75 + 88 + 63, 75 + 88 + 63 + 62 - 10}
	if len(levels) != begins[4]+89 {
		t.Fatalf("%d frames, want %d", len(levels), begins[4]+89)
	}
	is := func(i int, what string, wants ...float64) {
		t.Helper()
		if !slices.ContainsFunc(wants, func(want float64) bool { return math.Abs(levels[i]-want) < 2 }) {
			t.Errorf("frame %d, %s: %.1f, want one of %.1f", i, what, levels[i], wants)
		}
	}
	for i := range 75 {
		is(i, "backwards", shade(74-i))
	}
	// A frame may show the picture that begins within two fifths of a frame.
	due := func(at float64) []float64 {
		ahead := 0.42 * min(1, 25*(source(paced(at)+0.04)-at))
		return []float64{shade(min(74, int(at*25+1e-6))), shade(min(74, int(at*25+ahead)))}
	}
	for i := range 88 {
		is(begins[1]+i, "at a changing speed", due(source(float64(i)/25))...)
	}
	for i := range 60 { // the last picture has no other after it
		n, w := math.Modf(0.4*float64(i) + 1e-9)
		if w < 0.1 {
			w = 0
		} else if w > 0.9 {
			w = 1
		}
		k := int(n)
		is(begins[2]+i, "smooth", (1-w)*shade(10+k)+w*shade(11+k))
		if i < 52 { // then a dissolve begins
			is(begins[3]+i, "smooth backwards", (1-w)*shade(34-k)+w*shade(33-k))
		}
	}
	for i := 10; i < 88; i++ {
		var turned []float64
		for _, want := range []float64{0, 1} {
			at := source(float64(i) / 25)
			ahead := 0.42 * want * min(1, 25*(source(float64(i+1)/25)-at))
			turned = append(turned, shade(max(0, 74-int(at*25+ahead+1e-6))))
		}
		is(begins[4]+i, "backwards at a changing speed", turned...)
	}
	tonesAre(t, film, func(s float64) float64 { return 3 - s })
	tonesAre(t, film, func(s float64) float64 { return 3 + paced(s) })
	tonesAre(t, film, func(s float64) float64 { return float64(begins[4])/25 + paced(3-s) })

	config := M{"segments": segments, "quality": "high"}
	key := uploadAsset(t, u, motionClip(t), "mp4", "video/mp4")
	for _, s := range segments {
		delete(s, "sourceFileKey")
		s["sourceAssetKey"] = key
	}
	job := u.Post(t, "/api/v2/render/v3", config).Job(200)
	u.WaitRendered(t, job)
	if mediatest.Digest(t, u.Download(t, job)) != mediatest.Digest(t, film) {
		t.Error("the film of assets differs from that of uploads")
	}
	config["outputKind"] = "audio"
	job = u.Post(t, "/api/v2/render/v3", config).Job(200)
	u.WaitRendered(t, job)
	if a, b := mediatest.Mono(t, film), mediatest.Mono(t, u.Download(t, job)); !slices.Equal(a, b) {
		t.Errorf("the sound alone differs: %d samples and %d", len(a), len(b))
	}

	segments[1]["speedScale"] = 1.5
	var refused struct{ Field string }
	u.Post(t, "/api/v2/render/v3", config).Sentence(400).JSON(&refused)
	if refused.Field != "segments[1].speedPoints" {
		t.Errorf("a speed beside speed points names %q", refused.Field)
	}
}
