// The canvas and how pictures fit it: contain, cover with a focus, and blurred bars, measured in the picture.

package engine

import (
	"image"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"cutroom/internal/film/timeline"
	"cutroom/internal/testkit/mediatest"
)

func TestCanvasSize(t *testing.T) {
	side := func(n int64) *int64 { return &n }
	for _, tt := range []struct {
		w, h       int
		canvas     *timeline.Canvas
		wantW, wtH int
	}{
		{1921, 1081, nil, 1920, 1080},
		{1921, 1081, &timeline.Canvas{Aspect: "source"}, 1920, 1080},
		{321, 181, &timeline.Canvas{Aspect: "1:1"}, 182, 182}, // odd numbers are rounded up
		{320, 180, &timeline.Canvas{Aspect: "source", MaxSide: side(241)}, 240, 136},
		{1, 1, nil, 16, 16},
		{1920, 1080, &timeline.Canvas{Aspect: "9:16"}, 1080, 1920},
		{1080, 1920, &timeline.Canvas{Aspect: "16:9"}, 1920, 1080},
		{1280, 720, &timeline.Canvas{Aspect: "4:3"}, 960, 720},
		{1280, 720, &timeline.Canvas{Aspect: "3:4"}, 720, 960},
		{854, 480, &timeline.Canvas{Aspect: "9:16"}, 480, 854},                           // 853.3
		{640, 358, &timeline.Canvas{Aspect: "4:5"}, 358, 448},                            // 447.5
		{3840, 2160, &timeline.Canvas{Aspect: "source", MaxSide: side(1280)}, 1280, 720}, //
		{1280, 720, &timeline.Canvas{Aspect: "source", MaxSide: side(3840)}, 1280, 720},  // never scaled up
		{3840, 2160, &timeline.Canvas{Aspect: "9:16", MaxSide: side(1000)}, 562, 1000},   // 562.5
		{1920, 800, &timeline.Canvas{Aspect: "source", MaxSide: side(1001)}, 1000, 416},  // 416.7
		{16000, 200, &timeline.Canvas{Aspect: "source", MaxSide: side(240)}, 240, 16},    // 3
		{320, 180, &timeline.Canvas{Aspect: "9:16", ShortSide: side(1080)}, 1080, 1920},
		{180, 320, &timeline.Canvas{Aspect: "source", ShortSide: side(720)}, 720, 1280},
		{3840, 2160, &timeline.Canvas{Aspect: "source", ShortSide: side(240)}, 426, 240},  // 426.7
		{321, 181, &timeline.Canvas{Aspect: "source", ShortSide: side(2160)}, 3830, 2160}, // 3830.7: that of 320x180 would be 3840
		{16, 16, &timeline.Canvas{Aspect: "4:5", ShortSide: side(1080)}, 1080, 1350},
	} {
		v := &videoInfo{}
		v.DisplayWidth, v.DisplayHeight = tt.w, tt.h
		if w, h := canvasSize(newView(v, timeline.Segment{}), tt.canvas); w != tt.wantW || h != tt.wtH {
			t.Errorf("%dx%d on %+v: %dx%d, want %dx%d", tt.w, tt.h, tt.canvas, w, h, tt.wantW, tt.wtH)
		}
	}
}

// A canvas may be larger than any source may be.
func TestCanvasIsBounded(t *testing.T) {
	limits := Limits{MaxPixels: 1920 * 1080}.withDefaults()
	if err := limits.checkCanvas(Canvas{Width: 1080, Height: 1920}, nil); err != nil {
		t.Error(err)
	}
	const want = "canvas: the film's picture of 1922x1080 is larger than the accepted 2073600 pixels or 16384 on a side; set canvas.maxSide"
	if err := limits.checkCanvas(Canvas{Width: 1922, Height: 1080}, nil); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	short := int64(1082)
	const lower = "canvas: the film's picture of 1922x1082 is larger than the accepted 2073600 pixels or 16384 on a side; lower canvas.shortSide"
	if err := limits.checkCanvas(Canvas{Width: 1922, Height: 1082}, &timeline.Canvas{ShortSide: &short}); err == nil || err.Error() != lower {
		t.Errorf("got %v, want %s", err, lower)
	}
}

