// The pictures of finished films: rotation, sizes, colours, transparency, key frames, changes in the middle.

package engine_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"image"
	"image/color"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"cutroom/internal/film/timeline"
	"cutroom/internal/testkit/mediatest"
)

// quarters is a lavfi picture of four colours: red and lime above, blue and white below.
func quarters(w, h int, fps string, d time.Duration) []string {
	return []string{"-f", "lavfi", "-t", fmt.Sprintf("%.6f", d.Seconds()), "-i", fmt.Sprintf(
		"color=c=red:s=%dx%d:r=%s,drawbox=x=iw/2:y=0:w=iw:h=ih/2:c=lime:t=fill,drawbox=x=0:y=ih/2:w=iw/2:h=ih:c=blue:t=fill,drawbox=x=iw/2:y=ih/2:w=iw/2:h=ih/2:c=white:t=fill",
		w, h, fps)}
}

var corners = map[string]color.RGBA{"R": {255, 0, 0, 255}, "G": {0, 255, 0, 255}, "B": {0, 0, 255, 255}, "W": {255, 255, 255, 255}}

// seen names the colours of a picture's four quarters in reading order.
func seen(t *testing.T, img *image.RGBA) string {
	t.Helper()
	names := ""
	for _, p := range [][2]float64{{0.25, 0.25}, {0.75, 0.25}, {0.25, 0.75}, {0.75, 0.75}} {
		c, best, distance := mediatest.ColorAt(img, p[0], p[1]), "?", 40
		for name, want := range corners {
			if d := mediatest.ColorDistance(c, want); d < distance {
				best, distance = name, d
			}
		}
		if best == "?" {
			t.Logf("at %v: %v", p, c)
		}
		names += best
	}
	return names
}

func sameColor(t *testing.T, what string, got, want color.RGBA, tolerance int) {
	t.Helper()
	if d := mediatest.ColorDistance(got, want); d > tolerance {
		t.Errorf("%s: colour %v, want %v (off by %d)", what, got, want, d)
	}
}

func TestRotationAndMirror(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	plain := filepath.Join(t.TempDir(), "plain.mp4")
	mediatest.FFmpeg(t, append(quarters(320, 180, "30", 300*time.Millisecond), "-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", plain)...)
	for canvas, turns := range map[[2]int][]struct {
		name   string
		matrix [4]int32 // a b c d: x' = ax + cy, y' = bx + dy
		want   string
	}{
		{320, 180}: {
			{"none", [4]int32{1, 0, 0, 1}, "RGBW"}, {"180", [4]int32{-1, 0, 0, -1}, "WBGR"},
			{"mirrored", [4]int32{-1, 0, 0, 1}, "GRWB"}, {"upside down", [4]int32{1, 0, 0, -1}, "BWRG"},
		},
		{180, 320}: {
			{"90 clockwise", [4]int32{0, 1, -1, 0}, "BRWG"}, {"270 clockwise", [4]int32{0, -1, 1, 0}, "GWRB"},
			{"transposed", [4]int32{0, 1, 1, 0}, "RBGW"}, {"transposed back", [4]int32{0, -1, -1, 0}, "WGBR"},
		},
	} {
		var clips []timeline.Segment
		for _, turn := range turns {
			clips = append(clips, cut(mediatest.WithMatrix(t, plain, turn.matrix), 0, 300))
		}
		out := b.render(t, film(clips...))
		if m := mediatest.Inspect(t, out.Path).Video(t); m.Width != canvas[0] || m.Height != canvas[1] || m.Rotated {
			t.Errorf("%dx%d, rotated %v; want %v upright", m.Width, m.Height, m.Rotated, canvas)
		}
		for i, img := range mediatest.Frames(t, out.Path, mediatest.Every(100*time.Millisecond, 300*time.Millisecond, len(turns))...) {
			if got := seen(t, img); got != turns[i].want {
				t.Errorf("%s shows %s, want %s", turns[i].name, got, turns[i].want)
			}
		}
	}
}

