// Sources that real devices write and that are easy to get wrong: HDR, variable rate, interlaced, hidden tracks, edit
// lists, wrong durations.

package engine_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"image"
	"image/color"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"cutroom/internal/film/timeline"
	"cutroom/internal/testkit/mediatest"
)

// HDR is converted to SDR: reference white is nearly white, grey stays neutral and ordered, the tags say BT.709, and no
// metadata describes the light of the master.
func TestHDRIsToneMapped(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tests := []struct {
		name, transfer string
		steps          [4]float64 // of the signal: dark, middle, reference white, brightest
		codec, ctner   string
	}{
		{"pq hevc with light levels", "smpte2084", [4]float64{0.25, 0.44, 0.58, 0.9}, "libx265", "mp4"}, // whose headers the film would have
		{"pq hevc", "smpte2084", [4]float64{0.25, 0.44, 0.58, 0.9}, "libx265", "mov"},
		{"hlg hevc", "arib-std-b67", [4]float64{0.25, 0.5, 0.75, 1}, "libx265", "mp4"},
		{"hlg av1", "arib-std-b67", [4]float64{0.25, 0.5, 0.75, 1}, "libaom-av1", "mp4"},
	}
	var clips []timeline.Segment
	var in, encode []string
	for i, v := range tests {
		path := filepath.Join(t.TempDir(), "hdr."+v.ctner)
		lum := "0"
		for i := len(v.steps) - 1; i >= 0; i-- {
			lum = fmt.Sprintf("if(lt(X,%d),%.4f,%s)", 40*(i+1), 64+876*v.steps[i], lum)
		}
		in = append(in, "-f", "lavfi", "-t", "0.4", "-i", "color=c=black:s=160x90:r=25,format=gray10le,geq=lum='"+lum+
			"',format=yuv420p10le,setparams=colorspace=bt2020nc:color_primaries=bt2020:color_trc="+v.transfer+":range=tv")
		encode = append(encode, "-map", fmt.Sprint(i), "-c:v", v.codec, "-colorspace", "bt2020nc", "-color_primaries", "bt2020", "-color_trc", v.transfer, "-crf", "8")
		if v.codec == "libx265" {
			params := "log-level=error"
			if strings.Contains(v.name, "light levels") {
				encode = append(encode, "-tag:v", "hvc1")
				params += ":max-cll=4000,400:master-display=G(13250,34500)B(7500,3000)R(34000,16000)WP(15635,16450)L(40000000,1)"
			}
			encode = append(encode, "-preset", "ultrafast", "-x265-params", params)
		} else {
			encode = append(encode, "-cpu-used", "8", "-usage", "realtime")
		}
		encode = append(encode, path)
		clips = append(clips, cut(path, 0, 400))
	}
	mediatest.FFmpeg(t, append(in, encode...)...)
	describeLight(t, clips[0].SourceKey)
	out := b.render(t, film(clips...))
	said, err := exec.Command("ffprobe", "-v", "error", "-show_streams", "-show_frames", "-select_streams", "v", out.Path).CombinedOutput()
	if err != nil || bytes.Contains(said, []byte("Mastering")) || bytes.Contains(said, []byte("light level")) {
		t.Errorf("%v: the film says:\n%s", err, said[max(0, len(said)-1500):])
	}
	m := mediatest.Inspect(t, out.Path).Video(t)
	if m.ColorTransfer != "bt709" || m.ColorPrimaries != "bt709" || m.ColorSpace != "bt709" || m.PixelFormat != "yuv420p" {
		t.Errorf("tags: %+v", m)
	}
	pictures := mediatest.Frames(t, out.Path, mediatest.Every(200*time.Millisecond, 400*time.Millisecond, len(tests))...)
	for n, v := range tests {
		img := pictures[n]
		var grey [4]color.RGBA
		for i := range grey {
			grey[i] = mediatest.ColorAt(img, (float64(i)+0.5)/4, 0.5)
			g := grey[i]
			if max(g.R, g.G, g.B)-min(g.R, g.G, g.B) > 6 {
				t.Errorf("%s: step %d is not grey: %v", v.name, i, g)
			}
			if i > 0 && g.G <= grey[i-1].G+10 {
				t.Errorf("%s: steps %d and %d are hardly apart: %v, %v", v.name, i-1, i, grey[i-1], g)
			}
		}
		if w := grey[2].G; w < 222 || w > 244 {
			t.Errorf("%s: reference white came out as %d", v.name, w)
		}
		if w := grey[3].G; w < 225 {
			t.Errorf("%s: the brightest step came out as %d", v.name, w)
		}
		if v.transfer == "smpte2084" { // whatever the metadata claims about the light
			sameColor(t, v.name+": reference white", grey[2], mediatest.ColorAt(pictures[1], 2.5/4, 0.5), 2)
		}
	}
}