// rampClip is a clip in which brightness encodes the position from left to right, and blue from top to bottom.
func rampClip(t *testing.T, size, filters string, options ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ramp.mp4")
	args := []string{"-f", "lavfi", "-i", "color=gray:size=" + size + ":rate=10:duration=0.5,format=yuv444p,geq=lum='16+219*X/(W-1)':cb='16+224*Y/(H-1)':cr=128",
		"-vf", hd + filters, "-c:v", "libx264", "-crf", "10", "-pix_fmt", "yuv420p"}
	mediatest.FFmpeg(t, append(append(args, options...), path)...)
	return path
}

// hd states that the levels of generated pictures are those of the film, see shot.matrix. Stating it to the encoder
// alone would make ffmpeg 7 convert the pictures.
const hd = "setparams=range=tv:colorspace=bt709:color_primaries=bt709:color_trc=bt709"

// rendered renders clips of half a second and returns a picture of each as planes of 4:2:0.
func rendered(t *testing.T, tl timeline.Timeline) (pictures []*image.YCbCr) {
	t.Helper()
	for i := range tl.Segments {
		s := &tl.Segments[i]
		s.Order, s.Volume, s.Speed, s.Duration = int64(i), 1, 1, time.Hour
	}
	tl.OutputKind, tl.Quality = timeline.Video, timeline.High
	out, err := newEngine(t, nil).Render(t.Context(), jobOf(t, tl))
	if err != nil {
		t.Fatal(err)
	}
	if out.Frames != int64(5*len(tl.Segments)) {
		t.Fatalf("%d frames of %d clips", out.Frames, len(tl.Segments))
	}
	raw := mediatest.FFmpeg(t, "-i", out.Path, "-map", "0:v", "-vf", "select=eq(mod(n\\,5)\\,3)", "-fps_mode", "passthrough", "-f", "rawvideo", "-pix_fmt", "yuv420p", "pipe:1")
	for range tl.Segments {
		p := image.NewYCbCr(image.Rect(0, 0, out.Width, out.Height), image.YCbCrSubsampleRatio420)
		for _, plane := range [][]byte{p.Y, p.Cb, p.Cr} {
			if n := copy(plane, raw); n < len(plane) {
				t.Fatalf("%d bytes of a plane of %dx%d", n, out.Width, out.Height)
			}
			raw = raw[len(plane):]
		}
		pictures = append(pictures, p)
	}
	return pictures
}

