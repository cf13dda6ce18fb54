// Films with rotate, mirror, crop, moves and adjust, measured in the downloaded file.

package test

import (
	"fmt"
	"image/color"
	"math"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"cutroom/internal/testkit/apitest"
	"cutroom/internal/testkit/mediatest"
)

// bt709 tags generated pictures with the colours of the film.
const bt709 = "setparams=range=tv:colorspace=bt709:color_primaries=bt709:color_trc=bt709"

// drawnClip is a clip of pictures that geq draws in a format, yuv420p or another that is then converted to it.
func drawnClip(t testing.TB, size string, length float64, format, geq string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "drawn.mp4")
	convert := ""
	if format != "yuv420p" {
		convert = "scale=out_color_matrix=bt709:out_range=tv,format=yuv420p,"
	}
	mediatest.FFmpeg(t, "-f", "lavfi", "-i", fmt.Sprintf("color=black:s=%s:r=25:d=%g,format=%s,geq=%s", size, length, format, geq),
		"-vf", convert+bt709, "-c:v", "libx264", "-qp", "4", "-g", "50", path)
	return path
}

// Eight films in one: each turn, mirrored or not, and cropped. The four quarters of the picture tell which part is
// shown. The film is the same whether its media are uploaded with it or are assets.
func TestRenderTurnsMirrorsAndCrops(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	u := apitest.Start(t, apitest.Bucket(true)).SignIn(t)
	var told struct{ Features []string }
	u.Get(t, "/api/v2/capabilities").Expect(200).JSON(&told)
	for _, feature := range []string{"adjust", "crop", "mirror", "moves", "rotate"} {
		if !slices.Contains(told.Features, feature) {
			t.Errorf("%s is not among the features", feature)
		}
	}
	quarters := drawnClip(t, "160x120", 0.2, "gbrp",
		"r='254*eq(gte(X,80),gte(Y,60))':g='255*gte(X,80)*gte(Y,60)':b='254*gte(X,80)'") // red, blue; black, white
	colourAt := func(x, y float64) color.RGBA {
		return [][]color.RGBA{{red, blue}, {black, white}}[int(y*2)][int(x*2)]
	}
	var segments []M
	for i := range 8 {
		segments = append(segments, apitest.With(apitest.Segment("video_0", i, time.Second), M{
			"trimEndMs": 200, "rotate": i % 4 * 90, "mirror": i > 3, "crop": M{"left": 0.25, "bottom": 0.25, "top": nil}, "moves": []M{}, "adjust": M{}}))
	}
	film := u.RenderFilm(t, M{"segments": segments, "quality": "high"}, apitest.File("video_0", quarters))
	isFilm(t, film, 120, 90, "25/1", 1600*time.Millisecond)
	var points []point
	for i := range 8 {
		wide := 1.0 // share of the canvas that the picture fills
		if i%2 == 1 {
			wide = 67.5 / 120
		}
		for _, at := range [][2]float64{{0.15, 0.3}, {0.65, 0.3}, {0.15, 0.85}, {0.65, 0.85}} {
			x, y := 0.25+0.75*at[0], 0.75*at[1] // of the picture before it was cropped
			if i > 3 {
				x = 1 - x
			}
			for range i % 4 { // where a point came from before a turn clockwise
				x, y = y, 1-x
			}
			points = append(points, point{5*i + 2, 0.5 + (at[0]-0.5)*wide, at[1], colourAt(x, y)})
		}
	}
	pointsAre(t, film, 25, points)

	key := uploadAsset(t, u, quarters, "mp4", "video/mp4")
	for _, s := range segments {
		delete(s, "sourceFileKey")
		s["sourceAssetKey"] = key
	}
	job := u.Post(t, "/api/v2/render/v3", M{"segments": segments, "quality": "high"}).Job(200)
	u.WaitRendered(t, job)
	if mediatest.Digest(t, u.Download(t, job)) != mediatest.Digest(t, film) {
		t.Error("the film of assets differs from that of uploads")
	}

	segments[0]["crop"] = M{"top": 0.44, "bottom": 0.44}
	job = u.Post(t, "/api/v2/render/v3", M{"segments": segments}).Job(200)
	if end := u.WaitFinished(t, job); end.Status != "FAILED" || end.ErrorCode != "no_media" {
		t.Errorf("a crop to 14 lines ends %s with %s: %s", end.Status, end.ErrorCode, end.Error)
	}
	segments[0]["crop"] = M{"left": 0.5, "right": 0.41}
	var refused struct{ Field string }
	u.Post(t, "/api/v2/render/v3", M{"segments": segments}).Sentence(400).JSON(&refused)
	if refused.Field != "segments[0].crop.right" {
		t.Errorf("a crop of 0.91 of the width names %q", refused.Field)
	}
}