// describeLight inserts the boxes of a camera that describe the light. ffmpeg's muxer only writes them for copied
// streams. They follow the decoder configuration, before the end of the index, which is the end of the file.
func describeLight(t *testing.T, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	boxes := []byte("\x00\x00\x00\x20mdcv\x33\xc2\x86\xc4\x1d\x4c\x0b\xb8\x84\xd0\x3e\x80\x3d\x13\x40\x42\x00\x98\x96\x80\x00\x00\x00\x01" +
		"\x00\x00\x00\x0cclli\x03\xe8\x01\x90")
	at := bytes.Index(data, []byte("hvcC")) - 4
	if at < 0 || bytes.Index(data, []byte("moov")) < bytes.Index(data, []byte("mdat")) {
		t.Fatal("the fixture is laid out otherwise")
	}
	for _, name := range []string{"moov", "trak", "mdia", "minf", "stbl", "stsd", "hvc1"} {
		i := bytes.Index(data, []byte(name)) - 4
		binary.BigEndian.PutUint32(data[i:], binary.BigEndian.Uint32(data[i:])+uint32(len(boxes)))
	}
	if err := os.WriteFile(path, slices.Insert(data, at, boxes...), 0o600); err != nil {
		t.Fatal(err)
	}
}

// variable makes a film whose n-th frame shows the grey level 20*n+20 from times[n] ms on. The last frame is as long as
// the one before it.
func variable(t *testing.T, container string, times ...int) string {
	t.Helper()
	expr := fmt.Sprint(times[len(times)-1])
	for n := len(times) - 2; n >= 0; n-- {
		expr = fmt.Sprintf("if(eq(N,%d),%d,%s)", n, times[n], expr)
	}
	path := filepath.Join(t.TempDir(), "variable."+container)
	mediatest.FFmpeg(t, "-f", "lavfi", "-i", "color=c=black:s=160x120:r=25,format=gray,geq=lum='20*N+20',format=yuvj420p,scale=out_range=tv,format=yuv420p,settb=1/1000,setpts='"+expr+"'",
		"-frames:v", fmt.Sprint(len(times)), "-fps_mode", "passthrough", "-enc_time_base", "1/1000", "-c:v", "libx264", "-preset", "ultrafast", "-bf", "2", "-crf", "10", path)
	return path
}

// greys decodes a film and returns the grey level of every frame.
func greys(t *testing.T, path string) []int {
	t.Helper()
	var levels []int
	for _, y := range mediatest.FFmpeg(t, "-i", path, "-vf", "scale=1:1:flags=area:in_range=tv:out_range=pc,format=gray", "-fps_mode", "passthrough", "-f", "rawvideo", "-") {
		levels = append(levels, int(y))
	}
	return levels
}

// With a variable rate, the frame visible at the trim start comes first, and every frame appears on time.
func TestVariableRateShowsTheVisibleFrameFirst(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	clip := variable(t, "mkv", 0, 33, 67, 100, 1000, 1033, 1067, 2000, 2033, 2100)
	out := b.render(t, film(cut(clip, 500, 2080)))
	if out.FrameRate.String() != "30/1" {
		t.Errorf("rate %v", out.FrameRate)
	}
	mediatest.DurationWithin(t, out.Path, 1580*time.Millisecond, 34*time.Millisecond)
	shown := greys(t, out.Path)
	for _, s := range []struct{ ms, frame int }{{10, 3}, {250, 3}, {470, 3}, {515, 4}, {550, 5}, {585, 6}, {1000, 6}, {1470, 6}, {1515, 7}, {1550, 8}} {
		if got := (shown[s.ms*30/1000]+10)/20 - 1; got != s.frame {
			t.Errorf("at %d ms frame %d is shown, want %d", s.ms, got, s.frame)
		}
	}
	// A camera's jitter must not double or drop frames.
	jitter := variable(t, "mp4", 0, 36, 65, 103, 131, 168, 202, 230, 268, 299, 333)
	out = b.render(t, film(cut(jitter, 0, 330)))
	for n, grey := range greys(t, out.Path) {
		if got := (grey+10)/20 - 1; got != n {
			t.Errorf("frame %d of the output shows %d", n, got)
		}
	}
	// If two frames have the same time, the later one is shown, even in a part that begins with them or has no others.
	doubled := mediatest.Remux(t, variable(t, "mkv", 0, 40, 80, 120, 160, 200, 240, 280, 320, 360), "mkv", "-bsf:v", "setts=pts=80*floor(PTS/80)+80")
	shown = greys(t, b.render(t, film(cut(doubled, 160, 320), cut(doubled, 240, 290))).Path)
	for i := range shown {
		shown[i] = (shown[i]+10)/20 - 1
	}
	if want := []int{5, 7, 7}; !slices.Equal(shown, want) {
		t.Errorf("the film shows %v, want %v", shown, want)
	}
}