// The level of every point of the film tells which point of the source it shows, see rampClip. Blurred bars show what
// cover would show there.
func TestCoverKeepsTheFocus(t *testing.T) {
	t.Parallel()
	type framed struct {
		path   string
		aspect timeline.Aspect
		focus  *timeline.Focus
		turn   func(x, y float64) (float64, float64) // from the displayed picture to the coded one
		// The window, in fractions of the displayed picture.
		left, right, top, bottom float64
	}
	wide := rampClip(t, "320x180", "")
	all := map[string]framed{
		"middle":           {wide, "9:16", nil, nil, 0.342, 0.658, 0, 1},
		"left":             {wide, "9:16", &timeline.Focus{X: 0, Y: 0.5}, nil, 0, 0.316, 0, 1},
		"right":            {wide, "9:16", &timeline.Focus{X: 1, Y: 0}, nil, 0.684, 1, 0, 1},
		"a third":          {wide, "9:16", &timeline.Focus{X: 0.3, Y: 0.5}, nil, 0.142, 0.458, 0, 1},
		"narrower":         {rampClip(t, "180x320", ""), "16:9", &timeline.Focus{X: 0.5, Y: 0.9}, nil, 0, 1, 0.684, 1},
		"odd":              {rampClip(t, "322x182", ",crop=321:181:0:0:exact=1,format=yuv444p", "-pix_fmt", "yuv444p"), "1:1", &timeline.Focus{X: 0.4, Y: 0.5}, nil, 0.118, 0.682, 0, 1},
		"wide pixels":      {rampClip(t, "160x180", ",setsar=2"), "1:1", &timeline.Focus{X: 1, Y: 0.5}, nil, 0.4375, 1, 0, 1},
		"interlaced":       {rampClip(t, "320x180", ",setfield=tff", "-flags", "+ildct+ilme"), "9:16", &timeline.Focus{X: 0.3, Y: 0.5}, nil, 0.142, 0.458, 0, 1},
		"turned":           {mediatest.WithMatrix(t, wide, [4]int32{0, 1, -1, 0}), "16:9", &timeline.Focus{X: 0.5, Y: 0.3}, func(x, y float64) (float64, float64) { return y, 1 - x }, 0, 1, 0.142, 0.458},
		"turned back":      {mediatest.WithMatrix(t, wide, [4]int32{0, -1, 1, 0}), "16:9", &timeline.Focus{X: 0.5, Y: 0.3}, func(x, y float64) (float64, float64) { return 1 - y, x }, 0, 1, 0.142, 0.458},
		"upside down":      {mediatest.WithMatrix(t, wide, [4]int32{-1, 0, 0, -1}), "9:16", &timeline.Focus{X: 0.3, Y: 0.5}, func(x, y float64) (float64, float64) { return 1 - x, 1 - y }, 0.142, 0.458, 0, 1},
		"mirrored":         {mediatest.WithMatrix(t, wide, [4]int32{-1, 0, 0, 1}), "9:16", &timeline.Focus{X: 0.3, Y: 0.5}, func(x, y float64) (float64, float64) { return 1 - x, y }, 0.142, 0.458, 0, 1},
		"mirrored, turned": {mediatest.WithMatrix(t, wide, [4]int32{0, 1, 1, 0}), "16:9", &timeline.Focus{X: 0.5, Y: 0.3}, func(x, y float64) (float64, float64) { return y, x }, 0, 1, 0.142, 0.458},
	}
	names := slices.Sorted(maps.Keys(all))
	for aspect, bars := range map[timeline.Aspect][][2]float64{ // points on the blurred bars, and on their edges
		"16:9": {{0.15, 0.3}, {0.15, 0.7}, {0.25, 0.5}, {0.75, 0.5}, {0.85, 0.4}},
		"9:16": {{0.3, 0.15}, {0.7, 0.15}, {0.5, 0.2}, {0.5, 0.8}, {0.4, 0.85}},
		"1:1":  {{0.3, 0.15}, {0.7, 0.15}, {0.5, 0.2}, {0.5, 0.8}, {0.4, 0.85}},
	} {
		t.Run(string(aspect), func(t *testing.T) {
			t.Parallel()
			tl := timeline.Timeline{Canvas: &timeline.Canvas{Aspect: aspect}}
			var shown []string
			for _, name := range names {
				if tt := all[name]; tt.aspect == aspect {
					shown = append(shown, name, name)
					tl.Segments = append(tl.Segments, timeline.Segment{SourceKey: tt.path, Focus: tt.focus, Fit: timeline.Cover},
						timeline.Segment{SourceKey: tt.path, Focus: tt.focus, Fit: timeline.Blur})
				}
			}
			for i, p := range rendered(t, tl) {
				tt, points := all[shown[i]], bars
				if tl.Segments[i].Fit == timeline.Cover {
					points = [][2]float64{{0.1, 0.1}, {0.5, 0.5}, {0.9, 0.2}, {0.1, 0.9}, {0.9, 0.9}}
				}
				for _, at := range points {
					x, y := tt.left+at[0]*(tt.right-tt.left), tt.top+at[1]*(tt.bottom-tt.top)
					if tt.turn != nil {
						x, y = tt.turn(x, y)
					}
					px, py := int(at[0]*float64(p.Rect.Dx())), int(at[1]*float64(p.Rect.Dy()))
					gotX, gotY := (float64(p.Y[p.YOffset(px, py)])-16)/219, (float64(p.Cb[p.COffset(px, py)])-16)/224
					if math.Abs(gotX-x) > 0.02 || math.Abs(gotY-y) > 0.02 {
						t.Errorf("%s, %s: %v of %v shows %.3f, %.3f of the source, want %.3f, %.3f",
							shown[i], tl.Segments[i].Fit, at, p.Rect, gotX, gotY, x, y)
					}
				}
			}
		})
	}
}