// A slow move passes through every position between the pixels, in every part of a long segment and under joins.
func TestRenderMovesSmoothly(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	u := apitest.Shared(t).SignIn(t)
	const w, left, right = 320, 120.0, 200.0 // a light box
	boxed := drawnClip(t, "320x180", 10, "yuv420p", "lum='if(between(X,120,199)*between(Y,60,119),200,60)':cb=128:cr=128")
	plain := drawnClip(t, "320x180", 1, "yuv420p", "lum=60:cb=128:cr=128")
	dissolve := M{"type": "dissolve", "durationMs": 400}
	film := u.RenderFilm(t, M{"quality": "high", "segments": []M{
		apitest.With(apitest.Segment("video_0", 0, time.Second), M{"moves": []M{{"atMs": 1000, "x": 0.5}, {"atMs": 9000, "scale": 1.25, "x": 0.56}}}),
		apitest.With(apitest.Segment("video_1", 1, time.Second), M{"transition": dissolve}),
		apitest.With(apitest.Segment("video_0", 2, time.Second), M{"transition": dissolve, "trimEndMs": 2000, "adjust": M{"exposure": 0.1},
			"moves": []M{{"atMs": 0, "scale": 2, "x": 0.45}, {"atMs": 4000, "scale": 2, "x": 0.55}}}),
	}}, apitest.File("video_0", boxed), apitest.File("video_1", plain))
	pictures := mediatest.Lumas(t, film, w, 180)
	if len(pictures) != 250+25+50-20 {
		t.Fatalf("%d frames", len(pictures))
	}
	measured, between := 0, 0
	for i, p := range pictures {
		scale, x := 1.0, 0.5
		if i < 250 {
			share := min(1, max(0, (float64(i)/25-1)/8))
			scale, x = math.Pow(1.25, share), 0.5+0.06*share
		} else if i >= 255 {
			scale, x = 2, 0.45+0.1*float64(i-255)/100
		}
		corner := min(1-1/scale, max(0, x-0.5/scale)) * w
		row := p[90*w : 91*w]
		low, high := float64(row[2]), float64(row[int((160-corner)*scale)])
		if high-low < 40 {
			continue // the end of a dissolve
		}
		for _, edge := range []float64{left, right} {
			want, got := (edge-corner)*scale, math.NaN()
			for k := max(1, int(want)-6); k < min(w, int(want)+7); k++ {
				a, b := float64(row[k-1])-(low+high)/2, float64(row[k])-(low+high)/2
				if a*b <= 0 && a != b {
					got = float64(k) - 0.5 + a/(a-b)
				}
			}
			if want < 8 || want > w-8 {
				continue
			}
			measured++
			if !(math.Abs(got-want) <= 0.5) {
				t.Errorf("frame %d: the edge is at %.2f, want %.2f", i, got, want)
			}
			if _, part := math.Modf(got); part > 0.2 && part < 0.8 {
				between++
			}
		}
	}
	if measured < 500 || between < measured/3 {
		t.Errorf("%d of %d edges lie between pixels", between, measured)
	}
}

// Levels are adjusted as the contract defines; black bars stay black.
func TestRenderAdjustsLightAndColour(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	u := apitest.Shared(t).SignIn(t)
	// Four flat columns of 64 pixels.
	columns := [][3]float64{{40, 128, 128}, {90, 100, 150}, {150, 140, 110}, {220, 128, 120}}
	pick := func(plane int, width int) string {
		c := columns
		return fmt.Sprintf("if(lt(X,%d),%g,if(lt(X,%d),%g,if(lt(X,%d),%g,%g)))", width, c[0][plane], 2*width, c[1][plane], 3*width, c[2][plane], c[3][plane])
	}
	clip := drawnClip(t, "256x128", 0.2, "yuv420p", fmt.Sprintf("lum='%s':cb='%s':cr='%s'", pick(0, 64), pick(1, 32), pick(2, 32)))
	adjustments := []map[string]float64{{}, {"exposure": 0.5}, {"contrast": -0.6}, {"saturation": 1, "warmth": 0.5}, {"tint": -1},
		{"exposure": -0.4, "contrast": 0.3, "saturation": -0.3, "warmth": -1, "tint": 0.5}}
	var segments []M
	for i, a := range adjustments {
		segments = append(segments, apitest.With(apitest.Segment("video_0", i, time.Second), M{"trimEndMs": 200, "adjust": a}))
	}
	film := u.RenderFilm(t, M{"quality": "high", "segments": segments, "canvas": M{"aspect": "1:1", "shortSide": 256}}, apitest.File("video_0", clip))
	raw := mediatest.FFmpeg(t, "-i", film, "-map", "0:v", "-f", "rawvideo", "-pix_fmt", "yuv420p", "pipe:1")
	const side, size = 256, 256 * 256 * 3 / 2
	if len(raw) != 30*size {
		t.Fatalf("%d bytes", len(raw))
	}
	for i, a := range adjustments {
		p := raw[(5*i+3)*size : (5*i+4)*size]
		levels := func(x, y int) (got [3]float64) {
			planes := [3][]byte{p[:side*side], p[side*side : side*side*5/4], p[side*side*5/4:]}
			for plane, pixels := range planes {
				stride := side
				if plane > 0 {
					stride /= 2
				}
				px, py := x*stride/side, y*stride/side
				for d := range 16 {
					got[plane] += float64(pixels[(py+d/4)*stride+px+d%4]) / 16
				}
			}
			return got
		}
		for _, y := range []int{20, 230} {
			if got := levels(100, y); math.Abs(got[0]-16) > 1 || math.Abs(got[1]-128) > 1 || math.Abs(got[2]-128) > 1 {
				t.Errorf("%v: the bar is %.1f", a, got)
			}
		}
		g := math.Exp2(a["exposure"])
		for c, from := range columns {
			luma := 16 + 219*((g*(from[0]-16)/219-0.5)*(1+a["contrast"])+0.5)
			blue := 128 + g*(from[1]-128)*(1+a["saturation"]) + 224*(-0.06*a["warmth"]+0.04*a["tint"])
			red := 128 + g*(from[2]-128)*(1+a["saturation"]) + 224*(0.06*a["warmth"]+0.04*a["tint"])
			want := [3]float64{min(235, max(16, luma)), min(240, max(16, blue)), min(240, max(16, red))}
			got := levels(64*c+30, 128)
			for plane := range want {
				if math.Abs(got[plane]-want[plane]) > 2 { // 1, and 1 from the encoder
					t.Errorf("%v: column %d is %.1f, want %.1f", a, c, got, want)
				}
			}
		}
	}
}