// A trim is exact to the frame between key frames, with reordered frames and in every container.
func TestTrimIsExactToTheFrame(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var want []int // the film's frames
	var cuts []timeline.Segment
	args := []string{"-f", "lavfi", "-i", "color=c=black:s=64x64:r=25,format=gray,geq=lum='40*mod(N,6)+20',format=yuvj420p,scale=out_range=tv,format=yuv420p"}
	for _, clip := range [][2]string{{"mp4", "libx264"}, {"mkv", "libx264"}, {"mov", "libx265"}, {"webm", "libvpx-vp9"}, {"mp4", "libaom-av1"}, {"mp4", "mpeg4"}} {
		path := filepath.Join(t.TempDir(), "trim."+clip[0])
		args = append(args, "-map", "0", "-frames:v", "75", "-c:v", clip[1], "-g", "30")
		switch clip[1] {
		case "libx265":
			args = append(args, "-preset", "ultrafast", "-bf", "3", "-crf", "12", "-x265-params", "log-level=error:bframes=3:open-gop=1", "-tag:v", "hvc1")
		case "libaom-av1":
			args = append(args, "-cpu-used", "8", "-usage", "realtime", "-crf", "20")
		case "libvpx-vp9":
			args = append(args, "-deadline", "good", "-cpu-used", "5", "-auto-alt-ref", "1", "-lag-in-frames", "16", "-crf", "20", "-b:v", "0")
		case "mpeg4":
			args = append(args, "-q:v", "2", "-bf", "2")
		default:
			args = append(args, "-preset", "veryfast", "-bf", "3", "-crf", "12", "-x264-params", "open-gop=1")
		}
		args = append(args, path)
		for _, from := range []int{29, 44, 74} { // around a key frame, inside, and the last frame
			to := min(75, from+3)
			cuts = append(cuts, cut(path, int64(from*40), int64(to*40)))
			for n := from; n < to; n++ {
				want = append(want, n%6)
			}
		}
	}
	mediatest.FFmpeg(t, args...)
	got := greys(t, b.render(t, film(cuts...)).Path)
	for i := range got {
		got[i] /= 40
	}
	if !slices.Equal(got, want) {
		t.Errorf("the film shows\n%v, want\n%v", got, want)
	}
}

// Interlaced film is deinterlaced and keeps its rate.
func TestInterlacedIsWoven(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	// A bar that moves 8 pixels per field gives combs of 8 pixels.
	args := []string{"-f", "lavfi", "-t", "1", "-i", "color=c=black:s=320x240:r=50,geq=lum='if(between(mod(X-8*N,320),0,80),235,16)':cb=128:cr=128"}
	orders := []string{"tff", "bff"}
	var cuts []timeline.Segment
	for _, order := range orders {
		path := filepath.Join(t.TempDir(), "fields.mp4")
		args = append(args, "-vf", "interlace=scan="+order+":lowpass=0,format=yuv420p", "-c:v", "libx264", "-preset", "ultrafast",
			"-flags", "+ildct+ilme", "-x264-params", order+"=1", "-crf", "10", path)
		cuts = append(cuts, cut(path, 0, 0))
	}
	mediatest.FFmpeg(t, args...)
	out := b.render(t, film(cuts...))
	if out.FrameRate.String() != "25/1" || out.Frames != 50 {
		t.Errorf("%d frames at %v", out.Frames, out.FrameRate)
	}
	combs := func(img *image.RGBA) (n int) {
		for y := 20; y < 220; y++ {
			for x := range 320 {
				a, c, d := int(img.RGBAAt(x, y-1).G), int(img.RGBAAt(x, y).G), int(img.RGBAAt(x, y+1).G)
				if (a-c > 60 && d-c > 60) || (c-a > 60 && c-d > 60) {
					n++
				}
			}
		}
		return n
	}
	pictures := mediatest.Frames(t, out.Path, mediatest.Every(420*time.Millisecond, time.Second, 2)...)
	for i, order := range orders {
		before, after := combs(mediatest.Frame(t, cuts[i].SourceKey, 420*time.Millisecond)), combs(pictures[i])
		if before < 500 || after > before/20 {
			t.Errorf("%s: %d comb pixels before, %d after", order, before, after)
		}
	}
}