// The blurred background has the picture's colours and none of its detail. The picture itself is unchanged on top of
// it.
func TestBlurredBackground(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "stripes.mp4")
	// Stripes of 12 pixels, and a colour.
	mediatest.FFmpeg(t, "-f", "lavfi", "-i", "color=gray:size=480x270:rate=10:duration=0.5,format=yuv444p,geq=lum='if(mod(floor(X/6),2),200,60)':cb=90:cr=150",
		"-vf", hd, "-c:v", "libx264", "-crf", "10", "-pix_fmt", "yuv420p", path)
	tl := timeline.Timeline{Canvas: &timeline.Canvas{Aspect: "9:16", Fit: timeline.Blur},
		Segments: []timeline.Segment{{SourceKey: path}, {SourceKey: mediatest.WithMatrix(t, path, [4]int32{-1, 0, 0, -1})}}}
	for i, p := range rendered(t, tl) {
		t.Run([]string{"upright", "turned"}[i], func(t *testing.T) {
			const width = 270
			if p.Rect.Dx() != width || p.Rect.Dy() != 480 {
				t.Fatal(p.Rect)
			}
			// The picture is 270x152, from line 164 on.
			low, high := byte(255), byte(0)
			for x := range width {
				y := p.Y[p.YOffset(x, 240)]
				low, high = min(low, y), max(high, y)
			}
			if low > 80 || high < 180 {
				t.Errorf("the picture's stripes have levels %d to %d", low, high)
			}
			for _, line := range []int{2, 60, 150, 330, 400, 477} {
				level := func(x int) int { return int(p.Y[p.YOffset(x, line)]) }
				sum := 0
				for x := range width {
					sum += level(x)
					if cb, cr := p.Cb[p.COffset(x, line)], p.Cr[p.COffset(x, line)]; absDiff(cb, 90) > 2 || absDiff(cr, 150) > 2 {
						t.Fatalf("the background at %d, %d is tinted: %d, %d, want 90, 150", x, line, cb, cr)
					}
					// A stripe is 6 pixels wide; each would change the levels by 140.
					if x >= 6 && x+6 < width {
						if bend := level(x-6) + level(x+6) - 2*level(x); max(bend, -bend) > 5 {
							t.Fatalf("the background at %d, %d bends by %d", x, line, bend)
						}
					}
				}
				if mean := sum / width; mean < 124 || mean > 136 {
					t.Errorf("line %d of the background has the mean level %d, want 130", line, mean)
				}
			}
		})
	}
}

func absDiff(a, b byte) byte { return max(a, b) - min(a, b) }

// A segment's own fit takes precedence over the canvas's. No fit changes a picture with the canvas's aspect: it is the
// same part.
func TestFitOfASegment(t *testing.T) {
	wide, tall := fakeVideo(r(30, 1), 60, 0), fakeVideo(r(30, 1), 60, 0)
	tall.Video.Width, tall.Video.Height, tall.Video.DisplayWidth, tall.Video.DisplayHeight = 180, 320, 180, 320
	infos := map[string]*Info{"wide": wide, "tall": tall}
	plan := func(canvas *timeline.Canvas, fit timeline.Fit, focus *timeline.Focus) *Plan {
		return planOf(t, infos, func(tl *timeline.Timeline) { tl.Canvas = canvas },
			timeline.Segment{SourceKey: "wide", TrimEnd: time.Second, Fit: fit, Focus: focus}, timeline.Segment{SourceKey: "tall", TrimEnd: time.Second, Fit: fit, Focus: focus})
	}
	own := plan(nil, "", nil)
	for _, fit := range []timeline.Fit{timeline.Contain, timeline.Cover, timeline.Blur} {
		given, inherited := plan(nil, fit, nil), plan(&timeline.Canvas{Aspect: timeline.SourceAspect, Fit: fit}, "", nil)
		for i := range own.Parts {
			if given.Parts[i].Key != inherited.Parts[i].Key {
				t.Errorf("%s: the canvas's fit makes another part than the segment's", fit)
			}
			if same := given.Parts[i].Key == own.Parts[i].Key; same != (i == 0 || fit == timeline.Contain) {
				t.Errorf("%s: part %d is that of contain: %v", fit, i, same)
			}
		}
	}
	if a, b := plan(nil, timeline.Cover, nil), plan(nil, timeline.Cover, &timeline.Focus{X: 0.5, Y: 0.1}); a.Parts[1].Key == b.Parts[1].Key {
		t.Error("the focus makes no other part")
	}
	pixels, drawn, _ := own.work()
	blurPixels, blurDrawn, _ := plan(nil, timeline.Blur, nil).work()
	if blurDrawn-drawn != 30 || blurPixels-pixels != 30*320*180 {
		t.Errorf("30 blurred frames cost %d pictures of %d pixels", blurDrawn-drawn, blurPixels-pixels)
	}
	overlapped := planOf(t, infos, nil, timeline.Segment{SourceKey: "wide", TrimEnd: time.Second}, joinedBy(timeline.Dissolve, 500, timeline.Segment{SourceKey: "tall", TrimEnd: time.Second}))
	if _, n, decoded := overlapped.work(); n != overlapped.Frames+15 || decoded < 60 {
		t.Errorf("%d pictures for %d frames, %d decoded", n, overlapped.Frames, decoded)
	}
}
