package test

import (
	"fmt"
	"image/color"
	"math"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"cutroom/internal/apitest"
	"cutroom/internal/mediatest"
)

// The API reports the length of a vertical film with a dissolve and a fade to white. The film has
// that length.
func TestRenderJoinsAndCanvas(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	u := apitest.Shared(t).SignIn(t)
	job := u.Render(t, M{
		"canvas": M{"aspect": "9:16", "fit": "blur", "maxSide": 300},
		"segments": []M{
			apitest.With(apitest.Segment("video_0", 0, clipLength), M{"trimEndMs": 1000, "transition": M{"type": "fadeBlack"}}), // ignored on the first
			apitest.With(apitest.Segment("video_1", 1, clipLength), M{"trimEndMs": 1000, "transition": M{"type": "dissolve", "durationMs": 400}, "fit": "cover", "focusX": 0}),
			apitest.With(apitest.Segment("video_0", 2, clipLength), M{"trimEndMs": 1000, "transition": M{"type": "fadeWhite", "durationMs": 400}}),
		},
	}, apitest.File("video_0", redClip(t)), apitest.File("video_1", blueClip(t)))
	u.WaitRendered(t, job)
	var status struct{ DurationMs int64 }
	u.Get(t, "/api/v2/render/"+job+"/status").Expect(200).JSON(&status)
	if status.DurationMs != 2600 {
		t.Errorf("durationMs %d, want 2600", status.DurationMs)
	}
	film := u.Download(t, job)
	isFilm(t, film, 168, 300, "25/1", 2600*time.Millisecond)
	mixed := func(a, b color.RGBA, weight float64) color.RGBA {
		mix := func(a, b uint8) uint8 { return uint8(float64(a) + (float64(b)-float64(a))*weight + 0.5) }
		return color.RGBA{mix(a.R, b.R), mix(a.G, b.G), mix(a.B, b.B), 255}
	}
	white := color.RGBA{255, 255, 255, 255}
	var at []time.Duration
	for _, n := range []int{0, 14, 19, 25, 34, 39, 40, 45, 64} {
		at = append(at, time.Duration(n)*40*time.Millisecond+20*time.Millisecond)
	}
	picturesAre(t, film, at, red, red, mixed(red, blue, 5.0/11), blue, blue, mixed(blue, white, 5.0/6), mixed(red, white, 5.0/6), red, red)
	levelIs(t, film, 440, mediatest.Between(100, 500), clipLevel)
	absent(t, film, 440, mediatest.Between(1100, 1300))
	levelIs(t, film, 880, mediatest.Between(1050, 1350), clipLevel)
}

// gradient is a clip of 160x120 at 30 frames per second, without colour. Its luma says which point of which frame
// it is: from dark it rises by 25 from left to right, by 15 from top to bottom, and by 4 a frame for 5 frames.
func gradient(t testing.TB, dark int, tone float64) string {
	path := filepath.Join(t.TempDir(), "gradient.mp4")
	mediatest.FFmpeg(t, "-f", "lavfi", "-i", fmt.Sprintf("color=black:s=160x120:r=30:d=2,format=yuv420p,"+
		"geq=lum='%d+25*X/160+15*Y/120+4*mod(N,5)':cb=128:cr=128", dark),
		"-f", "lavfi", "-i", fmt.Sprintf("aevalsrc=exprs='0.25*sin(2*PI*%g*t)':s=48000:d=2", tone),
		"-c:v", "libx264", "-preset", "veryfast", "-crf", "1", "-color_range", "tv", "-colorspace", "bt709", "-color_primaries", "bt709",
		"-color_trc", "bt709", "-c:a", "aac", path)
	return path
}