// Hidden tracks are ignored.
func TestTheRightTracksAreUsed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	dir := t.TempDir()
	cover := filepath.Join(dir, "cover.jpg")
	mediatest.FFmpeg(t, "-f", "lavfi", "-i", "color=c=red:s=600x600", "-frames:v", "1", cover)
	t.Run("cover art of music", func(t *testing.T) {
		t.Parallel()
		music := filepath.Join(dir, "music.mp3")
		mediatest.FFmpeg(t, "-f", "lavfi", "-t", "2", "-i", "sine=660:r=48000", "-i", cover, "-map", "0", "-map", "1", "-c:v", "mjpeg", "-disposition:v", "attached_pic", "-id3v2_version", "3", music)
		tl := film(cut(mediatest.Clip(t, mediatest.Spec{Width: 160, Height: 120, Duration: 2 * time.Second}), 0, 0))
		tl.Clips = []timeline.Clip{{SourceKey: music, Volume: 1, Speed: 1}}
		out := b.render(t, tl)
		near(t, "music", mediatest.ToneLevel(t, out.Path, 660, mediatest.Between(200, 1800)), db(0.125), 0.6)
		if got := b.fails(t, film(cut(music, 0, 0))); got != "no_media: segments[0]: the file has no video" {
			t.Error(got)
		}
	})
	t.Run("several tracks", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(dir, "several.mp4")
		mediatest.FFmpeg(t, "-i", cover, "-f", "lavfi", "-t", "1", "-i", "color=c=red:s=64x64:r=25", "-f", "lavfi", "-t", "1", "-i", "color=c=blue:s=320x180:r=30",
			"-f", "lavfi", "-t", "1", "-i", "sine=440:r=48000", "-f", "lavfi", "-t", "1", "-i", "sine=880:r=48000",
			"-map", "0", "-map", "1", "-map", "2", "-map", "3", "-map", "4", "-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p",
			"-c:v:0", "mjpeg", "-pix_fmt:v:0", "yuvj420p", "-disposition:v:0", "attached_pic", "-ac:a:0", "1", "-ac:a:1", "2", path)
		out := b.render(t, film(cut(path, 0, 0)))
		if out.Width != 320 || out.FrameRate.Num != 30 || out.Frames != 30 {
			t.Errorf("%+v", out)
		}
		sameColor(t, "picture", mediatest.ColorAt(mediatest.Frame(t, out.Path, 0), 0.5, 0.5), color.RGBA{0, 0, 255, 255}, 12)
		want := mediatest.ToneLevel(t, path, 440, mediatest.Between(200, 800)) // ffmpeg's fold to mono raises it by 3 dB
		near(t, "first sound track", mediatest.ToneLevel(t, out.Path, 440, mediatest.Between(200, 800)), want, 0.1)
		if l := mediatest.ToneLevel(t, out.Path, 880, mediatest.Between(200, 800)); l > -50 {
			t.Errorf("the second sound track is heard at %.1f dB", l)
		}
	})
}