// Odd sizes, pixels that are not square, and pictures fitted into the first segment's canvas with black bars.
func TestSizesAndPixelShapes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var in, encode []string
	make := func(w, h int, filter string) string {
		path := filepath.Join(t.TempDir(), "size.mkv")
		encode = append(encode, "-map", fmt.Sprint(len(encode)/7), "-c:v", "ffv1", "-pix_fmt", "yuv444p", path)
		in = append(in, quarters(w, h, "30", 300*time.Millisecond)...)
		in[len(in)-1] += filter
		return path
	}
	type size struct {
		path         string
		wantW, wantH int
	}
	sizes := map[string]size{
		"odd":         {make(321, 181, ""), 320, 180},
		"pal wide":    {make(360, 288, ",setsar=64/45"), 512, 288},
		"tall pixels": {make(320, 180, ",setsar=1/2"), 320, 360},
	}
	fitted := film(cut(make(320, 180, ""), 0, 0), cut(make(180, 320, ""), 0, 0), cut(make(160, 120, ",setsar=2"), 0, 0), cut(make(640, 362, ""), 0, 0))
	mediatest.FFmpeg(t, append(in, encode...)...)
	for name, tt := range sizes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := b.render(t, film(cut(tt.path, 0, 0)))
			m := mediatest.Inspect(t, out.Path).Video(t)
			if m.Width != tt.wantW || m.Height != tt.wantH || m.SAR != "1:1" {
				t.Errorf("%dx%d, pixels %s; want %dx%d, 1:1", m.Width, m.Height, m.SAR, tt.wantW, tt.wantH)
			}
			if got := seen(t, mediatest.Frame(t, out.Path, 100*time.Millisecond)); got != "RGBW" {
				t.Errorf("shows %s", got)
			}
		})
	}
	t.Run("others are fitted", func(t *testing.T) {
		t.Parallel()
		out := b.render(t, fitted)
		black := color.RGBA{0, 0, 0, 255}
		pictures := mediatest.Frames(t, out.Path, mediatest.Every(450*time.Millisecond, 300*time.Millisecond, 3)...)
		at := func(n int) func(x, y float64) color.RGBA {
			return func(x, y float64) color.RGBA { return mediatest.ColorAt(pictures[n], x, y) }
		}
		portrait := at(0) // 101 wide in 320
		sameColor(t, "left bar", portrait(0.3, 0.5), black, 8)
		sameColor(t, "right bar", portrait(0.7, 0.5), black, 8)
		sameColor(t, "portrait", portrait(0.42, 0.25), corners["R"], 40)
		wide := at(1) // 320x120 displayed: 120 high in 180
		sameColor(t, "upper bar", wide(0.5, 0.1), black, 8)
		sameColor(t, "lower bar", wide(0.5, 0.9), black, 8)
		sameColor(t, "wide", wide(0.05, 0.3), corners["R"], 40)
		nearly := at(2) // half a percent off the canvas' shape: no bars
		sameColor(t, "top edge", nearly(0.25, 0.03), corners["R"], 40)
		sameColor(t, "left edge", nearly(0.02, 0.25), corners["R"], 40)
	})
}

func rgbName(c color.RGBA) string { return fmt.Sprintf("0x%02x%02x%02x", c.R, c.G, c.B) }