// Each frame of a wipe, slide or push in each direction shows the pictures of the contract, side by side at a hard
// edge, and each frame of a dissolve their mix: 60 joins in one film, with even and odd numbers of frames.
func TestRenderMovingJoins(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	u := apitest.Shared(t).SignIn(t)
	const width, height, played = 160, 120, 12
	clips := []string{gradient(t, 30, 440), gradient(t, 150, 880)}
	sources := [][][]byte{mediatest.Lumas(t, clips[0], width, height), mediatest.Lumas(t, clips[1], width, height)}

	type joined struct {
		kind, direction string
		frames          int
	}
	joins := []joined{{}}
	var segments, dissolved []M
	for k := range 61 {
		s := apitest.With(apitest.Segment(fmt.Sprintf("video_%d", k%2), k, clipLength), M{"trimStartMs": 100 * (k % 9), "trimEndMs": 100*(k%9) + 400})
		dissolve := s
		if k > 0 {
			j := joined{[]string{"wipe", "slide", "push", "dissolve"}[k%4], []string{"left", "right", "up", "down"}[k/4%4], 4 + k/16%2}
			joins = append(joins, j)
			ms := (j.frames*1000 + 15) / 30
			transition := M{"type": j.kind, "durationMs": ms}
			if j.kind != "dissolve" && (j.direction != "left" || k%2 == 1) {
				transition["direction"] = j.direction
			}
			s = apitest.With(s, M{"transition": transition})
			dissolve = apitest.With(s, M{"transition": M{"type": "dissolve", "durationMs": ms}})
		}
		segments, dissolved = append(segments, s), append(dissolved, dissolve)
	}
	media := []apitest.Part{apitest.File("video_0", clips[0]), apitest.File("video_1", clips[1])}
	film := u.RenderFilm(t, M{"segments": segments, "quality": "high"}, media...)
	got := mediatest.Lumas(t, film, width, height)

	at := 0 // frame of the film
	for k, j := range joins {
		next := 0
		if k+1 < len(joins) {
			next = joins[k+1].frames
		}
		for n := range played - next {
			incoming := sources[k%2][3*(k%9)+n]
			if n >= j.frames {
				pictureIs(t, got, at, incoming, fmt.Sprintf("frame %d of segment %d", n, k))
			} else {
				outgoing := sources[(k-1)%2][3*((k-1)%9)+played-j.frames+n]
				if j.kind == "dissolve" {
					pictureIs(t, got, at, dissolvedLuma(outgoing, incoming, float64(n+1)/float64(j.frames+1)), fmt.Sprintf("frame %d of a dissolve", n))
					at++
					continue
				}
				want, edge := movedLuma(outgoing, incoming, width, height, j.kind, j.direction, n, j.frames)
				what := fmt.Sprintf("frame %d of %d of %s %s", n, j.frames, j.kind, j.direction)
				pictureIs(t, got, at, want, what)
				bright := 0
				for _, luma := range got[min(at, len(got)-1)] {
					if luma > 120 {
						bright++
					}
				}
				covered := edge * height // pixels of the incoming picture
				if j.direction == "up" || j.direction == "down" {
					covered = edge * width
				}
				if k%2 == 0 {
					covered = width*height - covered
				}
				if bright != covered {
					t.Errorf("%s: %d pixels of the bright picture, want %d", what, bright, covered)
				}
			}
			at++
		}
	}
	if len(got) != at {
		t.Errorf("%d frames, want %d", len(got), at)
	}

	sound := u.RenderFilm(t, M{"segments": segments, "outputKind": "audio"}, media...)
	same := u.RenderFilm(t, M{"segments": dissolved, "outputKind": "audio"}, media...)
	if !reflect.DeepEqual(mediatest.Samples(t, sound), mediatest.Samples(t, same)) {
		t.Error("the sound is not that of dissolves")
	}
}

// dissolvedLuma returns the mix of two pictures. weight is that of the incoming one.
func dissolvedLuma(outgoing, incoming []byte, weight float64) []byte {
	mixed := make([]byte, len(outgoing))
	for i := range mixed {
		mixed[i] = byte(float64(outgoing[i]) + (float64(incoming[i])-float64(outgoing[i]))*weight + 0.5)
	}
	return mixed
}