// Video that starts late keeps its offset to the sound. A video shorter than its sound holds its last frame.
func TestLateAndShortVideo(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	clip := mediatest.FlashBeep(t, 4*time.Second, "30")
	late := filepath.Join(t.TempDir(), "late.mkv")
	// The picture is delayed by 200 ms against the sound: flash k is at k + 0.2.
	mediatest.FFmpeg(t, "-itsoffset", "0.2", "-i", clip, "-i", clip, "-map", "0:v", "-map", "1:a", "-c", "copy", late)
	out := b.render(t, film(cut(late, 0, 3900)))
	points := mediatest.SyncPoints(t, out.Path)
	if len(points) != 4 {
		t.Fatalf("%d flashes", len(points))
	}
	for i, p := range points[1:] { // before the first flash the picture stands still, white
		if d := p.Offset() + 200*time.Millisecond; d.Abs() > 2*time.Millisecond {
			t.Errorf("flash %d at %v, beep at %v", i+1, p.Flash, p.Beep)
		}
	}
	short := filepath.Join(t.TempDir(), "short.mp4")
	mediatest.FFmpeg(t, "-f", "lavfi", "-t", "1", "-i", "color=c=blue:s=160x120:r=30", "-f", "lavfi", "-t", "3", "-i", "sine=440:r=48000",
		"-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", short)
	// This also works for a segment entirely after the end of the pictures.
	out = b.render(t, film(cut(short, 0, 0), cut(short, 2000, 2500)))
	mediatest.ConstantRate(t, out.Path, 30, 105, 20*time.Microsecond)
	for _, img := range mediatest.Frames(t, out.Path, 2900*time.Millisecond, 3100*time.Millisecond) {
		sameColor(t, "last frame", mediatest.ColorAt(img, 0.5, 0.5), color.RGBA{0, 0, 255, 255}, 12)
	}
}

// Tiny clips, and trims beyond the end.
func TestTinyClipsAndTrimsBeyondTheEnd(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	two := mediatest.Clip(t, mediatest.Spec{Width: 160, Height: 120, Duration: 200 * time.Millisecond, Tone: 440})
	one := mediatest.Clip(t, mediatest.Spec{Width: 160, Height: 120, FPS: "25", Duration: 40 * time.Millisecond})
	for want, tl := range map[int64]timeline.Timeline{10: film(cut(two, 0, 0), cut(one, 0, 0), cut(two, 100, 99999)), 1: film(cut(two, 150, 151))} {
		if n := b.render(t, tl).Frames; n < want || n > want+want/10 {
			t.Errorf("%d frames, want %d", n, want)
		}
	}
	if got := b.fails(t, film(cut(two, 5000, 0))); !strings.HasPrefix(got, "no_media: segments[0]: trimStartMs is at or beyond the end of the source (0.2 s") {
		t.Error(got)
	}
	tl := film(cut(two, 0, 0))
	tl.Clips = []timeline.Clip{{SourceKey: two, SourceTrimStart: time.Minute, Volume: 1, Speed: 1}}
	if got := b.fails(t, tl); !strings.HasPrefix(got, "no_media: bgmClips[0]: sourceTrimStartMs is at or beyond the end") {
		t.Error(got)
	}
}

// Wrong durations in headers do not change the film.
func TestBogusDurations(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	plain := mediatest.Clip(t, mediatest.Spec{Width: 160, Height: 120, Duration: time.Second, Tone: 440})
	fragmented := mediatest.Remux(t, plain, "mp4", "-movflags", "frag_keyframe+empty_moov+default_base_moof")
	live := filepath.Join(t.TempDir(), "live.webm")
	data := mediatest.FFmpeg(t, "-f", "lavfi", "-t", "1", "-i", "testsrc2=s=160x120:r=30", "-c:v", "libvpx", "-deadline", "realtime", "-f", "webm", "-live", "1", "-")
	if err := os.WriteFile(live, data, 0o600); err != nil {
		t.Fatal(err)
	}
	lying := filepath.Join(t.TempDir(), "lying.mp4")
	data, err := os.ReadFile(fragmented)
	if err != nil {
		t.Fatal(err)
	}
	for _, box := range []string{"mvhd", "mdhd", "tkhd"} { // durations of 40 hours in milliseconds
		for at := bytes.Index(data, []byte(box)); at >= 0; {
			off := map[string]int{"mvhd": 20, "mdhd": 20, "tkhd": 24}[box]
			binary.BigEndian.PutUint32(data[at+off:], 143165000)
			next := bytes.Index(data[at+4:], []byte(box))
			if next < 0 {
				break
			}
			at += 4 + next
		}
	}
	if err := os.WriteFile(lying, data, 0o600); err != nil {
		t.Fatal(err)
	}
	out := b.render(t, film(cut(fragmented, 0, 0), cut(live, 0, 0), cut(lying, 0, 0)))
	mediatest.DurationWithin(t, out.Path, 3*time.Second, 3*40*time.Millisecond)
}