// Colours look the same in the output as in the source, whatever its matrix, range, subsampling and depth.
func TestColoursAreKept(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	type variant struct{ matrix, rng, pix, codec, container, primaries string }
	tests := map[string]variant{
		"bt709 tv":       {"bt709", "tv", "yuv420p", "libx264", "mp4", ""},
		"bt601 tv":       {"smpte170m", "tv", "yuv420p", "libx264", "mp4", ""},
		"bt709 full":     {"bt709", "pc", "yuv420p", "libx264", "mp4", ""},
		"422 10 bit":     {"bt709", "tv", "yuv422p10le", "libx264", "mp4", ""},
		"444 10 bit 601": {"smpte170m", "tv", "yuv444p10le", "libx264", "mp4", ""},
		"mjpeg full 601": {"bt470bg", "pc", "yuvj422p", "mjpeg", "mov", ""},
		"rgb":            {"", "", "bgr0", "ffv1", "mkv", ""},
		"rgb in h264":    {"", "", "rgb24", "libx264rgb", "mkv", ""},
		"gray":           {"bt709", "tv", "gray", "ffv1", "mkv", ""},
		"sd untagged":    {"", "tv", "yuv420p", "mpeg4", "mp4", ""},
		"display p3":     {"bt709", "tv", "yuv420p", "libx264", "mp4", "smpte432"},
		"p3 full 601":    {"smpte170m", "pc", "yuv420p", "libx264", "mp4", "smpte432"},
		"bt2020 wide":    {"bt2020nc", "tv", "yuv420p10le", "libx265", "mp4", "bt2020"},
	}
	rgb := []color.RGBA{{200, 60, 40, 255}, {40, 170, 80, 255}, {60, 70, 190, 255}, {128, 128, 128, 255}}
	names := slices.Sorted(maps.Keys(tests))
	var clips []timeline.Segment
	// All these codecs accept 176x144.
	src := fmt.Sprintf("color=c=%s:s=176x144:r=25,format=rgb24", rgbName(rgb[0]))
	for i, c := range rgb[1:] {
		src += fmt.Sprintf(",drawbox=x=%d:y=%d:w=88:h=72:c=%s:t=fill", []int{88, 0, 88}[i], []int{0, 72, 72}[i], rgbName(c))
	}
	args := []string{"-f", "lavfi", "-t", "0.4", "-i", src}
	for _, name := range names {
		v := tests[name]
		path := filepath.Join(t.TempDir(), "colour."+v.container)
		matrix, rng, primaries := v.matrix, v.rng, "bt709"
		if v.primaries != "" {
			primaries = v.primaries
		}
		if matrix == "" {
			matrix = "smpte170m" // what players assume for untagged small pictures
		}
		if rng == "" {
			args = append(args, "-vf", "format="+v.pix)
		} else {
			sws := map[string]string{"smpte170m": "bt601", "bt470bg": "bt601", "bt709": "bt709", "bt2020nc": "bt2020"}[matrix]
			pix := v.pix
			if pix == "gray" { // scaled straight to it, later versions of ffmpeg take another matrix and range
				pix = "yuv444p,extractplanes=y"
			}
			filter := fmt.Sprintf("scale=out_color_matrix=%s:out_range=%s:flags=accurate_rnd+full_chroma_int,format=%s", sws, rng, pix)
			if v.primaries != "" {
				filter = fmt.Sprintf("format=gbrp,setparams=color_primaries=bt709:color_trc=bt470m,zscale=p=%s,%s", v.primaries, filter)
			}
			if v.matrix != "" {
				filter += fmt.Sprintf(",setparams=color_primaries=%s:color_trc=bt709:colorspace=%s", primaries, v.matrix)
			}
			args = append(args, "-vf", filter)
			if v.matrix != "" {
				args = append(args, "-colorspace", v.matrix, "-color_range", rng, "-color_primaries", primaries, "-color_trc", "bt709")
			}
		}
		args = append(args, "-c:v", v.codec)
		if v.codec == "libx264" || v.codec == "libx264rgb" {
			args = append(args, "-crf", "4", "-preset", "ultrafast")
		} else if v.codec == "mjpeg" || v.codec == "mpeg4" {
			args = append(args, "-q:v", "1", "-strict", "-1")
		} else if v.codec == "libx265" {
			args = append(args, "-crf", "6", "-preset", "ultrafast", "-x265-params", "log-level=error")
		}
		args = append(args, path)
		clips = append(clips, cut(path, 0, 400))
	}
	mediatest.FFmpeg(t, args...)
	tl := film(clips...)
	tl.Quality = timeline.High
	out := b.render(t, tl)
	m := mediatest.Inspect(t, out.Path).Video(t)
	if m.PixelFormat != "yuv420p" || m.ColorSpace != "bt709" || m.ColorTransfer != "bt709" || m.ColorPrimaries != "bt709" || m.ColorRange != "tv" || m.Profile != "High" {
		t.Errorf("tags: %+v", m)
	}
	pictures := mediatest.Frames(t, out.Path, mediatest.Every(200*time.Millisecond, 400*time.Millisecond, len(names))...)
	for n, name := range names {
		for i, p := range [][2]float64{{0.25, 0.25}, {0.75, 0.25}, {0.25, 0.75}, {0.75, 0.75}} {
			want := rgb[i]
			if name == "gray" { // it has its own luma
				y := uint8(math.Round(0.2126*float64(want.R) + 0.7152*float64(want.G) + 0.0722*float64(want.B)))
				want = color.RGBA{y, y, y, 255}
			}
			sameColor(t, fmt.Sprintf("%s: patch %d", name, i), mediatest.ColorAt(pictures[n], p[0], p[1]), want, 7)
		}
	}
}