// movedLuma returns frame i of n of a join and the number of columns or rows that show the incoming picture.
func movedLuma(outgoing, incoming []byte, width, height int, kind, direction string, i, n int) (picture []byte, edge int) {
	length := width
	if direction == "up" || direction == "down" {
		length = height
	}
	d := 2 * int(math.Floor(float64(length*(i+1))/float64(2*(n+1))+0.5))
	for y := range height {
		for x := range width {
			ahead, sign, upright := x, 1, false // ahead counts from the side that the incoming picture comes from
			switch direction {
			case "left":
				ahead, sign = width-1-x, -1
			case "up":
				ahead, sign, upright = height-1-y, -1, true
			case "down":
				ahead, upright = y, true
			}
			from, shift := outgoing, 0
			if ahead < d {
				from = incoming
				if kind != "wipe" {
					shift = sign * (length - d)
				}
			} else if kind == "push" {
				shift = -sign * d
			}
			if upright {
				picture = append(picture, from[(y+shift)*width+x])
			} else {
				picture = append(picture, from[y*width+x+shift])
			}
		}
	}
	return picture, d
}

// pictureIs fails the test unless a frame of the film is the picture. The next frame, and the one before, differ from it
// by 4 levels, and so does the picture moved by a tenth.
func pictureIs(t testing.TB, film [][]byte, n int, want []byte, what string) {
	t.Helper()
	if n >= len(film) {
		return
	}
	sum := 0
	for i, luma := range film[n] {
		sum += max(int(luma), int(want[i])) - min(int(luma), int(want[i]))
	}
	if mean := float64(sum) / float64(len(want)); mean > 1.5 {
		t.Errorf("%s, frame %d of the film: %.1f levels off on average", what, n, mean)
	}
}

// A join moves the pictures as they are fitted into the canvas, whatever their size.
func TestRenderMovingJoinsOfOtherSizes(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	u := apitest.Shared(t).SignIn(t)
	film := u.RenderFilm(t, M{
		"canvas": M{"aspect": "16:9", "fit": "contain"}, // 320x180
		"segments": []M{
			apitest.With(apitest.Segment("video_0", 0, clipLength), M{"trimEndMs": 1000}),
			apitest.With(apitest.Segment("video_1", 1, clipLength), M{"trimEndMs": 1000, "transition": M{"type": "push", "direction": "right", "durationMs": 200}}),
			apitest.With(apitest.Segment("video_0", 2, clipLength), M{"trimEndMs": 1000, "transition": M{"type": "slide", "direction": "down", "durationMs": 200}}),
			apitest.With(apitest.Segment("video_1", 3, clipLength), M{"trimEndMs": 1000, "fit": "cover", "transition": M{"type": "wipe", "direction": "up", "durationMs": 200}}),
		},
	}, apitest.File("video_0", redClip(t)), apitest.File("video_1", blueClip(t)))
	isFilm(t, film, 320, 180, "25/1", 3400*time.Millisecond)
	// The blue square stands between black bars of 70 columns. In the third of five frames, half of the canvas shows
	// the incoming picture.
	black := color.RGBA{0, 0, 0, 255}
	for _, tt := range []struct {
		frame int
		x, y  float64
		want  color.RGBA
	}{
		{22, 0.02, 0.5, blue}, {22, 0.25, 0.5, blue}, {22, 0.4, 0.5, black}, {22, 0.6, 0.5, red}, {22, 0.95, 0.5, red}, // 160 columns have come in
		{42, 0.5, 0.2, red}, {42, 0.05, 0.2, red}, {42, 0.5, 0.8, blue}, {42, 0.05, 0.8, black}, // 90 rows
		{62, 0.05, 0.2, red}, {62, 0.05, 0.8, blue}, {62, 0.95, 0.8, blue},
	} {
		picture := mediatest.Frame(t, film, time.Duration(tt.frame)*40*time.Millisecond+20*time.Millisecond)
		if got := mediatest.ColorAt(picture, tt.x, tt.y); mediatest.ColorDistance(got, tt.want) > 30 {
			t.Errorf("frame %d at %v, %v is %v, want %v", tt.frame, tt.x, tt.y, got, tt.want)
		}
	}
}