// A sound that starts late and that the edit list ends early lacks nothing.
func TestEditListsThatEndEarlyAreNoDamage(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	late := filepath.Join(t.TempDir(), "late.mp4")
	mediatest.FFmpeg(t, "-f", "lavfi", "-t", "4", "-i", "color=s=64x64:r=30", "-itsoffset", "1", "-f", "lavfi", "-t", "3", "-i", "sine=440:r=48000", late)
	early := altered(t, late, func(data []byte) []byte {
		const secondDuration = 4 + 8 + 12 // after the box's name, its header and its first entry
		edits := bytes.LastIndex(data, []byte("elst"))
		binary.BigEndian.PutUint32(data[edits+secondDuration:], 1000)
		return data
	})
	mediatest.DurationWithin(t, b.render(t, film(cut(early, 0, 0))).Path, 4*time.Second, 34*time.Millisecond)
}

// Files from current and old phones and from browsers can be segments.
func TestContainersAndCodecs(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var cuts []timeline.Segment
	var names []string
	all := append(quarters(176, 144, "25", time.Second), "-f", "lavfi", "-t", "1", "-i", "sine=440:r=48000")
	for _, args := range [][]string{
		{"3gp", "-c:v", "h263", "-c:a", "aac", "-ar", "16000"},
		{"3gp", "-c:v", "mpeg4", "-q:v", "3", "-c:a", "aac"},
		{"mov", "-c:v", "libx265", "-preset", "ultrafast", "-x265-params", "log-level=error", "-tag:v", "hvc1", "-pix_fmt", "yuv420p", "-c:a", "aac"},
		{"webm", "-c:v", "libvpx", "-deadline", "realtime", "-c:a", "libvorbis"},
		{"webm", "-c:v", "libvpx-vp9", "-deadline", "realtime", "-cpu-used", "8", "-pix_fmt", "yuv420p", "-c:a", "libopus"},
		{"webm", "-c:v", "libaom-av1", "-usage", "realtime", "-cpu-used", "8", "-pix_fmt", "yuv420p", "-c:a", "libopus"},
		{"mov", "-c:v", "mjpeg", "-q:v", "3", "-c:a", "pcm_s16be"},
	} {
		path := filepath.Join(t.TempDir(), "codec."+args[0])
		all = append(append(append(all, "-map", "0", "-map", "1"), args[1:]...), path)
		cuts, names = append(cuts, cut(path, 200, 800)), append(names, args[2]+" in "+args[0])
	}
	mediatest.FFmpeg(t, all...)
	out := b.render(t, film(cuts...))
	mediatest.ConstantRate(t, out.Path, 25, 15*len(cuts), 20*time.Microsecond)
	pictures := mediatest.Frames(t, out.Path, mediatest.Every(300*time.Millisecond, 600*time.Millisecond, len(names))...)
	for i, name := range names {
		if got := seen(t, pictures[i]); got != "RGBW" {
			t.Errorf("%s shows %s", name, got)
		}
		if l := mediatest.ToneLevel(t, out.Path, 440, mediatest.Between(600*i+100, 600*i+500)); l < -20 {
			t.Errorf("%s: tone at %.1f dB", name, l)
		}
	}
}