// Transparent pixels show black, or the blurred background. What is hidden under them never shows.
func TestTransparentPixels(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var in []string
	var clips []timeline.Segment
	names := []string{"prores", "qtrle", "png", "vp9", "vp8"}
	for i, v := range [][]string{
		{"mov", "prores_ks", "format=yuva444p10"}, {"mov", "qtrle", "format=argb"}, {"mov", "png", "format=rgba"},
		{"webm", "libvpx-vp9", "format=yuva420p", "-deadline", "realtime", "-cpu-used", "8"},
		{"webm", "libvpx", "format=yuva420p", "-auto-alt-ref", "0", "-deadline", "realtime"},
	} {
		path := filepath.Join(t.TempDir(), fmt.Sprint(i, ".", v[0]))
		// Green on the left. On the right, red that is transparent.
		in = append(append(in, "-map", "0", "-vf", "geq=r='if(lt(X,W/2),0,255)':g='if(lt(X,W/2),200,0)':b=0:a='if(lt(X,W/2),255,0)',"+
			"scale=out_color_matrix=bt709:out_range=tv,"+v[2]+",setparams=range=tv:colorspace=bt709:color_primaries=bt709:color_trc=bt709", "-c:v", v[1]), v[3:]...)
		in = append(in, path)
		clips = append(clips, cut(path, 0, 0))
	}
	mediatest.FFmpeg(t, append([]string{"-f", "lavfi", "-i", "color=black:size=320x180:rate=10:duration=0.4,format=gbrap"}, in...)...)
	tl := film(slices.Concat(clips, clips)...)
	tl.Quality, tl.Canvas = timeline.High, &timeline.Canvas{Aspect: "9:16", Fit: timeline.Contain}
	for i := range clips {
		tl.Segments[len(clips)+i].Fit = timeline.Blur
	}
	out := b.render(t, tl)
	black, green := color.RGBA{0, 0, 0, 255}, color.RGBA{0, 200, 0, 255}
	for i, p := range mediatest.Frames(t, out.Path, mediatest.Every(200*time.Millisecond, 400*time.Millisecond, 2*len(clips))...) {
		name := names[i%len(names)]
		sameColor(t, name+": opaque", mediatest.ColorAt(p, 0.2, 0.5), green, 12)
		hidden := mediatest.ColorAt(p, 0.8, 0.5)
		if i < len(clips) {
			sameColor(t, name+": transparent", hidden, black, 12)
			continue
		}
		// The background is a blur of green and black, whose middle is both.
		if middle := mediatest.ColorAt(p, 0.55, 0.5); hidden.R > 12 || middle.R > 12 || middle.G < 20 {
			t.Errorf("%s: transparent pixels over the blurred background are %v and %v", name, middle, hidden)
		}
		sameColor(t, name+": the bar and the background between the bars", mediatest.ColorAt(p, 0.8, 0.5), mediatest.ColorAt(p, 0.8, 0.1), 16)
	}
}