// One film with most of the vocabulary: a vertical canvas with its own size and rate, mixed clips, a push, a wipe, both
// ends, a voice-over that turns music down, and loudness. It is the same film whether its media are uploaded with it or
// are assets.
func TestRenderEverythingTogether(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	u := apitest.Start(t, apitest.Bucket(true)).SignIn(t)
	voice := mediatest.Tone(t, 300, 600*time.Millisecond)
	config := M{
		"canvas":   M{"aspect": "9:16", "shortSide": 360, "frameRate": 30, "fit": "cover"},
		"fadeIn":   M{"durationMs": 200},
		"fadeOut":  M{"color": "white", "durationMs": 200},
		"loudness": M{"targetLufs": -20},
		"segments": []M{
			apitest.With(apitest.Segment("video_0", 0, clipLength), M{"trimEndMs": 1000}),
			apitest.With(apitest.Segment("video_1", 1, clipLength), M{"trimEndMs": 1000, "transition": M{"type": "push", "durationMs": 300}}),
			apitest.With(apitest.Segment("video_0", 2, clipLength), M{"trimEndMs": 1000, "transition": M{"type": "wipe", "direction": "up", "durationMs": 300}}),
		},
		"bgmClips": []M{
			{"startMs": 0, "audioFileKey": "bgm_0", "ducking": M{"amountDb": 12, "attackMs": 50, "releaseMs": 50}},
			{"startMs": 1200, "audioFileKey": "bgm_1", "voice": true},
		},
	}
	film := u.RenderFilm(t, config, apitest.File("video_0", redClip(t)), apitest.File("video_1", blueClip(t)), apitest.File("bgm_0", music(t)),
		apitest.File("bgm_1", voice))
	isFilm(t, film, 360, 640, "30/1", 2400*time.Millisecond)
	black, white := color.RGBA{0, 0, 0, 255}, color.RGBA{255, 255, 255, 255}
	for _, tt := range []struct {
		frame int
		x, y  float64
		want  color.RGBA
	}{
		{0, 0.5, 0.5, black}, {10, 0.5, 0.5, red},
		{25, 0.25, 0.5, red}, {25, 0.75, 0.5, blue}, // the fifth of nine frames: half of the canvas
		{36, 0.5, 0.5, blue},
		{46, 0.5, 0.25, blue}, {46, 0.5, 0.75, red},
		{60, 0.5, 0.5, red}, {71, 0.5, 0.5, white},
	} {
		picture := mediatest.Frame(t, film, time.Duration(2*tt.frame+1)*time.Second/60)
		if got := mediatest.ColorAt(picture, tt.x, tt.y); mediatest.ColorDistance(got, tt.want) > 24 {
			t.Errorf("frame %d at %v, %v is %v, want %v", tt.frame, tt.x, tt.y, got, tt.want)
		}
	}
	before, under := mediatest.ToneLevel(t, film, 1500, mediatest.Between(600, 1000)), mediatest.ToneLevel(t, film, 1500, mediatest.Between(1300, 1700))
	if math.Abs(before-under-12) > 0.5 {
		t.Errorf("the voice turns the music down by %.1f dB, want 12", before-under)
	}

	videos := []string{uploadAsset(t, u, redClip(t), "mp4", "video/mp4"), uploadAsset(t, u, blueClip(t), "mp4", "video/mp4")}
	sounds := []string{uploadAsset(t, u, music(t), "wav", "audio/wav"), uploadAsset(t, u, voice, "wav", "audio/wav")}
	for i, s := range config["segments"].([]M) {
		delete(s, "sourceFileKey")
		s["sourceAssetKey"] = videos[i%2]
	}
	for i, c := range config["bgmClips"].([]M) {
		delete(c, "audioFileKey")
		c["audioAssetKey"] = sounds[i]
	}
	job := u.Post(t, "/api/v2/render/v3", config).Job(200)
	u.WaitRendered(t, job)
	if mediatest.Digest(t, u.Download(t, job)) != mediatest.Digest(t, film) {
		t.Error("the film of assets differs from that of uploads")
	}
}