// Pictures that ffmpeg would show wrongly, or only in part, fail with a sentence that names the cause. The sound of
// such a file can be used.
func TestPicturesThatCannotBeShown(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	clip := func(output ...string) string {
		return mediatest.Clip(t, mediatest.Spec{Width: 160, Height: 120, Duration: time.Second, Tone: 440, Output: output})
	}
	// The box with the shape of a pixel becomes a Dolby Vision configuration of that profile and compatibility.
	dolby := func(name string, profile, compatibility byte) string {
		path := filepath.Join(t.TempDir(), name+".mp4")
		mediatest.FFmpeg(t, "-i", clip(), "-c", "copy", "-aspect", "4:3", path)
		file, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		at := bytes.Index(file, []byte("pasp"))
		copy(file[at:], []byte{'d', 'v', 'v', 'C', 1, 0, profile << 1, 1<<3 | 5, compatibility << 4, 0, 0, 0})
		if err := os.WriteFile(path, file, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	five := dolby("five", 5, 0)
	renamed := altered(t, dolby("av1", 10, 1), func(file []byte) []byte {
		return bytes.Replace(file, []byte("avc1\x00\x00"), []byte("dav1\x00\x00"), 1)
	})
	matroska := filepath.Join(t.TempDir(), "five.mkv")
	mediatest.FFmpeg(t, "-i", five, "-c", "copy", "-strict", "-2", matroska)
	recording := filepath.Join(t.TempDir(), "once.webm")
	mediatest.FFmpeg(t, "-i", clip(), "-c:v", "libvpx", "-c:a", "libopus", recording)
	joined := filepath.Join(t.TempDir(), "twice.webm")
	once, err := os.ReadFile(recording)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(joined, append(once, once...), 0o600); err != nil {
		t.Fatal(err)
	}
	paths := map[string]string{five: "Dolby Vision", renamed: "Dolby Vision pictures in AV1", matroska: "Dolby Vision", dolby("ten", 10, 0): "Dolby Vision", joined: "several recordings"}
	if dir := os.Getenv("CUTROOM_MEDIA_DIR"); dir != "" {
		paths[filepath.Join(dir, "real", "dolbyvision_p10_av1_4k.mp4")] = "Dolby Vision"
		paths[filepath.Join(dir, "real", "webm_two_recordings.webm")] = "several recordings"
	}
	for path, want := range paths {
		if got := b.fails(t, film(cut(path, 0, 0))); !strings.HasPrefix(got, "source_unreadable: segments[0]: the file ") || !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", filepath.Base(path), got, want)
		}
	}
	tl := film(cut(five, 0, 0))
	tl.OutputKind = timeline.Audio
	b.render(t, tl)
	b.render(t, film(cut(dolby("eight", 8, 4), 0, 0), cut(recording, 0, 0))) // with a base layer
}

// The parts of a film have the same decoder configuration, whatever position of chroma samples their sources state.
// Some players read only the first configuration.
func TestPartsShareADecoderConfiguration(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	clip := func(location string) string {
		return mediatest.Clip(t, mediatest.Spec{Width: 160, Height: 120, Duration: time.Second,
			Output: []string{"-bsf:v", "h264_metadata=chroma_sample_loc_type=" + location}})
	}
	path := b.render(t, film(cut(clip("0"), 0, 0), cut(clip("2"), 0, 0)))
	sets := mediatest.FFmpeg(t, "-i", path.Path, "-map", "0:v", "-c", "copy", "-bsf:v", "h264_mp4toannexb,filter_units=pass_types=7", "-f", "h264", "-")
	all := bytes.Split(sets, []byte{0, 0, 0, 1})[1:]
	if len(all) != 2 || !bytes.Equal(all[0], all[1]) {
		t.Errorf("sequence parameter sets %x, want two equal ones", all)
	}
}

// A clip that was cut without re-encoding is shown from its first key frame, as in players.
func TestClipWithoutAKeyFrameAtItsStart(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	whole := filepath.Join(t.TempDir(), "whole.mp4")
	mediatest.FFmpeg(t, "-f", "lavfi", "-i", "color=c=black:s=160x120:r=25,format=gray,geq=lum='10*N+20',format=yuvj420p,scale=out_range=tv,format=yuv420p",
		"-frames:v", "20", "-c:v", "libx264", "-preset", "ultrafast", "-g", "8", "-bf", "0", "-crf", "10", whole)
	late := filepath.Join(t.TempDir(), "late.mp4") // after an empty edit, and its first picture is damaged
	mediatest.FFmpeg(t, "-itsoffset", "5", "-i", whole, "-c", "copy", late)
	late = altered(t, late, func(file []byte) []byte {
		at := bytes.Index(file, []byte("mdat")) + 4
		clear(file[at : at+1000])
		return file
	})
	for name, first := range map[string]int{"cut.mp4": 3, "cut.mkv": 3, late: 0} {
		path := name
		if name != late {
			path = filepath.Join(t.TempDir(), name)
			mediatest.FFmpeg(t, "-i", whole, "-ss", "0.12", "-c", "copy", "-copyinkf", path)
		}
		for _, from := range []int{0, 4, 9} {
			got := greys(t, b.render(t, film(cut(path, int64(from*40), 0))).Path)
			if len(got) != 20-first-from {
				t.Errorf("%s from frame %d: %d frames", name, from, len(got))
			}
			for i, level := range got {
				if want := 10*max(8, first+from+i) + 20; level < want-4 || level > want+4 {
					t.Errorf("%s from frame %d: frame %d has level %d, want %d", name, from, i, level, want)
				}
			}
		}
	}
}