// Scrubbing needs a key frame at least every two seconds. The header states the exact length, and that the film was
// made now.
func TestKeyFramesAndHeader(t *testing.T) {
	t.Parallel()
	clip := mediatest.Clip(t, mediatest.Spec{Width: 64, Height: 48, FPS: "30000/1001", Duration: 9 * time.Second, GOP: 300})
	began := time.Now()
	out := newBench(t).render(t, film(cut(clip, 0, 8765)))
	times := mediatest.FFmpeg(t, "-skip_frame", "nokey", "-i", out.Path, "-map", "0:v", "-fps_mode", "passthrough", "-enc_time_base", "1:1000",
		"-c:v", "wrapped_avframe", "-f", "mkvtimestamp_v2", "-")
	last, keys := 0.0, 0
	for line := range strings.Lines(string(times)) {
		at, err := strconv.ParseFloat(strings.TrimSpace(line), 64)
		if err != nil {
			continue // the heading
		}
		if at-last > 2000 {
			t.Errorf("%v ms between key frames at %v", at-last, at)
		}
		last, keys = at, keys+1
	}
	if keys < 5 {
		t.Errorf("%d key frames in nine seconds", keys)
	}
	said, err := exec.Command("ffprobe", "-v", "error", "-show_entries", "format_tags=creation_time", "-of", "csv=p=0", out.Path).Output()
	if err != nil {
		t.Fatal(err)
	}
	if at, err := time.Parse(time.RFC3339Nano, strings.TrimSpace(string(said))); err != nil || at.Before(began.Add(-2*time.Second)) || at.After(time.Now()) {
		t.Errorf("created at %q, rendered after %v", said, began)
	}
	data, err := os.ReadFile(out.Path)
	if err != nil {
		t.Fatal(err)
	}
	header := bytes.Index(data, []byte("mvhd")) + 4 + 4 + 8
	scale, length := binary.BigEndian.Uint32(data[header:]), binary.BigEndian.Uint32(data[header+4:])
	if want := float64(out.Frames) * 1001 / 30000; math.Abs(float64(length)/float64(scale)-want) > 1e-5 {
		t.Errorf("the header states %d/%d s, want %.6f s", length, scale, want)
	}
}

// A recording that rotates midway has pictures of two sizes in one track. Each is shown whole, in its own shape, on the
// canvas of the first. The second also changes its depth.
func TestPicturesThatChangeInTheMiddle(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	dir := t.TempDir()
	var args, raws []string
	for i, look := range [][2]string{{"red:s=160x90", "yuv420p"}, {"green:s=90x160", "yuv420p"}, {"green:s=90x160", "yuv420p10"}} {
		raws = append(raws, filepath.Join(dir, fmt.Sprint(i, ".h264")))
		args = append([]string{"-f", "lavfi", "-i", "color=" + look[0] + ":r=10:d=1"}, args...)
		args = append(args, "-map", fmt.Sprint(2-i), "-pix_fmt", look[1], "-bf", "0", "-g", "5", raws[i])
	}
	mediatest.FFmpeg(t, args...)
	var both []byte
	for _, raw := range raws {
		data, err := os.ReadFile(raw)
		if err != nil {
			t.Fatal(err)
		}
		both = append(both, data...)
	}
	raw, clip := filepath.Join(dir, "both.h264"), filepath.Join(dir, "both.mp4")
	if err := os.WriteFile(raw, both, 0o600); err != nil {
		t.Fatal(err)
	}
	mediatest.FFmpeg(t, "-r", "10", "-i", raw, "-c", "copy", "-tag:v", "avc3", clip)
	out := b.render(t, film(cut(clip, 0, 2000), cut(clip, 1500, 2500), cut(clip, 0, 500)))
	if v := mediatest.Inspect(t, out.Path).Video(t); v.Width != 160 || v.Height != 90 {
		t.Errorf("the film is %dx%d", v.Width, v.Height)
	}
	mediatest.ConstantRate(t, out.Path, 10, 35, time.Millisecond)
	red, green, black := color.RGBA{R: 255, A: 255}, color.RGBA{G: 128, A: 255}, color.RGBA{A: 255}
	moments := []struct {
		at           time.Duration
		middle, side color.RGBA
	}{{50, red, red}, {950, red, red}, {1050, green, black}, {1950, green, black}, {2250, green, black}, {2950, green, black}, {3250, red, red}}
	var times []time.Duration
	for _, m := range moments {
		times = append(times, m.at*time.Millisecond)
	}
	for i, img := range mediatest.Frames(t, out.Path, times...) {
		at := moments[i]
		for x, want := range map[float64]color.RGBA{0.5: at.middle, 0.1: at.side} {
			if got := mediatest.ColorAt(img, x, 0.1); mediatest.ColorDistance(got, want) > 40 {
				t.Errorf("at %d ms, %.1f of the width: %v, want %v", at.at, x, got, want)
			}
		}
	}
}
